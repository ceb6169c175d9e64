# SPDX-License-Identifier: Apache-2.0
"""The code memory: flashed bytes are present and permanent, and other bytes do not change."""

import contextlib
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from hil_tests.programs import handwritten
from utvm.boards.parts import MemoryRegion
from utvm.compiler import Library
from utvm.drivers import Connection
from utvm.errors import BoardError
from utvm.firmware import Firmware
from utvm.session import HostDriven

pytestmark = pytest.mark.needs("debug port")


@pytest.fixture(scope="module")
def tripler(firmware: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    """An image that differs from the doubler's."""
    return firmware([handwritten("tripler", "  y[0] = 3 * x[0];\n  return 0;")])


@pytest.mark.needs("flash")
def test_image_is_flashed_over_another(board: Connection, doubler: Firmware, tripler: Firmware) -> None:
    """Bits that the first image cleared must be erased for the second."""
    for image in (tripler, doubler):
        board.gdb.flash(image.segments)
        for address, data in image.segments:
            assert board.read_memory(address, len(data)) == data


def test_comparison_recognises_the_flashed_image(board: Connection, doubler: Firmware, tripler: Firmware) -> None:
    board.program(doubler)
    assert board.first_difference(doubler) is None
    assert board.first_difference(tripler) is not None


def test_flashed_image_survives_resets_and_runs(
    board: Connection, doubler: Firmware, session: Callable[[Firmware], HostDriven]
) -> None:
    running = session(doubler)
    for _ in range(2):
        running.reset()
        assert board.first_difference(doubler) is None
        (output,) = running.run("doubler", [np.array([1, -2, 3, 2**30 - 1], np.int32)]).outputs
        assert output.tolist() == [2, -4, 6, 2**31 - 2]


@pytest.mark.needs("flash")
def test_flashing_the_last_bytes_keeps_the_image(board: Connection, doubler: Firmware, code: MemoryRegion) -> None:
    board.program(doubler)
    for seed in (1, 2):
        data = random.Random(seed).randbytes(32)
        board.gdb.flash([(code.end - len(data), data)])
        assert board.read_memory(code.end - len(data), len(data)) == data
        assert board.first_difference(doubler) is None


@pytest.mark.needs("flash")
def test_odd_number_of_bytes_is_flashed(board: Connection, code: MemoryRegion) -> None:
    data = random.Random(3).randbytes(37)
    address = code.end - 100
    board.gdb.flash([(address, data)])
    assert board.read_memory(address, len(data)) == data
    assert board.read_memory(code.end - 4, 4) == b"\xff" * 4


@pytest.mark.needs("flash")
@pytest.mark.parametrize("where", ["across the end", "after the end", "before the start", "in RAM"])
def test_address_outside_flash_is_refused(board: Connection, doubler: Firmware, code: MemoryRegion, where: str) -> None:
    board.program(doubler)
    address = {
        "across the end": code.end - 4,
        "after the end": code.end,
        "before the start": code.address - 8,
        "in RAM": board.board.region(board.board.layout.data).address,
    }[where]
    before = board.read_memory(code.end - 4, 4)
    with pytest.raises(BoardError, match="not all in flash"):
        board.gdb.flash([(address, bytes(8))])
    assert board.read_memory(code.end - 4, 4) == before
    assert board.first_difference(doubler) is None


@pytest.mark.needs("flash")
def test_a_plain_write_does_not_change_flash(board: Connection, doubler: Firmware, code: MemoryRegion) -> None:
    """The bytes do not change, whether the bus refuses the write or the flash ignores it."""
    board.program(doubler)
    before = board.read_memory(code.address, 64)
    with contextlib.suppress(BoardError):
        board.write_memory(code.address, bytes(64))
    assert board.read_memory(code.address, 64) == before


@pytest.mark.needs("flash")
def test_a_mirror_shows_the_same_bytes(board: Connection, doubler: Firmware, mirror: MemoryRegion) -> None:
    board.program(doubler)
    original = board.board.region(str(mirror.alias_of))
    for offset in (0, original.size // 2, original.size - 256):
        assert board.read_memory(mirror.address + offset, 256) == board.read_memory(original.address + offset, 256)
