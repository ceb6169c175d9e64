# SPDX-License-Identifier: Apache-2.0
"""A USART of the STM32, asynchronous: the STM32F7's (RM0385, section 31) and the STM32F4's (RM0090, section 30).

A character takes ten bit times of BRR cycles of its bus (of an LPUART, BRR / 256), so flags, interrupts and DMA
requests have the timing of the chip.
"""

from utvm.virtual.stm32.clocks import rates_on
from utvm.virtual.wiring import SerialDevice, Wiring

_RQR, _ISR, _ICR, _RDR, _TDR = range(0x18, 0x2C, 4)
# The older one's
_SR, _DR = 0x00, 0x04

# CR1
_RE, _TE, _IDLEIE, _RXNEIE, _TCIE, _TXEIE = (1 << bit for bit in range(2, 8))

# CR3
_EIE, _DMAR, _DMAT = 1 << 0, 1 << 6, 1 << 7

# ISR
_ORE, _IDLE, _RXNE, _TC, _TXE = (1 << bit for bit in range(3, 8))
_TEACK, _REACK = 1 << 21, 1 << 22

_CLEARED_BY_ICR = _ORE | _IDLE | _TC | 0x00020B07  # the model never sets the others
_RXFRQ = 1 << 3
_BITS_PER_CHARACTER = 10


class Usart(SerialDevice):
    """A USART.

    ``control1`` is the offset of CR1, likewise CR3 and BRR; ``enable`` is the bit of CR1 that enables it.
    """

    control1, control3, baud_rate = 0x00, 0x08, 0x0C
    enable = 1 << 0

    def __init__(self, wiring: Wiring, address: int) -> None:
        self._wiring, self._address = wiring, address
        super().__init__(wiring.clock, wiring.send, wiring.set_line)

    def reset(self) -> None:
        super().reset()
        self._registers: dict[int, int] = {}
        self._flags = _TXE | _TC
        self._received = 0
        self._waiting: int | None = None  # TDR, while the shift register is busy
        self._idle_at: int | None = None  # when the line will have been idle for a character
        self._ratio = 1  # core cycles per cycle of the bus
        self._set_flags(0, 0)

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _ISR:
            control = self._registers.get(self.control1, 0)
            ready = (_TEACK if control & _TE else 0) | (_REACK if control & _RE else 0)
            return self._flags | (ready if control & self.enable else 0)
        if offset == _RDR:
            self._set_flags(0, _RXNE)
            return self._received
        return self._registers.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == _TDR:
            self._transmit(value & 0xFF)
        elif offset == _ICR:
            self._set_flags(0, value & _CLEARED_BY_ICR)
        elif offset == _RQR:
            self._set_flags(0, _RXNE if value & _RXFRQ else 0)
        elif offset not in (_ISR, _RDR):
            self._store_control(offset, value, lanes)
        self._clock.reschedule()

    def _store_control(self, offset: int, value: int, lanes: int) -> None:
        self._registers[offset] = self._registers.get(offset, 0) & ~lanes | value
        self._ratio = rates_on(self._wiring.bus).bus(self._address)
        self._set_flags(0, 0)
        self._await_byte(self._clock.now())

    def next_event(self) -> int | None:
        idle_at = self._idle_at if self._idle_at and self._registers.get(self.control1, 0) & _IDLEIE else None
        event = super().next_event()
        return event if idle_at is None else idle_at if event is None else min(event, idle_at)

    def expire(self) -> None:
        super().expire()
        if self._idle_at is not None and self._idle_at <= self._clock.now():
            self._idle_at = None
            self._set_flags(_IDLE, 0)

    def _finish_sending(self, now: int) -> None:
        if self._waiting is None:
            self._set_flags(_TC, 0)
        else:
            byte, self._waiting = self._waiting, None
            self._send_byte(bytes([byte]), now)
            self._set_flags(_TXE, 0)

    def _handle_byte(self, byte: int, now: int) -> None:
        self._idle_at = now + self._character_ticks()
        if self._flags & _RXNE:
            self._set_flags(_ORE, 0)  # the byte is lost (RM0385, 31.5.3)
        else:
            self._received = byte
            self._set_flags(_RXNE, 0)

    def _await_byte(self, start: int) -> None:
        super()._await_byte(start)
        if self._arrives_at is not None:
            self._idle_at = None

    def _is_receiving(self) -> bool:
        return self._is_enabled(_RE)

    def _is_enabled(self, direction: int) -> bool:
        needed = self.enable | direction
        return self._registers.get(self.control1, 0) & needed == needed

    def _character_ticks(self) -> int:
        ticks = max(1, self._registers.get(self.baud_rate, 0)) * self._ratio
        return _BITS_PER_CHARACTER * (ticks >> 8 if self._wiring.name.startswith("LP") else ticks)

    def _transmit(self, byte: int) -> None:
        if not self._is_enabled(_TE):
            return
        if self._sent_at is None:
            self._send_byte(bytes([byte]), self._clock.now())
            self._set_flags(0, _TC)
        else:
            self._waiting = byte
            self._set_flags(0, _TXE | _TC)

    def _set_flags(self, on: int, off: int) -> None:
        self._flags = self._flags & ~off | on
        flags, control = self._flags, self._registers.get(self.control1, 0)
        control3 = self._registers.get(self.control3, 0)
        interrupts = (control & _RXNEIE and flags & (_RXNE | _ORE)) or flags & control & (_IDLE | _TCIE | _TXEIE)
        self._set_line(bool(interrupts or (control3 & _EIE and flags & _ORE)))
        # Last: a DMA controller that serves the request changes the flags at once.
        request, name = self._wiring.signals.set, self._wiring.name
        request(f"{name}_RX", bool(control3 & _DMAR and flags & _RXNE))
        request(f"{name}_TX", bool(control3 & _DMAT and self._flags & _TXE and self._is_enabled(_TE)))


class OldUsart(Usart):
    """A USART with SR and DR (RM0090, 30.6): a read of SR and then of DR clears ORE and IDLE."""

    control1, control3, baud_rate = 0x0C, 0x14, 0x08
    enable = 1 << 13

    def reset(self) -> None:
        self._flags_read = 0  # by the last read of SR
        super().reset()

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _SR:
            self._flags_read = self._flags
            return self._flags
        if offset == _DR:
            self._set_flags(0, _RXNE | self._flags_read & (_ORE | _IDLE))
            self._flags_read = 0
            return self._received
        return self._registers.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == _DR:
            self._set_flags(0, self._flags_read & _TC)
            self._transmit(value & 0xFF)
        elif offset == _SR:
            self._set_flags(0, ~value & (_RXNE | _TC))
        else:
            self._store_control(offset, value, lanes)
        self._clock.reschedule()
