# SPDX-License-Identifier: Apache-2.0
"""The C parts of virtual boards, compiled for this machine when they are first needed."""

import ctypes
import platform
from pathlib import Path

from utvm.base.process.run import run_tool
from utvm.base.storage.cache import Cache, content_key
from utvm.errors import ToolchainError

_SHARED = Path(__file__).parent
_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC")


def load_compiled(source: Path) -> ctypes.CDLL:
    """Return a compiled C file, compiling it where this machine has not done so before."""
    name = f"{source.stem}.so"

    def compile_it(directory: Path) -> None:
        run_tool(
            ["gcc", *_FLAGS, "-I", _SHARED, "-o", directory / name, source],
            error=ToolchainError,
            hint="virtual boards need a C compiler for this machine: apt install gcc libc6-dev",
        )

    texts = [file.read_text(encoding="utf-8") for file in (source, *sorted(_SHARED.glob("*.h")))]
    key = content_key(*texts, " ".join(_FLAGS), platform.machine(), platform.libc_ver()[1])
    return ctypes.CDLL(str(Cache("virtual").fetch(key, compile_it) / name))
