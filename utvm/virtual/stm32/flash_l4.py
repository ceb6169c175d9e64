# SPDX-License-Identifier: Apache-2.0
"""The embedded flash of the STM32L4 and its controller (RM0432, section 3): double words, pages, two banks.

As in :mod:`utvm.virtual.stm32.flash`, an operation is over at once and shows BSY to the first look at SR, and read
protection cannot be turned on. Fast programming and the protected areas are not modelled: nothing is protected.
The STM32L5's (RM0438, section 6) has other offsets, and a secure half, which is not there while TZEN is 0.
"""

from collections.abc import Callable, Mapping

from utvm.virtual.bus import MemoryBank
from utvm.virtual.stm32.embedded_flash import BSY, EOP, LOCK, EmbeddedFlash

_ACR, _KEYR = 0x00, 0x08

# SR
PROGERR = 1 << 3
PGAERR = 1 << 5
SIZERR = 1 << 6
PGSERR = 1 << 7
_CLEARED_BY_WRITING = 0xC3FB

# CR
_PG = 1 << 0
_PER = 1 << 1
_MER1 = 1 << 2
_PNB_SHIFT = 3
_BKER = 1 << 11
_MER2 = 1 << 15
_STRT = 1 << 16
_OPTLOCK = 1 << 30
_CR_MASK = 0x0704FFFF
_DOUBLE_WORD = 8


class L4FlashController(EmbeddedFlash):
    """FLASH_ACR, KEYR, OPTKEYR, SR, CR and OPTR; takes all writes to the flash.

    Args:
        memory: the flash; its sectors are its pages, those of the second bank after those of the first.
        options: OPTR as the chip is delivered.
        changed: told the first address and the address after a change of what the flash holds.
        set_line: drives the interrupt line.

    Attributes:
        option_keys: offset of OPTKEYR; likewise those of SR, CR and OPTR.
        protected: beginning and end of what is protected against writing: none, for it begins behind its end.
    """

    option_keys, status, control, option_register = 0x0C, 0x10, 0x14, 0x20
    protected: Mapping[int, int] = dict.fromkeys((0x2C, 0x30, 0x4C, 0x50), 0x000000FF)

    def __init__(
        self,
        memory: MemoryBank,
        options: int,
        changed: Callable[[int, int], None],
        set_line: Callable[[bool], None],
    ) -> None:
        self._options = options
        self._pages_a_bank = len(memory.region.sectors) // 2
        super().__init__(memory, changed, set_line)

    def reset(self) -> None:
        super().reset()
        self._access_control = 0x600
        self._control |= _OPTLOCK
        self._first: tuple[int, int] | None = None  # offset and value of a double word's lower half

    def load(self, offset: int) -> int:
        if offset == self.status:
            return self._take_status()
        known = {_ACR: self._access_control, self.control: self._control, self.option_register: self._options}
        return {**self.protected, **known}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _ACR:
            self._access_control = self._access_control & ~lanes | value
        elif offset == _KEYR:
            if self._unlocking.take(value):
                self._control &= ~LOCK
        elif offset == self.option_keys:
            if self._option_unlocking.take(value):
                self._control &= ~_OPTLOCK
        elif offset == self.status:
            self._status &= ~(value & _CLEARED_BY_WRITING)
            self._drive_line()
        elif offset == self.control and not self._control & LOCK:
            self._store_control(value, lanes)

    def program(self, address: int, size: int, value: int) -> None:
        """Take a write to the flash: a word, of which two make the double word that is programmed."""
        offset = address - self._memory.start
        self._status &= ~BSY  # the bus has waited for the operation before
        first, self._first = self._first, None
        if self._control & LOCK or not self._control & _PG or self._status & _CLEARED_BY_WRITING & ~EOP:
            self._fail(PGSERR)
        elif size != 4:
            self._fail(SIZERR)
        elif offset % _DOUBLE_WORD == 0:
            self._first = (offset, value)
        elif first is None or first[0] + size != offset:
            self._fail(PGAERR)
        else:
            self._write(first[0], first[1] | value << 32)

    def _write(self, offset: int, value: int) -> None:
        """Program a double word: one that is erased, or any with zeros (RM0432, 3.3.7)."""
        if value and self._memory.bytes[offset : offset + _DOUBLE_WORD] != b"\xff" * _DOUBLE_WORD:
            self._fail(PROGERR)
        else:
            self._replace(offset, value.to_bytes(_DOUBLE_WORD, "little"))

    def _store_control(self, value: int, lanes: int) -> None:
        mask = _CR_MASK & lanes
        self._control = self._control & ~mask | value & mask
        if value & _STRT:
            self._erase()
        if value & LOCK:
            self._control |= LOCK
            self._unlocking.close()
        if value & _OPTLOCK:
            self._control |= _OPTLOCK
            self._option_unlocking.close()

    def _erase(self) -> None:
        pages: list[tuple[int, int]] = []
        if self._control & _PER:
            number = self._control >> _PNB_SHIFT & 0xFF
            pages = self._sectors[number + (self._pages_a_bank if self._control & _BKER else 0) :][:1]
        if self._control & _MER1:
            pages += self._sectors[: self._pages_a_bank]
        if self._control & _MER2:
            pages += self._sectors[self._pages_a_bank :]
        if self._control & _PG or not pages:
            self._fail(PGSERR)
        for start, end in pages if not self._control & _PG else ():
            self._replace(start, b"\xff" * (end - start))


class L5FlashController(L4FlashController):
    """The same with NSKEYR, NSSR and NSCR."""

    option_keys, status, control, option_register = 0x10, 0x20, 0x28, 0x40
    protected: Mapping[int, int] = dict.fromkeys((0x58, 0x5C, 0x68, 0x6C), 0xFF80FFFF)
