# SPDX-License-Identifier: Apache-2.0
"""A USART of the STM32, asynchronous: the STM32F7's (RM0385, section 31) and the STM32F4's (RM0090, section 30).

A character takes ten bit times of BRR ticks each way, so flags, interrupts and DMA requests come when they would.
The core clock feeds it. What is sent is handed out when it enters the shift register.
"""

from collections import deque
from collections.abc import Callable

from utvm.virtual.bus import SerialDevice
from utvm.virtual.wiring import Clock

_RQR = 0x18
_ISR = 0x1C
_ICR = 0x20
_RDR = 0x24
_TDR = 0x28

# The older one's
_SR = 0x00
_DR = 0x04

# CR1
_RE = 1 << 2
_TE = 1 << 3
_IDLEIE = 1 << 4
_RXNEIE = 1 << 5
_TCIE = 1 << 6
_TXEIE = 1 << 7

# CR3
_EIE = 1 << 0
_DMAR = 1 << 6
_DMAT = 1 << 7

# ISR
ORE = 1 << 3
IDLE = 1 << 4
RXNE = 1 << 5
TC = 1 << 6
TXE = 1 << 7
_TEACK = 1 << 21
_REACK = 1 << 22
_AFTER_RESET = TXE | TC

_CLEARED_BY_ICR = ORE | IDLE | TC | 0x00020B07  # the rest are flags that this model never sets
_RXFRQ = 1 << 3
_BITS_A_CHARACTER = 10


class Usart(SerialDevice):
    """One USART and the line it is on.

    Attributes:
        control1: offset of CR1; likewise CR3 and BRR.
        enable: the bit of CR1 that switches it on.

    Args:
        send: receives each byte sent.
        set_line: drives the interrupt line.
        ask_to_receive: raises and withdraws the DMA request for a byte that has come.
        ask_to_send: raises and withdraws the DMA request for a byte to send.
    """

    control1, control3, baud_rate = 0x00, 0x08, 0x0C
    enable = 1 << 0

    def __init__(
        self,
        clock: Clock,
        send: Callable[[bytes], None],
        set_line: Callable[[bool], None],
        ask_to_receive: Callable[[bool], None],
        ask_to_send: Callable[[bool], None],
    ) -> None:
        self._clock = clock
        self._send = send
        self._set_line = set_line
        self._ask_to_receive = ask_to_receive
        self._ask_to_send = ask_to_send
        self._on_the_line: deque[int] = deque()
        self.reset()

    def reset(self) -> None:
        self._registers: dict[int, int] = {}
        self._flags = _AFTER_RESET
        self._received = 0
        self._waiting: int | None = None  # what TDR holds while the shift register is busy
        self._sent_at: int | None = None  # when the shift register will be empty
        self._arrives_at: int | None = None  # when the next byte on the line is complete
        self._idle_at: int | None = None  # when the line will have been idle for a character after one
        self._on_the_line.clear()
        self._set_flags(0, 0)

    def receive(self, data: bytes) -> None:
        self.expire()
        self._on_the_line.extend(data)
        self._await_byte()
        self._clock.timers_changed()

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _ISR:
            control = self._registers.get(self.control1, 0)
            ready = (_TEACK if control & _TE else 0) | (_REACK if control & _RE else 0)
            return self._flags | (ready if control & self.enable else 0)
        if offset == _RDR:
            self._set_flags(0, RXNE)
            return self._received
        return self._registers.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == _TDR:
            self._transmit(value & 0xFF)
        elif offset == _ICR:
            self._set_flags(0, value & _CLEARED_BY_ICR)
        elif offset == _RQR:
            self._set_flags(0, RXNE if value & _RXFRQ else 0)
        elif offset not in (_ISR, _RDR):
            self._store_control(offset, value, lanes)
        self._clock.timers_changed()

    def _store_control(self, offset: int, value: int, lanes: int) -> None:
        self._registers[offset] = self._registers.get(offset, 0) & ~lanes | value
        self._set_flags(0, 0)
        self._await_byte()

    def next_event(self) -> int | None:
        """Return the tick at which the next character ends, either way, or an idle line interrupts."""
        idle_at = self._idle_at if self._registers.get(self.control1, 0) & _IDLEIE else None
        ends = (self._sent_at, self._arrives_at, idle_at)
        return min((tick for tick in ends if tick is not None), default=None)

    def expire(self) -> None:
        """End the characters that are due."""
        now = self._clock.now()
        while self._sent_at is not None and self._sent_at <= now:
            start, self._sent_at = self._sent_at, None
            if self._waiting is None:
                self._set_flags(TC, 0)
            else:
                byte, self._waiting = self._waiting, None
                self._shift_out(byte, start)
                self._set_flags(TXE, 0)
        while self._arrives_at is not None and self._arrives_at <= now:
            start, self._arrives_at = self._arrives_at, None
            byte = self._on_the_line.popleft()
            self._idle_at = start + self._character_ticks()
            if self._flags & RXNE:
                self._set_flags(ORE, 0)  # the byte is lost (RM0385, 31.5.3)
            else:
                self._received = byte
                self._set_flags(RXNE, 0)
            self._await_byte(start)
        if self._idle_at is not None and self._idle_at <= now:
            self._idle_at = None
            self._set_flags(IDLE, 0)

    def _is_on(self, direction: int) -> bool:
        needed = self.enable | direction
        return self._registers.get(self.control1, 0) & needed == needed

    def _character_ticks(self) -> int:
        return _BITS_A_CHARACTER * max(1, self._registers.get(self.baud_rate, 0))

    def _transmit(self, byte: int) -> None:
        if not self._is_on(_TE):
            return
        if self._sent_at is None:
            self._shift_out(byte, self._clock.now())
            self._set_flags(0, TC)
        else:
            self._waiting = byte
            self._set_flags(0, TXE | TC)

    def _shift_out(self, byte: int, start: int) -> None:
        self._sent_at = start + self._character_ticks()
        self._send(bytes([byte]))

    def _await_byte(self, start: int | None = None) -> None:
        if self._on_the_line and self._arrives_at is None and self._is_on(_RE):
            self._idle_at = None
            self._arrives_at = (self._clock.now() if start is None else start) + self._character_ticks()

    def _set_flags(self, on: int, off: int) -> None:
        self._flags = self._flags & ~off | on
        flags, control = self._flags, self._registers.get(self.control1, 0)
        more = self._registers.get(self.control3, 0)
        asked = (control & _RXNEIE and flags & (RXNE | ORE)) or flags & control & (IDLE | _TCIE | _TXEIE)
        self._set_line(bool(asked or (more & _EIE and flags & ORE)))
        # Last: who takes the request changes the flags at once.
        self._ask_to_receive(bool(more & _DMAR and flags & RXNE))
        self._ask_to_send(bool(more & _DMAT and self._flags & TXE and self._is_on(_TE)))


class OldUsart(Usart):
    """One with SR and DR (RM0090, 30.6): a look at SR and then at DR clears ORE and IDLE."""

    control1, control3, baud_rate = 0x0C, 0x14, 0x08
    enable = 1 << 13

    def reset(self) -> None:
        self._seen = 0  # flags that SR has shown
        super().reset()

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _SR:
            self._seen = self._flags
            return self._flags
        if offset == _DR:
            self._set_flags(0, RXNE | self._seen & (ORE | IDLE))
            self._seen = 0
            return self._received
        return self._registers.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == _DR:
            self._set_flags(0, self._seen & TC)
            self._transmit(value & 0xFF)
        elif offset == _SR:
            self._set_flags(0, ~value & (RXNE | TC))
        else:
            self._store_control(offset, value, lanes)
        self._clock.timers_changed()
