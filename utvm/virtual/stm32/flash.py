# SPDX-License-Identifier: Apache-2.0
"""The embedded flash of the STM32F4 and F7 and its controller (RM0385, section 3; RM0090, section 3).

More than 12 sectors are two banks, as of an STM32F42x with 2 MiB: numbers of the second begin at 16, MER1 erases
it, and OPTCR1 protects it (RM0090, 3.9.8 to 3.9.11).

An operation is over at once, but shows BSY to the first look at SR, so that software that does not wait is found
out. Read protection cannot be turned on: the level stays 0.
"""

from collections.abc import Callable

from utvm.virtual.bus import MemoryBank
from utvm.virtual.stm32.embedded_flash import BSY, EOP, EOPIE, ERRIE, LOCK, OPERR, EmbeddedFlash

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
