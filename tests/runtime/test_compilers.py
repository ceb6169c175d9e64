# SPDX-License-Identifier: Apache-2.0
"""The runtime's C compiles as strict C99 without warnings, with two compilers."""

from pathlib import Path

import pytest

from utvm import runtime
from utvm.base.process import run_tool

pytestmark = pytest.mark.slow

_STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-Wundef"]


@pytest.mark.parametrize(("executor", "pipe"), [pair for pair in runtime.images("host") if pair[0] != "host_driven"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sources_compile_without_warnings(
    compiler: str, executor: runtime.Executor, pipe: runtime.Pipe | None, tmp_path: Path
) -> None:
    macros = [*runtime.defines(executor), 'UTVM_BOARD_NAME="host"', "UTVM_CLOCK_HZ=1000000000u"]
    sources = [*runtime.sources("host", executor, pipe), *runtime.PORTABLE.glob("*.c")]
    assert len(sources) > 5
    for source in sources:
        run_tool(
            [
                compiler,
                *_STRICT,
                *(f"-D{macro}" for macro in macros),
                *(f"-I{folder}" for folder in runtime.include("host", executor, pipe)),
                *["-c", source, "-o", tmp_path / "object"],
            ]
        )
