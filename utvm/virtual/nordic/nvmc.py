# SPDX-License-Identifier: Apache-2.0
"""The flash controller of the nRF52 (4.3) and nRF53: pages and words, one key of two bits.

The nRF52 has a register for the page to be erased. On the nRF53, whoever may erase writes ones to its first
word (nRF5340 Product Specification 1.3, NVMC, "Erasing a page in flash").

An operation is over at once, but READY is low for the first look after it, so that software that does not wait is
found out. Partial erasing and the cache's counters are not modelled, and nothing is protected: the registers for
that (ACL, 6.1) are not there. How often a word was written since its page was erased is not counted.
"""

from collections.abc import Callable
from itertools import accumulate

from utvm.virtual.bus import BusError, Device, MemoryBank

_READY, _READY_NEXT, _CONFIG, _ERASE_PAGE, _ERASE_ALL, _CACHE = 0x400, 0x408, 0x504, 0x508, 0x50C, 0x540
_WRITE, _ERASE = 1, 2
_WORD = 4
_ONES = 0xFFFFFFFF


class Nvmc(Device):
    """READY, READYNEXT, CONFIG, ERASEPAGE, ERASEALL and ICACHECNF; takes all writes to the flash.

    Args:
        memory: the flash; its sectors are its pages.
        changed: told the first address and the address after a change of what the flash holds.
        erases_by_writing: as the nRF53 does.
    """

    size = 0x1000

    def __init__(
        self, memory: MemoryBank, changed: Callable[[int, int], None], *, erases_by_writing: bool
    ) -> None:
        self._memory = memory
        self._changed = changed
        self._erases_by_writing = erases_by_writing
        ends = list(accumulate(memory.region.sectors))
        self._pages = dict(zip([0, *ends[:-1]], memory.region.sectors, strict=True))
        self.reset()

    def reset(self) -> None:
        self._enabled = self._cache = 0
        self._busy = False

    def load(self, offset: int) -> int:
        if offset in (_READY, _READY_NEXT):
            busy, self._busy = self._busy, False
            return int(not busy)
        return {_CONFIG: self._enabled, _CACHE: self._cache}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _CONFIG:
            self._enabled = value & 3
        elif offset == _CACHE and not self._erases_by_writing:  # The nRF53's cache is a peripheral of its own.
            self._cache = value
        elif self._enabled == _ERASE and offset == _ERASE_PAGE and not self._erases_by_writing:
            self._erase_page(value - self._memory.start)
        elif self._enabled == _ERASE and offset == _ERASE_ALL and value & 1:
            self._replace(0, b"\xff" * self._memory.region.size)

    def program(self, address: int, size: int, value: int) -> None:
        """Take a write to the flash, a word (4.3.1)."""
        offset = address - self._memory.start
        if self._erases_by_writing and self._enabled == _ERASE and size == _WORD and value == _ONES:
            self._erase_page(offset)
            return
        if self._enabled != _WRITE or size != _WORD or offset % _WORD:
            raise BusError(address)
        old = int.from_bytes(self._memory.bytes[offset : offset + _WORD], "little")
        self._replace(offset, (old & value).to_bytes(_WORD, "little"))

    def _erase_page(self, start: int) -> None:
        if start in self._pages:
            self._replace(start, b"\xff" * self._pages[start])

    def _replace(self, offset: int, data: bytes) -> None:
        self._memory.bytes[offset : offset + len(data)] = data
        self._changed(self._memory.start + offset, self._memory.start + offset + len(data))
        self._busy = True
