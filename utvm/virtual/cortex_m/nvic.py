# SPDX-License-Identifier: Apache-2.0
"""The registers of the interrupt controller (ARM DDI 0403E, B3.4)."""

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m.exceptions import PRIORITY_BITS, Exceptions
from utvm.virtual.cortex_m.faults import FIRST_INTERRUPT

_ENABLE = 0x100
_DISABLE = 0x180
_PEND = 0x200
_UNPEND = 0x280
_ACTIVE = 0x300
_PRIORITY = 0x400
_BANK_BYTES = 0x80
SOFTWARE_TRIGGER = 0xF00


class Nvic(Device):
    """ISER, ICER, ISPR, ICPR, IABR, IPR and STIR, at their offsets from 0xE000E000."""

    def __init__(self, exceptions: Exceptions) -> None:
        self._exceptions = exceptions

    def load(self, offset: int) -> int:
        if offset >= _PRIORITY:
            return self._load_priorities(offset)
        state = self._exceptions
        bank = offset & -_BANK_BYTES
        members = {_ENABLE: state.enabled, _DISABLE: state.enabled, _ACTIVE: state.active}.get(bank, state.pending)
        first = FIRST_INTERRUPT + 8 * (offset - bank)
        return sum(1 << bit for bit in range(32) if first + bit in members)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == SOFTWARE_TRIGGER:
            if value & 0x1FF < self._exceptions.interrupts:
                self._exceptions.pend(FIRST_INTERRUPT + (value & 0x1FF))
            return
        if offset >= _PRIORITY:
            self._store_priorities(offset, value, lanes)
            return
        bank = offset & -_BANK_BYTES
        first = FIRST_INTERRUPT + 8 * (offset - bank)
        end = FIRST_INTERRUPT + self._exceptions.interrupts
        for number in (first + bit for bit in range(32) if value >> bit & 1 and first + bit < end):
            if bank in (_ENABLE, _DISABLE):
                self._exceptions.enable(number, bank == _ENABLE)
            elif bank == _PEND:
                self._exceptions.pend(number)
            elif bank == _UNPEND:
                self._exceptions.unpend(number)

    def _load_priorities(self, offset: int) -> int:
        first = FIRST_INTERRUPT + offset - _PRIORITY
        priorities = self._exceptions.priority[first : first + 4]
        return int.from_bytes(bytes(priorities), "little")

    def _store_priorities(self, offset: int, value: int, lanes: int) -> None:
        first = FIRST_INTERRUPT + offset - _PRIORITY
        for byte in range(4):
            number = first + byte
            if lanes >> 8 * byte & 0xFF and number < FIRST_INTERRUPT + self._exceptions.interrupts:
                self._exceptions.priority[number] = value >> 8 * byte & PRIORITY_BITS
