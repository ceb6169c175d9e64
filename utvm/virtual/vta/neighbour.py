# SPDX-License-Identifier: Apache-2.0
"""The model of VTA beside an emulated board: it reads registers and memory as hardware does, and answers there."""

import ctypes
import mmap
import struct
from collections.abc import Sequence

from utvm.errors import BoardError
from utvm.runtime.vta.configuration import Configuration
from utvm.runtime.vta.instructions import INSTRUCTION_BYTES
from utvm.virtual.neighbour import Reach
from utvm.virtual.vta.simulator import Refusal, VtaSimulator

_PAGE = 4096
_PAGES = ("fetch", "load", "compute", "store")
_CONTROL = {"fetch": 0x01, "load": 0x81, "compute": 0x81, "store": 0x81}
_FETCH_COUNT, _FETCH_ADDRESS = 0x10, 0x18
_DONE_AT = 2 * _PAGE + 0x18
_DONE, _REFUSED = 1, 2
# Where a memory's elements are counted from.
_BASES = {"UOP": (2, 0x20), "WGT": (1, 0x18), "INP": (1, 0x10), "ACC": (2, 0x28), "OUT": (3, 0x10)}
_WHY_AT = 4 * _PAGE
_WHY = struct.Struct("<i4xqq96s")
REGISTER_BYTES = 5 * _PAGE
"""The pages of the four blocks, and that in which a model tells why."""
STARTS_LAST = 3 * _PAGE
"""The register by which the driver starts the last block, and so VTA."""
_LONGEST = 65536  # instructions


class VtaNeighbour:
    """A VTA whose registers are memory of the board, and whose DRAM is the board's.

    Args:
        registers: where they are.
        memory: what VTA can reach, as addresses and sizes.
    """

    symbol = "utvm_accelerator_rung"

    def __init__(self, configuration: Configuration, registers: int, memory: Sequence[tuple[int, int]]) -> None:
        self._model = VtaSimulator(configuration, alone=True)
        self._numbers = {name: configuration.memories[name].number for name in _BASES}
        self._registers = registers
        self._holds = ""
        self._dram = [_Region(address, size) for address, size in memory]

    def program(self, bitstream: str) -> None:
        """Remember what the logic holds: before that, no VTA is there."""
        self._holds = bitstream

    def attend(self, board: Reach) -> None:
        """Run what the registers say, and write what came of it."""
        words = [board.read_memory(self._registers + _PAGE * page, 0x30) for page in range(len(_PAGES))]
        refusal = self._refusal_of(words)
        if refusal is None:
            try:
                refusal = self._run(board, words)
            except BoardError as error:
                refusal = Refusal(error.message, 0)
        if refusal is not None:
            said = (refusal.rule.encode(), refusal.number, refusal.value, refusal.limit)
            board.write_memory(self._registers + _WHY_AT, _WHY.pack(*said[1:], said[0]))
        done = _DONE if refusal is None else _REFUSED
        board.write_memory(self._registers + _DONE_AT, struct.pack("<I", done))

    def _refusal_of(self, words: Sequence[bytes]) -> Refusal | None:
        if not self._holds:
            return Refusal("the logic is empty: board.program-fpga", 0)
        for name, page in zip(_PAGES, words, strict=True):
            if _word(page, 0) != _CONTROL[name]:
                return Refusal(
                    f"the block {name} was not started as it has to be", 0, _word(page, 0), _CONTROL[name]
                )
        if not 0 < _word(words[0], _FETCH_COUNT) <= _LONGEST:
            return Refusal("a run has so many instructions", 0, _word(words[0], _FETCH_COUNT), _LONGEST)
        return None

    def _run(self, board: Reach, words: Sequence[bytes]) -> Refusal | None:
        count, address = _word(words[0], _FETCH_COUNT), _word(words[0], _FETCH_ADDRESS)
        for name, (page, offset) in _BASES.items():
            self._model.count_from(self._numbers[name], _word(words[page], offset))
        for region in self._dram:
            region.forget()

        def reach(first: int, size: int) -> int:
            return next(
                (region.fetched(board, first, size) for region in self._dram if region.has(first, size)), 0
            )

        refusal = self._model.run_on(board.read_memory(address, count * INSTRUCTION_BYTES), reach)
        for region in self._dram:
            region.write_back(board)
        return refusal


class _Region:
    """A region of a board's memory, of which that is in this process which was asked for."""

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        # Room that the kernel gives page by page.
        self._bytes = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._at = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))
        self._size = size
        self._held: dict[int, bytes] = {}

    def has(self, address: int, size: int) -> bool:
        """Whether all of these bytes are here."""
        return self._address <= address and address + size <= self._address + self._size

    def forget(self) -> None:
        """Ask anew: the board's program has run."""
        self._held.clear()

    def fetched(self, board: Reach, address: int, size: int) -> int:
        """Return where in this process these bytes are."""
        first = address - self._address
        for page in range(first // _PAGE * _PAGE, first + size, _PAGE):
            if page not in self._held:
                length = min(_PAGE, self._size - page)
                held = board.read_memory(self._address + page, length)
                self._bytes[page : page + length] = held
                self._held[page] = held
        return self._at + first

    def write_back(self, board: Reach) -> None:
        """Write to the board what has changed here."""
        for page, held in self._held.items():
            now = self._bytes[page : page + len(held)]
            if now != held:
                board.write_memory(self._address + page, now)


def _word(page: bytes, offset: int) -> int:
    return int.from_bytes(page[offset : offset + 4], "little")
