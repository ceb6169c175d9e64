# SPDX-License-Identifier: Apache-2.0
"""The embedded flash of STM32s and its controller.

STM32F4 and F7: RM0385, section 3; RM0090, section 3. STM32L4: RM0432, section 3. STM32L5: RM0438, section 6.

An operation completes at once, but BSY is set in the first read of SR, which exposes software that does not wait.
Read protection hides the flash from debuggers; leaving level 1 erases it. Level 2, which is permanent, is refused.
"""

import logging
from collections.abc import Callable, Mapping
from itertools import accumulate

from utvm.virtual.bus import Device, MemoryBank

_log = logging.getLogger(__name__)
KEYS = (0x45670123, 0xCDEF89AB)
OPTION_KEYS = (0x08192A3B, 0x4C5D6E7F)
_LEVEL_0, _LEVEL_2 = 0xAA, 0xCC

# SR
_EOP, _OPERR, _PGAERR, _BSY = 1 << 0, 1 << 1, 1 << 5, 1 << 16

# CR
_PG, _STRT, _EOPIE, _ERRIE, _LOCK = 1 << 0, 1 << 16, 1 << 24, 1 << 25, 1 << 31

Sectors = list[tuple[int, int]]
"""Start and end offset of sectors."""


class KeySequence:
    """Two keys in order open a lock; any other write keeps it closed until the next reset."""

    def __init__(self, keys: tuple[int, int]) -> None:
        self._keys = keys
        self._expected = list(keys)
        self._blocked = False

    def close(self) -> None:
        """Expect both keys again."""
        self._expected = list(self._keys)

    def accept(self, key: int) -> bool:
        """Process a key. True if the lock opens."""
        if self._blocked or not self._expected or key != self._expected.pop(0):
            self._blocked = True
            return False
        return not self._expected


class ReadProtection:
    """RDP, the byte at ``protection_shift`` of ``option_word``: 0xAA is level 0, 0xCC level 2, others level 1.

    A level takes effect at once, instead of at the next power-up.
    """

    protection_shift = 0
    option_word: int

    @property
    def protected(self) -> bool:
        return self.option_word >> self.protection_shift & 0xFF != _LEVEL_0

    def erase_all(self) -> None:
        raise NotImplementedError

    def program_level(self, word: int) -> int:
        """Apply the level of a word that is programmed; return the word that the chip then has."""
        mask, level = 0xFF << self.protection_shift, word >> self.protection_shift & 0xFF
        if level == _LEVEL_2:
            _log.warning("read protection of level 2 would lock the chip permanently: the level is not changed")
            word = word & ~mask | self.option_word & mask
        elif self.protected and level == _LEVEL_0:
            self.erase_all()
        self.option_word = word
        return word


class EmbeddedFlash(ReadProtection, Device):
    """A flash controller; ``changed`` is called with start and end address of a change of the flash.

    Attributes:
        keys: offset of KEYR; likewise those of OPTKEYR, SR and CR. ACR is at 0.
        access_mask: writable bits of ACR; likewise of CR; ``clearable`` are the bits of SR that ones clear.
        sequence_error: the error of an impossible erase.
    """

    keys: int
    option_keys: int
    status: int
    control: int
    access_mask = 0xFFFFFFFF
    access_at_reset = 0
    control_mask: int
    clearable: int
    sequence_error = 1 << 7

    def __init__(
        self, memory: MemoryBank, options: int, changed: Callable[[int, int], None], set_line: Callable[[bool], None]
    ) -> None:
        self._memory = memory
        self._changed = changed
        self._set_line = set_line
        ends = list(accumulate(memory.region.sectors))
        self._sectors: Sectors = list(zip([0, *ends[:-1]], ends, strict=True))
        self._stored_options = [options]
        self.option_word = options
        self.reset()

    def reset(self) -> None:
        self._access_control = self.access_at_reset
        self._control = _LOCK
        self._status = 0
        self._lock = KeySequence(KEYS)
        self._option_lock = KeySequence(OPTION_KEYS)
        self._options = list(self._stored_options)
        self._set_line(False)

    def load(self, offset: int) -> int:
        if offset == self.status:
            status = self._status
            self._status &= ~_BSY
            return status
        return {0: self._access_control, self.control: self._control, **self._option_values()}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == 0:
            mask = self.access_mask & lanes
            self._access_control = self._access_control & ~mask | value & mask
        elif offset == self.keys:
            if self._lock.accept(value):
                self._control &= ~_LOCK
        elif offset == self.option_keys:
            if self._option_lock.accept(value):
                self._unlock_options()
        elif offset == self.status:
            self._status &= ~(value & self.clearable)
            self._drive_line()
        elif offset == self.control:
            if not self._control & _LOCK:
                self._store_control(value, lanes)
        else:
            self._store_options(offset, value, lanes)

    def program(self, address: int, size: int, value: int) -> None:
        """Handle a write to the flash."""
        self._status &= ~_BSY  # the bus has waited for the previous operation
        self._program(address - self._memory.start, size, value)

    def _program(self, offset: int, size: int, value: int) -> None:
        raise NotImplementedError

    def _option_values(self) -> Mapping[int, int]:
        raise NotImplementedError

    def _unlock_options(self) -> None:
        raise NotImplementedError

    def _store_options(self, offset: int, value: int, lanes: int) -> None:
        """Write an option register."""

    def _store_control(self, value: int, lanes: int) -> None:
        mask = self.control_mask & lanes
        self._control = self._control & ~mask | value & mask
        if value & _STRT:
            self._control &= ~_STRT
            self._erase()
        if value & _LOCK:
            self._control |= _LOCK
            self._lock.close()

    def erase_all(self) -> None:
        self._replace(0, b"\xff" * self._memory.region.size)

    def _selected_sectors(self) -> Sectors:
        raise NotImplementedError

    def _is_protected(self, offset: int) -> bool:
        return False

    def _erase(self) -> None:
        sectors = self._selected_sectors()
        if self._control & _PG or not sectors:
            self._fail(self.sequence_error)
        elif any(self._is_protected(start) for start, _ in sectors):
            self._fail(_WRPERR)
        else:
            for start, end in sectors:
                self._replace(start, b"\xff" * (end - start))

    def _replace(self, offset: int, data: bytes) -> None:
        self._memory.bytes[offset : offset + len(data)] = data
        self._changed(self._memory.start + offset, self._memory.start + offset + len(data))
        self._status |= _BSY | (_EOP if self._control & _EOPIE else 0)
        self._drive_line()

    def _fail(self, error: int) -> None:
        self._status |= error | (_OPERR if self._control & _ERRIE else 0)
        self._drive_line()

    def _drive_line(self) -> None:
        # EOP and OPERR are set only while their interrupts are enabled.
        self._set_line(bool(self._status & (_EOP | _OPERR)))


_OPTCR, _OPTCR1 = 0x14, 0x18
_WRPERR, _PGPERR, _ERSERR = 1 << 4, 1 << 6, 1 << 7
_SER, _MER, _MER_BANK_2 = 1 << 1, 1 << 2, 1 << 15
_SNB_SHIFT, _PSIZE_SHIFT = 3, 8
_CONTROL_TWO_BANKS = 0x10 << _SNB_SHIFT | _MER_BANK_2
_OPTLOCK, _OPTSTRT = 1 << 0, 1 << 1
_OPTCR1_DEFAULT, _OPTCR1_TWO_BANKS = 0x00400080, 0x0FFF0000
_NWRP_SHIFT = 16
_BANK = 12  # sectors
_SECOND_BANK = 16  # value of SNB of its first sector
_ROW = 16  # bytes; a programming operation must not cross rows


class FlashController(EmbeddedFlash):
    """FLASH_ACR, KEYR, OPTKEYR, SR, CR, OPTCR and OPTCR1 of the STM32F4 and F7.

    More than 12 sectors are two banks, as in an STM32F42x with 2 MiB: SNB of the second begins at 16, MER1 erases
    it, and OPTCR1 protects it (RM0090, 3.9.8 to 3.9.11).
    """

    keys, option_keys, status, control = 0x04, 0x08, 0x0C, 0x10
    access_mask = 0x0000030F | 1 << 11
    clearable = _EOP | _OPERR | _WRPERR | _PGAERR | _PGPERR | _ERSERR
    protection_shift = 8
    control_mask = _PG | _SER | _MER | 0xF << _SNB_SHIFT | 3 << _PSIZE_SHIFT | _STRT | _EOPIE | _ERRIE

    def reset(self) -> None:
        two_banks = len(self._sectors) > _BANK
        if len(self._stored_options) == 1:
            self._stored_options.append(_OPTCR1_TWO_BANKS if two_banks else _OPTCR1_DEFAULT)
        if two_banks:
            self.control_mask |= _CONTROL_TWO_BANKS
        super().reset()

    def _option_values(self) -> Mapping[int, int]:
        return {_OPTCR: self._options[0], _OPTCR1: self._options[1]}

    def _unlock_options(self) -> None:
        self._options[0] &= ~_OPTLOCK

    def _program(self, offset: int, size: int, value: int) -> None:
        if self._control & (_LOCK | _SER | _MER | _MER_BANK_2) or not self._control & _PG:
            self._fail(_ERSERR)
        elif self._is_protected(offset):
            self._fail(_WRPERR)
        elif offset % _ROW + size > _ROW or offset % size:
            self._fail(_PGAERR)
        elif size != 1 << (self._control >> _PSIZE_SHIFT & 3):
            self._fail(_PGPERR)
        else:
            old = int.from_bytes(self._memory.bytes[offset : offset + size], "little")
            self._replace(offset, (old & value).to_bytes(size, "little"))

    def _selected_sectors(self) -> Sectors:
        banks = self._sectors[:_BANK], self._sectors[_BANK:]
        if self._control & (_MER | _MER_BANK_2):
            return [*banks[0] * bool(self._control & _MER), *banks[1] * bool(self._control & _MER_BANK_2)]
        bank, sector = divmod(self._control >> _SNB_SHIFT & 0x1F, _SECOND_BANK)
        return banks[bank][sector : sector + 1] if self._control & _SER else []

    def _is_protected(self, offset: int) -> bool:
        sector = next(number for number, (start, end) in enumerate(self._sectors) if start <= offset < end)
        return not self._options[sector // _BANK] >> _NWRP_SHIFT + sector % _BANK & 1

    def _store_options(self, offset: int, value: int, lanes: int) -> None:
        if offset not in (_OPTCR, _OPTCR1) or self._options[0] & _OPTLOCK:
            return
        index = 0 if offset == _OPTCR else 1
        options = self._options[index] & ~lanes | value
        if index:
            self._options[1] = options
            return
        self._options[0] = options & ~_OPTSTRT
        if options & _OPTSTRT:
            self._options[0] = self.program_level(self._options[0])
            self._stored_options = [self._options[0] | _OPTLOCK, self._options[1]]
            self._status |= _BSY
        if options & _OPTLOCK:
            self._option_lock.close()


_PROGERR, _SIZERR, _PGSERR = 1 << 3, 1 << 6, 1 << 7
_PER, _MER1, _BKER, _MER2, _FSTPG, _L4_OPTLOCK = 1 << 1, 1 << 2, 1 << 11, 1 << 15, 1 << 18, 1 << 30
_L4_OPTSTRT = 1 << 17
_PNB_SHIFT = 3
_DOUBLE_WORD = 8


class L4FlashController(EmbeddedFlash):
    """FLASH_ACR, KEYR, OPTKEYR, SR, CR and OPTR of the STM32L4: double words, pages, two banks.

    Sectors of the memory are its pages, those of the second bank last. Fast programming is modelled as
    double words. Protected areas are not modelled: their registers (``areas``) hold empty ones, which start
    after their end.
    """

    keys, option_keys, status, control, option_register = 0x08, 0x0C, 0x10, 0x14, 0x20
    access_at_reset = 0x600
    clearable = 0xC3FB
    control_mask = 0x0704FFFF
    areas: Mapping[int, int] = dict.fromkeys((0x2C, 0x30, 0x4C, 0x50), 0x000000FF)

    def reset(self) -> None:
        super().reset()
        self._control |= _L4_OPTLOCK
        self._first: tuple[int, int] | None = None  # offset and value of a double word's lower half

    def _option_values(self) -> Mapping[int, int]:
        return {**self.areas, self.option_register: self._options[0]}

    def _unlock_options(self) -> None:
        self._control &= ~_L4_OPTLOCK

    def _program(self, offset: int, size: int, value: int) -> None:
        """Collect two words, and program the double word: an erased one, or any with zeros (RM0432, 3.3.7)."""
        first, self._first = self._first, None
        if self._control & _LOCK or not self._control & (_PG | _FSTPG) or self._status & self.clearable & ~_EOP:
            self._fail(_PGSERR)
        elif size != 4:
            self._fail(_SIZERR)
        elif offset % _DOUBLE_WORD == 0:
            self._first = (offset, value)
        elif first is None or first[0] + size != offset:
            self._fail(_PGAERR)
        else:
            start, double_word = first[0], first[1] | value << 32
            if double_word and self._memory.bytes[start : start + _DOUBLE_WORD] != b"\xff" * _DOUBLE_WORD:
                self._fail(_PROGERR)
            else:
                self._replace(start, double_word.to_bytes(_DOUBLE_WORD, "little"))

    def _store_options(self, offset: int, value: int, lanes: int) -> None:
        if offset == self.option_register and not self._control & _L4_OPTLOCK:
            self._options[0] = self._options[0] & ~lanes | value

    def _store_control(self, value: int, lanes: int) -> None:
        super()._store_control(value, lanes)
        if value & _L4_OPTSTRT and not self._control & _L4_OPTLOCK:
            self._options[0] = self._stored_options[0] = self.program_level(self._options[0])
            self._status |= _BSY
        if value & _L4_OPTLOCK:
            self._control |= _L4_OPTLOCK
            self._option_lock.close()

    def _selected_sectors(self) -> Sectors:
        half = len(self._sectors) // 2
        pages: Sectors = []
        if self._control & _PER:
            number = self._control >> _PNB_SHIFT & 0xFF
            pages = self._sectors[number + (half if self._control & _BKER else 0) :][:1]
        if self._control & _MER1:
            pages += self._sectors[:half]
        if self._control & _MER2:
            pages += self._sectors[half:]
        return pages


class L5FlashController(L4FlashController):
    """The STM32L5's controller with TZEN = 0: NSKEYR, NSSR and NSCR."""

    option_keys, status, control, option_register = 0x10, 0x20, 0x28, 0x40
    areas: Mapping[int, int] = dict.fromkeys((0x58, 0x5C, 0x68, 0x6C), 0xFF80FFFF)
