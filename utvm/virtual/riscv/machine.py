# SPDX-License-Identifier: Apache-2.0
"""A board with one RISC-V hart and the devices of Spike's machine: CLINT, PLIC and a 16550 UART."""

import functools
from collections.abc import Callable

from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.jtag.board import JtagBoard, SerialInput, Tap
from utvm.virtual.riscv.debug_module import DebugModule
from utvm.virtual.riscv.hart import HALT_REQUEST, Hart
from utvm.virtual.spec import JtagSpec, Peripheral

_MSIP, _MTIMECMP, _MTIME = 0x0000, 0x4000, 0xBFF8
_NEVER = 2**64 - 1
_SOFTWARE, _TIMER, _EXTERNAL = 1 << 3, 1 << 7, 1 << 11  # mip


class Clint(Device):
    """The core-local interruptor of SiFive's layout, for one hart; ``tick`` is the instructions per tick of mtime."""

    size = 0x10000

    def __init__(self, hart: Hart, tick: int) -> None:
        self._hart = hart
        self._tick = tick
        self.reset()

    def reset(self) -> None:
        self._compare, self._software = _NEVER, 0

    def mtime(self) -> int:
        """Time in ticks."""
        return self._hart.now() // self._tick

    def pending(self) -> int:
        return _TIMER * (self.mtime() >= self._compare) | _SOFTWARE * self._software

    def next_event(self) -> int | None:
        """Time at which the timer expires; None if it already has."""
        return self._compare * self._tick if self.mtime() < self._compare < _NEVER // self._tick else None

    def load(self, offset: int) -> int:
        value = {_MTIMECMP: self._compare, _MTIME: self.mtime(), _MSIP: self._software}.get(offset & ~7, 0)
        return value >> (offset & 4) * 8 & 0xFFFFFFFF

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write a word; mtime is read-only."""
        if offset & ~7 == _MTIMECMP:
            shift = (offset & 4) * 8
            self._compare = self._compare & ~(lanes << shift) | value << shift
        elif offset == _MSIP:
            self._software = value & 1
        self._hart.interrupt()


_PENDING, _ENABLE, _CONTEXT = 0x1000, 0x2000, 0x200000
_CLAIM = 4


class Plic(Device):
    """The platform-level interrupt controller with 31 lines and one context (PLIC Specification 1.0.0)."""

    size = 0x400000

    def __init__(self, hart: Hart) -> None:
        self._hart = hart
        self._lines = 0
        self.reset()

    def reset(self) -> None:
        """Reset all but the interrupt line levels."""
        self._priority = [0] * 32
        self._enabled = self._claimed = self._threshold = 0

    def set_line(self, number: int, level: bool) -> None:
        self._lines = self._lines & ~(1 << number) | level << number
        self._hart.interrupt()

    def _best(self) -> int:
        waiting = self._lines & self._enabled & ~self._claimed
        lines = [number for number in range(1, 32) if waiting >> number & 1]
        best = max(lines, key=lambda number: (self._priority[number], -number), default=0)
        return best if self._priority[best] > self._threshold else 0

    def pending(self) -> int:
        return _EXTERNAL if self._best() else 0

    def next_event(self) -> int | None:
        return None

    def load(self, offset: int) -> int:
        """Read a word; a read of the claim register claims a line."""
        if offset < 4 * len(self._priority):
            return self._priority[offset // 4]
        if offset == _CONTEXT + _CLAIM:
            best = self._best()
            self._claimed |= 1 << best & ~1
            return best
        words = {_PENDING: self._lines & ~self._claimed, _ENABLE: self._enabled, _CONTEXT: self._threshold}
        return words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write a word; a write to the claim register completes a line."""
        if 0 < offset < 4 * len(self._priority):
            self._priority[offset // 4] = value & 7
        elif offset == _ENABLE:
            self._enabled = value & ~1
        elif offset == _CONTEXT:
            self._threshold = value & 7
        elif offset == _CONTEXT + _CLAIM:
            self._claimed &= ~(1 << (value & 31))
        self._hart.interrupt()


_DATA, _INTERRUPTS, _IDENTITY, _FORMAT, _STATE = 0, 1, 2, 3, 5
_DIVISOR_LATCH = 1 << 7  # of the format
_RECEIVED, _EMPTY = 1 << 0, 1 << 1  # interrupts
_STATE_RECEIVED, _STATE_EMPTY = 1 << 0, 3 << 5
_NO_CAUSE, _CAUSE_EMPTY, _CAUSE_RECEIVED = 1, 2, 4  # of the identity register
_FIFOS = 0xC0
_FIFO_BYTES = 16


class Uart16550(Device):
    """A 16550 UART (Texas Instruments TL16C550C, SLLS177). It sends instantly."""

    size = 0x1000

    def __init__(self, hart: Hart, send: Callable[[bytes], None], set_line: Callable[[bool], None]) -> None:
        self._send = send
        self._set_line = set_line
        self.input = SerialInput(hart, _FIFO_BYTES, self._drive)
        self.reset()

    def reset(self) -> None:
        self._registers = bytearray(8)
        self.input.clear()
        self._empty_reported = False
        self._drive()

    def _cause(self) -> int:
        enabled = self._registers[_INTERRUPTS]
        if enabled & _RECEIVED and self.input.fifo:
            return _CAUSE_RECEIVED
        return _CAUSE_EMPTY if enabled & _EMPTY and not self._empty_reported else _NO_CAUSE

    def _drive(self) -> None:
        self._set_line(self._cause() != _NO_CAUSE)

    def read(self, offset: int, size: int) -> int:
        """Read a register of one byte, with an access of any size."""
        del size
        return self.load(offset)

    def write(self, offset: int, size: int, value: int) -> None:
        del size
        self.store(offset, value & 0xFF, 0xFF)

    def load(self, offset: int) -> int:
        latched = self._registers[_FORMAT] & _DIVISOR_LATCH
        if offset == _DATA and not latched:
            value = self.input.fifo.popleft() if self.input.fifo else 0
        elif offset == _IDENTITY:
            value = self._cause()
            # A read clears the cause.
            self._empty_reported = self._empty_reported or value == _CAUSE_EMPTY
            value |= _FIFOS
        elif offset == _STATE:
            value = _STATE_EMPTY | _STATE_RECEIVED * bool(self.input.fifo)
        else:
            value = self._registers[offset] if offset < len(self._registers) else 0
        self._drive()
        return value

    def store(self, offset: int, value: int, lanes: int) -> None:
        del lanes
        latched = self._registers[_FORMAT] & _DIVISOR_LATCH
        if offset == _DATA and not latched:
            self._send(bytes([value]))
            self._empty_reported = False
        elif offset < len(self._registers):
            if offset == _INTERRUPTS and value & _EMPTY:
                self._empty_reported = False
            self._registers[offset] = value
        self._drive()


# The debug transport (RISC-V External Debug Support 0.13.2, section 6.1).
_INSTRUCTION_BITS = 5
_IDCODE, _DTMCS, _DMI = 0x01, 0x10, 0x11
_VERSION_0_13, _ADDRESS_BITS = 1, 6
_READ, _WRITE = 1, 2
_FAILED = 2


class RiscvBoard(JtagBoard):
    """A board with one hart."""

    def __init__(self, spec: JtagSpec) -> None:
        bus = Bus(spec.regions)
        self._hart = Hart(spec.cpu, bus, spec.start)
        self._plic = Plic(self._hart)
        models = {"clint": self._make_clint, "plic": self._make_plic, "ns16550": self._make_uart}
        super().__init__(spec, self._hart, bus, models)
        self._module = DebugModule(self._hart, bus)
        self._response = 0
        self._hart.halt(HALT_REQUEST)  # its memory is empty: it starts halted, as Spike with -H
        self.taps += (
            Tap(
                instruction_bits=_INSTRUCTION_BITS,
                idcode=spec.idcode,
                idcode_instruction=_IDCODE,
                registers={_DTMCS: 32, _DMI: 34 + _ADDRESS_BITS},
                capture=lambda register: self._response if register == _DMI else _VERSION_0_13 | _ADDRESS_BITS << 4,
                update=self._update,
            ),
        )

    def _make_clint(self, peripheral: Peripheral) -> Device:
        clint = Clint(self._hart, peripheral.settings["tick"])
        self._hart.core.time = clint.mtime
        self._hart.sources.append(clint)
        return clint

    def _make_plic(self, _: Peripheral) -> Device:
        self._hart.sources.append(self._plic)
        return self._plic

    def _make_uart(self, peripheral: Peripheral) -> Device:
        uart = Uart16550(self._hart, self._print, functools.partial(self._plic.set_line, peripheral.irq or 0))
        self._add_input(uart.input)
        return uart

    def _update(self, register: int, value: int) -> None:
        operation, data, address = value & 3, value >> 2 & 0xFFFFFFFF, value >> 34
        if register != _DMI or operation not in (_READ, _WRITE):
            return
        try:
            with self._stopped_core():
                if operation == _READ:
                    data = self._module.read(address)
                else:
                    self._module.write(address, data)
                if self._module.reset_requested:
                    self._module.reset_requested = False
                    self._reset()
        except BusError:  # the model has failed
            self._response = value >> 34 << 34 | _FAILED
            return
        self._response = address << 34 | data << 2

    def _reset(self) -> None:
        super()._reset()
        self._hart.cause = HALT_REQUEST  # a halted hart halts again
