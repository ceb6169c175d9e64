# SPDX-License-Identifier: Apache-2.0
"""What a Zynq has around its Cortex-A9 and programs use: private peripherals, UARTs, system control."""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.jtag.board import SerialInput
from utvm.virtual.runner import CoreRunner

# The interrupt controller (ARM IHI 0048B, chapter 4), and where it is (DDI 0407G, 1.5)
_INTERFACE, _TIMER, _DISTRIBUTOR = 0x100, 0x200, 0x1000
_ICC_CONTROL, _ICC_MASK, _ICC_ACKNOWLEDGE, _ICC_END = 0x00, 0x04, 0x0C, 0x10
_ENABLE, _DISABLE, _SET_PENDING, _CLEAR_PENDING = 0x100, 0x180, 0x200, 0x280
_LINES = 96
_NONE = 1023
# The global timer (DDI 0407G, 4.4)
_LOW, _HIGH, _CONTROL, _STATUS, _COMPARE_LOW, _COMPARE_HIGH = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14
_COUNTS, _COMPARES, _INTERRUPTS = 1, 2, 4
_TIMER_LINE = 27


class PrivatePeripherals(Device):
    """Interrupt controller and global timer of a Cortex-A9 MPCore; its other registers remember.

    All lines have one priority and go to the core that runs: the lowest is first, and none interrupts a handler.

    Args:
        ticks, instructions: so many ticks of the timer pass in so many instructions.
    """

    size = 0x3000

    def __init__(self, runner: CoreRunner, ticks: int, instructions: int) -> None:
        self._runner = runner
        self._ticks, self._instructions = ticks, instructions
        self._levels = 0
        self.reset()

    def reset(self) -> None:
        """Nothing is enabled; lines are as what drives them has them. Time begins anew."""
        self._words: dict[int, int] = {}
        self._enabled = self._set = self._active = 0
        self._begun = self._runner.now()
        self._event = False

    def set_line(self, number: int, level: bool) -> None:
        """Drive a line."""
        self._levels = self._levels & ~(1 << number) | level << number
        self._runner.interrupt()

    def _timer(self, register: int) -> int:
        return self._words.get(_TIMER + register, 0)

    @property
    def _time(self) -> int:
        return (self._runner.now() - self._begun) * self._ticks // self._instructions

    def _look(self) -> None:
        if self._timer(_CONTROL) & (_COUNTS | _COMPARES) == _COUNTS | _COMPARES and self._time >= self._compare:
            self._event = True

    @property
    def _compare(self) -> int:
        return self._timer(_COMPARE_HIGH) << 32 | self._timer(_COMPARE_LOW)

    def _best(self) -> int:
        self._look()
        timer = self._event and self._timer(_CONTROL) & _INTERRUPTS
        waiting = (self._levels | self._set | bool(timer) << _TIMER_LINE) & self._enabled
        return (waiting & -waiting).bit_length() - 1 if waiting else _NONE

    def pending(self) -> int:
        """Return whether there is an interrupt for the core."""
        on = self._words.get(_DISTRIBUTOR, 0) & self._words.get(_INTERFACE + _ICC_CONTROL, 0) & 1
        masked = self._active or not self._words.get(_INTERFACE + _ICC_MASK, 0)
        return int(bool(on and not masked and self._best() != _NONE))

    def next_event(self) -> int | None:
        """Return when the timer comes to what it is compared with, if it has not yet."""
        if self._timer(_CONTROL) & _INTERRUPTS and self._time < self._compare:
            return self._begun - -self._compare * self._instructions // self._ticks
        return None

    def load(self, offset: int) -> int:
        """Return a word."""
        if offset == _INTERFACE + _ICC_ACKNOWLEDGE:
            best = self._best() if not self._active else _NONE
            if best != _NONE:
                self._active |= 1 << best
                self._set &= ~(1 << best)
            return best
        if offset in (_TIMER + _LOW, _TIMER + _HIGH):
            return self._time >> (offset & 4) * 8 & 0xFFFFFFFF
        if offset == _TIMER + _STATUS:
            self._look()
            return int(self._event)
        base, first = offset - _DISTRIBUTOR & ~0x7F, (offset & 0x7F) * 8
        if base in (_ENABLE, _DISABLE):
            return self._enabled >> first & 0xFFFFFFFF
        if base in (_SET_PENDING, _CLEAR_PENDING):
            return (self._levels | self._set) >> first & 0xFFFFFFFF
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write a word; the timer's count goes on as it is."""
        base, bits = offset - _DISTRIBUTOR & ~0x7F, value << (offset & 0x7F) * 8 & (1 << _LINES) - 1
        if offset == _INTERFACE + _ICC_END:
            self._active &= ~(1 << (value & _NONE))
        elif offset == _TIMER + _STATUS:
            self._event = self._event and not value & 1
        elif base == _ENABLE:
            self._enabled |= bits
        elif base == _DISABLE:
            self._enabled &= ~bits
        elif base == _SET_PENDING:
            self._set |= bits
        elif base == _CLEAR_PENDING:
            self._set &= ~bits
        else:
            self._words[offset] = self._words.get(offset, 0) & ~lanes | value
        self._runner.interrupt()


_CR, _IER, _IDR, _IMR, _ISR, _SR, _FIFO = 0x00, 0x08, 0x0C, 0x10, 0x14, 0x2C, 0x30
_RESETS, _RECEIVES, _SENDS = 3, 1 << 2, 1 << 4  # of CR
_GOT, _EMPTY, _SENT = 1 << 0, 1 << 1, 1 << 3  # of ISR and SR: above the trigger, nothing received, nothing to send
_FIFO_BYTES = 64


class CadenceUart(Device):
    """A UART of the Zynq (UG585, chapter 19 and B.33). No time passes on its line while it sends.

    Its trigger is one byte, whatever RXWM says.

    Args:
        send: takes what is sent.
        set_line: drives its interrupt line.

    Attributes:
        input: what comes.
    """

    size = 0x1000

    def __init__(
        self, runner: CoreRunner, send: Callable[[bytes], None], set_line: Callable[[bool], None]
    ) -> None:
        self._send = send
        self._set_line = set_line
        self.input = SerialInput(runner, _FIFO_BYTES, self._filled)
        self.reset()

    def reset(self) -> None:
        """Nothing is on, asked for or received."""
        self._words = {_CR: 0x128, _ISR: _SENT}
        self.input.clear()
        self._drive()

    def _filled(self) -> None:
        self._words[_ISR] |= _GOT
        self._drive()

    def _drive(self) -> None:
        self._set_line(bool(self._words.get(_IMR, 0) & self._words[_ISR]))

    def load(self, offset: int) -> int:
        """Return a word."""
        if offset == _FIFO:
            return self.input.fifo.popleft() if self.input.fifo else 0
        if offset == _SR:
            return _SENT | (_GOT if self.input.fifo else _EMPTY)
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write a word. Events are taken back by ones; what still stands comes again at once."""
        if offset == _FIFO:
            if self._words[_CR] & _SENDS:
                self._send(bytes([value & 0xFF]))
                self._words[_ISR] |= _SENT
        elif offset == _ISR:
            self._words[_ISR] &= ~value
            if self.input.fifo:
                self._words[_ISR] |= _GOT
        elif offset in (_IER, _IDR):
            asked = self._words.get(_IMR, 0)
            self._words[_IMR] = asked | value if offset == _IER else asked & ~value
        else:
            kept = self._words.get(offset, 0) & ~lanes | value
            self._words[offset] = kept & ~_RESETS if offset == _CR else kept
        self._drive()


_LOCK, _UNLOCK, _LOCKED = 0x004, 0x008, 0x00C
_KEYS = {_LOCK: 0x767B, _UNLOCK: 0xDF0D}
_PLL_STATUS, _REBOOT_STATUS, _OCM = 0x10C, 0x258, 0x910
_IDENTITY = 0x530
_STABLE_AND_LOCKED = 0x3F


class SystemControl(Device):
    """SLCR of the Zynq (UG585, B.28): registers that remember, where they are not locked. A PLL is locked at once.

    PSS_IDCODE names no part, in a revision that there is not: that is how a port knows that its timer counts
    instructions. In QEMU, all of it is 0.
    """

    size = 0x1000

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """All is locked; the on-chip memory is mapped as for the boot ROM."""
        self._words = {_LOCKED: 1, _OCM: 0x18, _PLL_STATUS: _STABLE_AND_LOCKED, _IDENTITY: 15 << 28}

    def load(self, offset: int) -> int:
        """Return a word."""
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write a word, if that is allowed."""
        if offset in _KEYS:
            if value & 0xFFFF == _KEYS[offset]:
                self._words[_LOCKED] = int(offset == _LOCK)
        elif not self._words[_LOCKED] and offset not in (_LOCKED, _PLL_STATUS, _IDENTITY):
            self._words[offset] = self._words.get(offset, 0) & ~lanes | value
