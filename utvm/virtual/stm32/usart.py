"""A USART of the STM32F7, asynchronous mode (RM0385, section 31).

A character takes ten bit times of BRR ticks each way, so flags and interrupts come when they would. The core clock
feeds it. What is sent is handed out when it enters the shift register.
"""

from collections import deque
from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m.clock import Clock

_CR1 = 0x00
_BRR = 0x0C
_RQR = 0x18
_ISR = 0x1C
_ICR = 0x20
_RDR = 0x24
_TDR = 0x28

# CR1
_UE = 1 << 0
_RE = 1 << 2
_TE = 1 << 3
_RXNEIE = 1 << 5
_TCIE = 1 << 6
_TXEIE = 1 << 7

# ISR
ORE = 1 << 3
RXNE = 1 << 5
TC = 1 << 6
TXE = 1 << 7
_TEACK = 1 << 21
_REACK = 1 << 22
_AFTER_RESET = TXE | TC

_CLEARED_BY_ICR = ORE | TC | 0x00020B17  # the rest are flags that this model never sets
_RXFRQ = 1 << 3
_BITS_A_CHARACTER = 10


class Usart(Device):
    """One USART and the line it is on.

    Args:
        send: receives each byte sent.
        set_line: drives the interrupt line.
    """

    def __init__(self, clock: Clock, send: Callable[[bytes], None], set_line: Callable[[bool], None]) -> None:
        self._clock = clock
        self._send = send
        self._set_line = set_line
        self._on_the_line: deque[int] = deque()
        self.reset()

    def reset(self) -> None:
        self._registers: dict[int, int] = {}
        self._flags = _AFTER_RESET
        self._received = 0
        self._waiting: int | None = None  # what TDR holds while the shift register is busy
        self._sent_at: int | None = None  # when the shift register will be empty
        self._arrives_at: int | None = None  # when the next byte on the line is complete
        self._on_the_line.clear()
        self._set_line(False)

    def receive(self, data: bytes) -> None:
        """Put bytes on the line to the board; each takes its time to arrive."""
        self._on_the_line.extend(data)
        self._await_byte()
        self._clock.timers_changed()

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _ISR:
            control = self._registers.get(_CR1, 0)
            ready = (_TEACK if control & _TE else 0) | (_REACK if control & _RE else 0)
            return self._flags | (ready if control & _UE else 0)
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
            self._registers[offset] = self._registers.get(offset, 0) & ~lanes | value
            self._set_flags(0, 0)
            self._await_byte()
        self._clock.timers_changed()

    def next_event(self) -> int | None:
        """Return the tick at which the next character ends, either way."""
        return min((tick for tick in (self._sent_at, self._arrives_at) if tick is not None), default=None)

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
            if self._flags & RXNE:
                self._set_flags(ORE, 0)  # the byte is lost (RM0385, 31.5.3)
            else:
                self._received = byte
                self._set_flags(RXNE, 0)
            self._await_byte(start)

    def _is_on(self, direction: int) -> bool:
        needed = _UE | direction
        return self._registers.get(_CR1, 0) & needed == needed

    def _character_ticks(self) -> int:
        return _BITS_A_CHARACTER * max(1, self._registers.get(_BRR, 0))

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
            self._arrives_at = (self._clock.now() if start is None else start) + self._character_ticks()

    def _set_flags(self, on: int, off: int) -> None:
        self._flags = self._flags & ~off | on
        control = self._registers.get(_CR1, 0)
        asked = (control & _RXNEIE and self._flags & (RXNE | ORE)) or self._flags & control & (_TCIE | _TXEIE)
        self._set_line(bool(asked))
