# SPDX-License-Identifier: Apache-2.0
"""The embedded flash of the STM32H743 and its controller (RM0433, section 4): words of 256 bits, two banks.

Each bank has keys, control, status and a buffer for the word being written. Operations complete at once; BSY and
QW are set in the first read of SR. A word programmed twice without an erase holds the AND of both values; the chip
would report an ECC error at each read, the model sets DBECCERR at once. Protected areas and the CRC unit are not
modelled.
"""

from collections.abc import Callable

from utvm.virtual.bus import Device, MemoryBank
from utvm.virtual.stm32.flash import KEYS, OPTION_KEYS, KeySequence, ReadProtection

_ACR, _KEYR, _OPTKEYR, _CR, _SR, _CCR, _OPTCR, _OPTSR_CUR, _OPTSR_PRG = range(0x00, 0x24, 4)
# Protected areas are empty, and the bits of sectors are 1.
_OPTIONS = {0x28: 0x000000FF, 0x2C: 0x000000FF, 0x30: 0x000000FF, 0x34: 0x000000FF, 0x38: 0xFF, 0x3C: 0xFF}
_BOOT = {0x40: 0x1FF00800, 0x44: 0x1FF00800}
_SECOND_BANK = 0x100

# CR
_LOCK, _PG, _SER, _BER, _FW, _START = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 6, 1 << 7
_SNB_SHIFT = 8
_CR_MASK = 0x0FEF873E
_CR_AFTER_RESET = 0x00000031

# SR
_BSY, _WBNE, _QW, _EOP = 1 << 0, 1 << 1, 1 << 2, 1 << 16
_PGSERR, _STRBERR, _INCERR, _DBECCERR = 1 << 18, 1 << 19, 1 << 21, 1 << 26
_CLEARED_BY_CCR = 0x0FEF0000

_OPTLOCK, _OPTSTART = 1 << 0, 1 << 1
_WORD = 32


class _Bank:
    def __init__(self, start: int, sectors: list[tuple[int, int]]) -> None:
        self.start = start
        self.sectors = sectors
        self.reset()

    def reset(self) -> None:
        self.control = _CR_AFTER_RESET
        self.status = 0
        self.lock = KeySequence(KEYS)
        self.word = 0
        self.buffer: dict[int, int] = {}  # bytes by offset in the word

    def read_status(self) -> int:
        status = self.status | (_WBNE if self.buffer else 0)
        self.status &= ~(_BSY | _QW)
        return status

    def interrupts(self) -> bool:
        """True if an enabled flag is set: enables in CR are at the bits of their flags in SR."""
        return bool(self.status & self.control & _CLEARED_BY_CCR)


class H7FlashController(ReadProtection, Device):
    """FLASH_ACR, OPTKEYR, OPTCR, OPTSR, and KEYR, CR, SR and CCR of both banks.

    Args:
        memory: the flash; half of its sectors belong to each bank.
        options: OPTSR as the chip is delivered.
        changed: called with start and end address of a change of the flash.
    """

    protection_shift = 8

    def __init__(
        self, memory: MemoryBank, options: int, changed: Callable[[int, int], None], set_line: Callable[[bool], None]
    ) -> None:
        self._memory = memory
        self._fixed = {**_OPTIONS, **_BOOT, _OPTSR_CUR: options, _OPTSR_PRG: options}
        self.option_word = options
        self._changed = changed
        self._set_line = set_line
        size, half = memory.region.sectors[0], len(memory.region.sectors) // 2
        sectors = [(number * size, (number + 1) * size) for number in range(2 * half)]
        self._banks = (_Bank(0, sectors[:half]), _Bank(half * size, sectors[half:]))
        self.reset()

    def reset(self) -> None:
        self._access_control = 0x37
        self._option_control = _OPTLOCK
        self._option_lock = KeySequence(OPTION_KEYS)
        for bank in self._banks:
            bank.reset()
        self._drive_line()

    def load(self, offset: int) -> int:
        bank, offset = self._banks[offset // _SECOND_BANK & 1], offset % _SECOND_BANK
        if offset == _SR:
            return bank.read_status()
        known = {_ACR: self._access_control, _CR: bank.control, _OPTCR: self._option_control}
        return {**self._fixed, **known}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        bank, offset = self._banks[offset // _SECOND_BANK & 1], offset % _SECOND_BANK
        if offset == _ACR:
            self._access_control = self._access_control & ~lanes | value
        elif offset == _KEYR:
            if bank.lock.accept(value):
                bank.control &= ~_LOCK
        elif offset == _OPTKEYR:
            if self._option_lock.accept(value):
                self._option_control &= ~_OPTLOCK
        elif offset == _CCR:
            bank.status &= ~(value & _CLEARED_BY_CCR)
        elif offset == _CR and not bank.control & _LOCK:
            self._store_control(bank, value, lanes)
        elif offset == _OPTSR_PRG and not self._option_control & _OPTLOCK:
            self._fixed[_OPTSR_PRG] = self._fixed[_OPTSR_PRG] & ~lanes | value
        elif offset == _OPTCR:
            if value & _OPTSTART and not self._option_control & _OPTLOCK:
                word = self.program_level(self._fixed[_OPTSR_PRG])
                self._fixed.update({_OPTSR_CUR: word, _OPTSR_PRG: word})
            if value & _OPTLOCK:
                self._option_control |= _OPTLOCK
                self._option_lock.close()
        self._drive_line()

    def erase_all(self) -> None:
        for bank in self._banks:
            start, end = bank.sectors[0][0], bank.sectors[-1][1]
            self._replace(bank, start, b"\xff" * (end - start))

    def program(self, address: int, size: int, value: int) -> None:
        """Add bytes to a word, which is programmed when it is complete."""
        offset = address - self._memory.start
        bank = self._banks[offset >= self._banks[1].start]
        bank.status &= ~(_BSY | _QW)  # the bus has waited for the previous operation
        word = offset // _WORD * _WORD
        offsets = range(offset - word, offset - word + size)
        if bank.control & _LOCK or not bank.control & _PG:
            bank.status |= _PGSERR
        elif bank.buffer and bank.word != word:
            bank.status |= _INCERR
            bank.buffer.clear()
        elif any(inside in bank.buffer for inside in offsets):
            bank.status |= _STRBERR
        else:
            bank.word = word
            bank.buffer.update(zip(offsets, value.to_bytes(size, "little"), strict=True))
            if len(bank.buffer) == _WORD:
                self._write(bank)
        self._drive_line()

    def _write(self, bank: _Bank) -> None:
        """Program the word in the buffer; missing bytes stay ones."""
        old = self._memory.bytes[bank.word : bank.word + _WORD]
        if old != b"\xff" * _WORD:
            bank.status |= _DBECCERR
        new = bytes(bank.buffer.get(inside, 0xFF) & byte for inside, byte in enumerate(old))
        bank.buffer.clear()
        self._replace(bank, bank.word, new)

    def _store_control(self, bank: _Bank, value: int, lanes: int) -> None:
        mask = _CR_MASK & lanes
        bank.control = bank.control & ~mask | value & mask
        if value & _FW and bank.buffer:
            self._write(bank)
        if not bank.control & _PG:
            bank.buffer.clear()
        if value & _START:
            self._erase(bank)
        if value & _LOCK:
            bank.control |= _LOCK
            bank.lock.close()

    def _erase(self, bank: _Bank) -> None:
        number = bank.control >> _SNB_SHIFT & 7
        sectors = bank.sectors if bank.control & _BER else bank.sectors[number : number + 1]
        if bank.control & _PG or not bank.control & (_SER | _BER) or not sectors:
            bank.status |= _PGSERR
            return
        start, end = sectors[0][0], sectors[-1][1]
        self._replace(bank, start, b"\xff" * (end - start))

    def _replace(self, bank: _Bank, offset: int, data: bytes) -> None:
        self._memory.bytes[offset : offset + len(data)] = data
        self._changed(self._memory.start + offset, self._memory.start + offset + len(data))
        bank.status |= _BSY | _QW | _EOP

    def _drive_line(self) -> None:
        self._set_line(any(bank.interrupts() for bank in self._banks))
