# SPDX-License-Identifier: Apache-2.0
"""The files of the RPC executor form layers: no two of them depend on each other."""

import graphlib
import re
from pathlib import Path

import pytest

from tests.runtime.conftest import FLAGS
from utvm.base.process import run_tool
from utvm.runtime import DIRECTORY

_RPC = DIRECTORY / "rpc"
_INCLUDE = re.compile(r'^#include "(\w+)\.h"', re.MULTILINE)
_MACROS = ['-DUTVM_BOARD_NAME="layers"', "-DUTVM_CLOCK_HZ=1000000u"]


def _symbols(load_library: Path) -> tuple[set[str], set[str]]:
    """Symbols that an object file defines, and those it needs."""
    defined, needed = set(), set()
    for line in run_tool(["nm", "-P", "-g", load_library]).splitlines():
        name, kind, *_ = line.split()
        (needed if kind == "U" else defined).add(name)
    return defined, needed


@pytest.mark.slow
def test_files_have_no_circular_dependency(tmp_path: Path) -> None:
    files = sorted(_RPC.glob("*.c"))
    names = {path.stem for path in files}
    symbols = {}
    for path in files:
        load_library = tmp_path / f"{path.stem}.o"
        run_tool(["gcc", *FLAGS, *_MACROS, "-c", "-o", load_library, path])
        symbols[path.stem] = _symbols(load_library)
    definer = {symbol: name for name, (defined, _) in symbols.items() for symbol in defined}
    needs = {name: {definer[symbol] for symbol in needed & definer.keys()} for name, (_, needed) in symbols.items()}
    for path in _RPC.glob("*.[ch]"):
        included = set(_INCLUDE.findall(path.read_text(encoding="utf-8")))
        needs.setdefault(path.stem, set()).update(included & (names) - {path.stem})
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as circle:
        pytest.fail(f"these need each other: {' -> '.join(circle.args[1])}")
    # The test saw real files: callees are below their callers.
    assert order.index("text") < order.index("functions") < order.index("server") < order.index("main")
