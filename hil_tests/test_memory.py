# SPDX-License-Identifier: Apache-2.0
"""Memory: every region, every access width, random patterns, through the debug port.

The core is halted after a reset. Images initialise their RAM at start-up, so tests leave no traces.
"""

import contextlib
import random
import re
from collections.abc import Callable

import pytest

from utvm.boards.parts import MemoryRegion
from utvm.drivers import Connection
from utvm.errors import BoardError

pytestmark = pytest.mark.needs("debug port")

_SAMPLE = 64
_END_OF_ADDRESSES = 1 << 32


def _sample_addresses(region: MemoryRegion, generator: random.Random) -> list[int]:
    """Addresses to test: both ends, and some between."""
    last = region.size - _SAMPLE
    inside = [generator.randrange(0, last, 4) for _ in range(3)]
    return [region.address + offset for offset in (0, last, *inside)]


def _write(board: Connection, address: int, width: int, data: bytes) -> None:
    """Write with accesses of the given width in bits."""
    step = width // 8
    values = " ".join(hex(int.from_bytes(data[n : n + step], "little")) for n in range(0, len(data), step))
    board.gdb.monitor(f"write_memory {address:#x} {width} {{{values}}}")


def _read(board: Connection, address: int, width: int, size: int) -> bytes:
    """Read with accesses of the given width in bits."""
    step = width // 8
    output = board.gdb.monitor(f"read_memory {address:#x} {width} {size // step}")
    # A server may print a warning before the values.
    values = re.findall(r"\b0x[0-9a-f]+\b", output)[-size // step :]
    return b"".join(int(value, 16).to_bytes(step, "little") for value in values)


@pytest.mark.needs("access widths")  # QEMU's stub chooses the width
def test_reads_are_equal_at_all_widths(board: Connection, region: MemoryRegion, width: int) -> None:
    for address in _sample_addresses(region, random.Random(region.address)):
        assert _read(board, address, width, _SAMPLE) == board.read_memory(address, _SAMPLE)


@pytest.mark.needs("access widths")  # QEMU's stub chooses the width
def test_ram_holds_random_patterns_at_all_widths(board: Connection, ram: MemoryRegion, width: int) -> None:
    generator = random.Random(ram.address + width)
    for address in _sample_addresses(ram, generator):
        data = generator.randbytes(_SAMPLE)
        _write(board, address, width, data)
        for read_width in (8, 16, 32):
            assert _read(board, address, read_width, _SAMPLE) == data


@pytest.mark.needs("access widths")  # QEMU's stub chooses the width
def test_narrow_write_leaves_its_neighbours(board: Connection, ram: MemoryRegion, width: int) -> None:
    step = width // 8
    expected = bytearray(random.Random(width).randbytes(16))
    board.write_memory(ram.address, bytes(expected))
    for offset in range(0, 16, step):
        value = bytes(byte ^ 0xFF for byte in expected[offset : offset + step])
        _write(board, ram.address + offset, width, value)
        expected[offset : offset + step] = value
        assert board.read_memory(ram.address, 16) == expected


def _blocks(region: MemoryRegion, whole: int) -> list[tuple[int, int]]:
    """Offsets and sizes of the tested blocks of a region; a small region is tested in full."""
    if region.size <= whole:
        return [(0, region.size)]
    lines = range(whole.bit_length() - 1, region.size.bit_length())
    return [(0, whole), *((1 << line, _SAMPLE) for line in lines if 1 << line < region.size)]


def _first_difference(board: Connection, address: int, data: bytes) -> str:
    """Describe the first difference of a written block; empty if there is none."""
    try:
        actual = board.read_memory(address, len(data))
    except BoardError as error:
        return error.message
    if actual == data:
        return ""
    first = next(offset for offset, (old, new) in enumerate(zip(data, actual, strict=True)) if old != new)
    return f"the byte at {address + first:#010x} is {actual[first]:#04x}, and {data[first]:#04x} was written"


def test_ram_addresses_are_distinct_memory(board: Connection) -> None:
    """Write to every region in full or, through a slow probe, to blocks that differ in each address line."""
    patterns = {
        (region.name, region.address + offset): random.Random(region.address + offset).randbytes(size)
        for region in board.board.memory
        if region.kind == "ram"
        for offset, size in _blocks(region, board.worth_moving)
    }
    for (_, address), data in patterns.items():
        board.write_memory(address, data)
    for (name, address), data in patterns.items():
        if difference := _first_difference(board, address, data):
            pytest.fail(f"memory {name}: {difference}; is all of it there, and nowhere else too?", pytrace=False)


def test_blocks_are_written_at_any_offset(board: Connection) -> None:
    address = board.board.region(board.board.layout.data).address
    background = random.Random(0).randbytes(48)
    for offset in range(4):
        for size in (1, 2, 3, 5, 31):
            board.write_memory(address, background)
            data = random.Random(size).randbytes(size)
            board.write_memory(address + offset, data)
            assert board.read_memory(address, 48) == background[:offset] + data + background[offset + size :]
            assert board.read_memory(address + offset, size) == data


def _edge_of_ram(board: Connection) -> tuple[int, int]:
    """Addresses of an unmapped word, and of a word of RAM beside it."""
    ram = sorted((region for region in board.board.memory if region.kind == "ram"), key=lambda region: region.address)
    if ram[-1].end < _END_OF_ADDRESSES:
        return ram[-1].end, ram[-1].end - 4
    return ram[0].address - 4, ram[0].address


def _expect_error(access: Callable[[], object], address: int) -> None:
    """Expect an error for an access outside the board's memory."""
    with contextlib.suppress(BoardError):
        access()
        message = f"{address:#010x}, where board.yaml has no memory, was answered: is all RAM listed there?"
        pytest.fail(f"{message} A board where wrong addresses answer says lacks: [bus errors]", pytrace=False)


@pytest.mark.needs("bus errors")
def test_board_survives_a_read_outside_memory(board: Connection) -> None:
    outside, inside = _edge_of_ram(board)
    _expect_error(lambda: board.read_memory(outside, 4), outside)
    board.write_memory(inside, b"fine")
    assert board.read_memory(inside, 4) == b"fine"


@pytest.mark.needs("bus errors")
@pytest.mark.needs("write errors")  # QEMU's stub reports success for every write
def test_board_survives_a_write_outside_memory(board: Connection) -> None:
    outside, inside = _edge_of_ram(board)
    _expect_error(lambda: board.write_memory(outside, bytes(4)), outside)
    board.write_memory(inside, b"good")
    assert board.read_memory(inside, 4) == b"good"
