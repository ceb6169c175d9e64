# SPDX-License-Identifier: Apache-2.0
"""The runtime's portable files, compiled for this computer with all compiler checks."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from utvm.base.process import run_tool
from utvm.runtime import DIRECTORY, defines, include

FLAGS = [
    *["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"],
    *(f"-D{macro}" for macro in defines("rpc")),
    *(f"-I{folder}" for folder in include("host", "rpc")),
]


@pytest.fixture(scope="module")
def load_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], ctypes.CDLL]:
    """Compile files of ``utvm/runtime/rpc``, and further files, into a shared library."""

    def build(files: Sequence[str], *further: Path) -> ctypes.CDLL:
        library = tmp_path_factory.mktemp("runtime") / "library.so"
        sources = [DIRECTORY / "rpc" / name for name in files]
        sanitize = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
        run_tool(["gcc", *FLAGS, *sanitize, "-shared", "-fPIC", "-o", library, *sources, *further])
        return ctypes.CDLL(str(library))

    return build
