# SPDX-License-Identifier: Apache-2.0
"""What the flash controllers of STM32s have in common: keys that open them, and how an operation ends.

An operation is over at once, but shows BSY to the first look at SR, so that software that does not wait is found
out.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate

from utvm.virtual.bus import Device, MemoryBank

KEYS = (0x45670123, 0xCDEF89AB)
OPTION_KEYS = (0x08192A3B, 0x4C5D6E7F)

# SR
EOP = 1 << 0
OPERR = 1 << 1
BSY = 1 << 16

# CR
EOPIE = 1 << 24
ERRIE = 1 << 25
LOCK = 1 << 31


class EmbeddedFlash(Device):
    """A controller that takes all writes to a flash.

    Args:
        memory: the flash; its sectors are what is erased at once.
        changed: told the first address and the address after a change of what the flash holds.
        set_line: drives the interrupt line.
    """

    def __init__(
        self, memory: MemoryBank, changed: Callable[[int, int], None], set_line: Callable[[bool], None]
    ) -> None:
        self._memory = memory
        self._changed = changed
        self._set_line = set_line
        ends = list(accumulate(memory.region.sectors))
        self._sectors = list(zip([0, *ends[:-1]], ends, strict=True))
        self.reset()

    def reset(self) -> None:
        self._control = LOCK
        self._status = 0
        self._unlocking = KeySequence(KEYS)
        self._option_unlocking = KeySequence(OPTION_KEYS)
        self._set_line(False)

    def _take_status(self) -> int:
        status = self._status
        self._status &= ~BSY
        return status

    def _replace(self, offset: int, data: bytes) -> None:
        self._memory.bytes[offset : offset + len(data)] = data
        self._changed(self._memory.start + offset, self._memory.start + offset + len(data))
        self._status |= BSY | (EOP if self._control & EOPIE else 0)
        self._drive_line()

    def _fail(self, error: int) -> None:
        self._status |= error | (OPERR if self._control & ERRIE else 0)
        self._drive_line()

    def _drive_line(self) -> None:
        # EOP and OPERR are only set while their interrupts are enabled.
        self._set_line(bool(self._status & (EOP | OPERR)))


class KeySequence:
    """Two keys in order open a lock; anything else keeps it shut until the next reset."""

    def __init__(self, keys: tuple[int, int]) -> None:
        self._keys = keys
        self._expected = list(keys)
        self._spoilt = False

    def close(self) -> None:
        """Ask for both keys again."""
        self._expected = list(self._keys)

    def take(self, key: int) -> bool:
        """Take a key. Returns whether the lock opens."""
        if self._spoilt or not self._expected or key != self._expected.pop(0):
            self._spoilt = True
            return False
        return not self._expected


_ACR = 0x00
_KEYR = 0x04
_OPTKEYR = 0x08
_SR = 0x0C
_CR = 0x10
_OPTCR = 0x14
_OPTCR1 = 0x18

# SR
WRPERR = 1 << 4
PGAERR = 1 << 5
PGPERR = 1 << 6
ERSERR = 1 << 7
_CLEARED_BY_WRITING = EOP | OPERR | WRPERR | PGAERR | PGPERR | ERSERR

# CR
_PG = 1 << 0
_SER = 1 << 1
_MER = 1 << 2
_SNB_SHIFT = 3
_PSIZE_SHIFT = 8
_MER1 = 1 << 15
_STRT = 1 << 16
_CR_MASK = _PG | _SER | _MER | 0xF << _SNB_SHIFT | 3 << _PSIZE_SHIFT | _STRT | EOPIE | ERRIE
_CR_TWO_BANKS = 0x10 << _SNB_SHIFT | _MER1

_OPTLOCK = 1 << 0
_OPTSTRT = 1 << 1
_OPTCR1_DEFAULT = 0x00400080
_OPTCR1_TWO_BANKS = 0x0FFF0000
_RDP_MASK = 0xFF00
_LEVEL_0 = 0xAA00
_NWRP_SHIFT = 16

_ACR_MASK = 0x0000030F | 1 << 11
_BANK = 12  # sectors
_SECOND_BANK = 16  # what SNB calls its first sector
_WRITE_ROW = 16  # one programming operation stays within 128 bits


class FlashController(EmbeddedFlash):
    """FLASH_ACR, KEYR, OPTKEYR, SR, CR, OPTCR and OPTCR1; takes all writes to the flash.

    Args:
        memory: the flash.
        options: OPTCR as the chip is delivered.
        changed: told the first address and the address after a change of what the flash holds.
        set_line: drives the interrupt line.
    """

    def __init__(
        self,
        memory: MemoryBank,
        options: int,
        changed: Callable[[int, int], None],
        set_line: Callable[[bool], None],
    ) -> None:
        two_banks = len(memory.region.sectors) > _BANK
        self._control_bits = _CR_MASK | (_CR_TWO_BANKS if two_banks else 0)
        self._stored_options = [options, _OPTCR1_TWO_BANKS if two_banks else _OPTCR1_DEFAULT]
        super().__init__(memory, changed, set_line)

    def reset(self) -> None:
        super().reset()
        self._access_control = 0
        self._options = list(self._stored_options)

    def load(self, offset: int) -> int:
        if offset == _SR:
            return self._take_status()
        return {
            _ACR: self._access_control,
            _CR: self._control,
            _OPTCR: self._options[0],
            _OPTCR1: self._options[1],
        }.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _ACR:
            mask = _ACR_MASK & lanes
            self._access_control = self._access_control & ~mask | value & mask
        elif offset == _KEYR:
            if self._unlocking.take(value):
                self._control &= ~LOCK
        elif offset == _OPTKEYR:
            if self._option_unlocking.take(value):
                self._options[0] &= ~_OPTLOCK
        elif offset == _SR:
            self._status &= ~(value & _CLEARED_BY_WRITING)
            self._drive_line()
        elif offset == _CR:
            self._store_control(value, lanes)
        elif offset in (_OPTCR, _OPTCR1):
            self._store_options(offset, value, lanes)

    def program(self, address: int, size: int, value: int) -> None:
        """Take a write to the flash: 1, 2 or 4 bytes."""
        offset = address - self._memory.start
        self._status &= ~BSY  # the bus has waited for the operation before
        if self._control & (LOCK | _SER | _MER | _MER1) or not self._control & _PG:
            self._fail(ERSERR)
        elif self._is_protected(offset):
            self._fail(WRPERR)
        elif offset % _WRITE_ROW + size > _WRITE_ROW or offset % size:
            self._fail(PGAERR)
        elif size != 1 << (self._control >> _PSIZE_SHIFT & 3):
            self._fail(PGPERR)
        else:
            old = self._memory.bytes[offset : offset + size]
            new = value.to_bytes(size, "little")
            self._replace(offset, bytes(was & wanted for was, wanted in zip(old, new, strict=True)))

    def _store_control(self, value: int, lanes: int) -> None:
        if self._control & LOCK:
            return
        mask = self._control_bits & lanes
        self._control = self._control & ~mask | value & mask
        if value & _STRT:
            self._control &= ~_STRT
            self._erase()
        if value & LOCK:
            self._control |= LOCK
            self._unlocking.close()

    def _erase(self) -> None:
        chosen = self._chosen()
        if self._control & _PG or not chosen:
            self._fail(ERSERR)
            return
        if any(self._is_protected(start) for start, _ in chosen):
            self._fail(WRPERR)
            return
        for start, end in chosen:
            self._replace(start, b"\xff" * (end - start))

    def _chosen(self) -> list[tuple[int, int]]:
        """Return the beginning and end of each sector that CR has chosen to be erased."""
        banks = self._sectors[:_BANK], self._sectors[_BANK:]
        if self._control & (_MER | _MER1):
            return [*banks[0] * bool(self._control & _MER), *banks[1] * bool(self._control & _MER1)]
        number = self._control >> _SNB_SHIFT & 0x1F
        sectors = banks[number // _SECOND_BANK]
        within = number % _SECOND_BANK
        return sectors[within : within + 1] if self._control & _SER else []

    def _is_protected(self, offset: int) -> bool:
        sector = next(number for number, (start, end) in enumerate(self._sectors) if start <= offset < end)
        return not self._options[sector // _BANK] >> _NWRP_SHIFT + sector % _BANK & 1

    def _store_options(self, offset: int, value: int, lanes: int) -> None:
        if self._options[0] & _OPTLOCK:
            return
        index = 0 if offset == _OPTCR else 1
        wanted = self._options[index] & ~lanes | value
        if index:
            self._options[1] = wanted
            return
        self._options[0] = wanted & ~(_RDP_MASK | _OPTSTRT) | _LEVEL_0
        if wanted & _OPTSTRT:
            self._stored_options = [self._options[0] | _OPTLOCK, self._options[1]]
            self._status |= BSY
        if wanted & _OPTLOCK:
            self._option_unlocking.close()


_L4_ACR, _L4_KEYR = 0x00, 0x08

# SR
PROGERR = 1 << 3
L4_PGAERR = 1 << 5
SIZERR = 1 << 6
PGSERR = 1 << 7
_L4_CLEARED_BY_WRITING = 0xC3FB

# CR
_L4_PG = 1 << 0
_PER = 1 << 1
_L4_MER1 = 1 << 2
_PNB_SHIFT = 3
_BKER = 1 << 11
_MER2 = 1 << 15
_L4_STRT = 1 << 16
_L4_OPTLOCK = 1 << 30
_L4_CR_MASK = 0x0704FFFF
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
        self._control |= _L4_OPTLOCK
        self._first: tuple[int, int] | None = None  # offset and value of a double word's lower half

    def load(self, offset: int) -> int:
        if offset == self.status:
            return self._take_status()
        known = {_L4_ACR: self._access_control, self.control: self._control, self.option_register: self._options}
        return {**self.protected, **known}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _L4_ACR:
            self._access_control = self._access_control & ~lanes | value
        elif offset == _L4_KEYR:
            if self._unlocking.take(value):
                self._control &= ~LOCK
        elif offset == self.option_keys:
            if self._option_unlocking.take(value):
                self._control &= ~_L4_OPTLOCK
        elif offset == self.status:
            self._status &= ~(value & _L4_CLEARED_BY_WRITING)
            self._drive_line()
        elif offset == self.control and not self._control & LOCK:
            self._store_control(value, lanes)

    def program(self, address: int, size: int, value: int) -> None:
        """Take a write to the flash: a word, of which two make the double word that is programmed."""
        offset = address - self._memory.start
        self._status &= ~BSY  # the bus has waited for the operation before
        first, self._first = self._first, None
        if self._control & LOCK or not self._control & _L4_PG or self._status & _L4_CLEARED_BY_WRITING & ~EOP:
            self._fail(PGSERR)
        elif size != 4:
            self._fail(SIZERR)
        elif offset % _DOUBLE_WORD == 0:
            self._first = (offset, value)
        elif first is None or first[0] + size != offset:
            self._fail(L4_PGAERR)
        else:
            self._write(first[0], first[1] | value << 32)

    def _write(self, offset: int, value: int) -> None:
        """Program a double word: one that is erased, or any with zeros (RM0432, 3.3.7)."""
        if value and self._memory.bytes[offset : offset + _DOUBLE_WORD] != b"\xff" * _DOUBLE_WORD:
            self._fail(PROGERR)
        else:
            self._replace(offset, value.to_bytes(_DOUBLE_WORD, "little"))

    def _store_control(self, value: int, lanes: int) -> None:
        mask = _L4_CR_MASK & lanes
        self._control = self._control & ~mask | value & mask
        if value & _L4_STRT:
            self._erase()
        if value & LOCK:
            self._control |= LOCK
            self._unlocking.close()
        if value & _L4_OPTLOCK:
            self._control |= _L4_OPTLOCK
            self._option_unlocking.close()

    def _erase(self) -> None:
        pages: list[tuple[int, int]] = []
        if self._control & _PER:
            number = self._control >> _PNB_SHIFT & 0xFF
            pages = self._sectors[number + (self._pages_a_bank if self._control & _BKER else 0) :][:1]
        if self._control & _L4_MER1:
            pages += self._sectors[: self._pages_a_bank]
        if self._control & _MER2:
            pages += self._sectors[self._pages_a_bank :]
        if self._control & _L4_PG or not pages:
            self._fail(PGSERR)
        for start, end in pages if not self._control & _L4_PG else ():
            self._replace(start, b"\xff" * (end - start))


class L5FlashController(L4FlashController):
    """The same with NSKEYR, NSSR and NSCR."""

    option_keys, status, control, option_register = 0x10, 0x20, 0x28, 0x40
    protected: Mapping[int, int] = dict.fromkeys((0x58, 0x5C, 0x68, 0x6C), 0xFF80FFFF)
