# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: memory regions as parameters, and small handwritten programs."""

from collections.abc import Callable, Sequence

import pytest

from hil_tests.architectures import Facts, facts_of
from hil_tests.programs import handwritten
from utvm.boards.parts import MemoryRegion
from utvm.compiler import Library
from utvm.firmware import Firmware
from utvm.hil.plugin import board_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize ``region``, ``ram`` and ``mirror`` over the board's regions, ``width`` over access widths."""
    board = board_of(metafunc.config)
    memory = board.memory
    for name, regions in {
        "region": memory,
        "ram": [region for region in memory if region.kind == "ram"],
        "mirror": [region for region in memory if region.alias_of],
    }.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, regions, ids=lambda region: region.name)
    if "width" in metafunc.fixturenames:
        metafunc.parametrize("width", [8, 16, 32])


@pytest.fixture(scope="session")
def facts(request: pytest.FixtureRequest) -> Facts:
    """Facts about the board's architecture."""
    facts = facts_of(request.config)
    assert facts is not None
    return facts


@pytest.fixture
def code(request: pytest.FixtureRequest) -> MemoryRegion:
    """The region into which images are flashed."""
    board = board_of(request.config)
    return board.region(board.layout.code)


@pytest.fixture(scope="session")
def doubler(firmware: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    """An image with one program, which doubles four numbers."""
    return firmware([handwritten("doubler", "  for (int i = 0; i < 4; i++) {\n    y[i] = 2 * x[i];\n  }\n  return 0;")])
