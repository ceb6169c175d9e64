# SPDX-License-Identifier: Apache-2.0
"""A board with a Zynq: two Cortex-A9, only one running, and the peripherals that programs use."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from utvm.virtual import dap
from utvm.virtual.bus import Bus, BusError, Device, PlainRegisters
from utvm.virtual.cortex_a.cpu import CortexA9
from utvm.virtual.cortex_a.debug import DebugUnit
from utvm.virtual.jtag.board import EVENT, STREAM, JtagBoard, SerialInput, Tap
from utvm.virtual.jtag.core import CoreRunner
from utvm.virtual.spec import JtagSpec, Peripheral

# The interrupt controller (ARM IHI 0048B, chapter 4) and its address (DDI 0407G, 1.5)
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
    """Interrupt controller and global timer of a Cortex-A9 MPCore; other registers store their value.

    All lines have the same priority and target the running core; the lowest number comes first; handlers are not
    preempted. ``ticks`` to ``instructions`` is the ratio of timer ticks to instructions.
    """

    size = 0x3000

    def __init__(self, runner: CoreRunner, ticks: int, instructions: int) -> None:
        self._runner = runner
        self._ticks, self._instructions = ticks, instructions
        self._levels = 0
        self.reset()

    def reset(self) -> None:
        """Reset all but the interrupt line levels."""
        self._words: dict[int, int] = {}
        self._enabled = self._set = self._active = 0
        self._begun = self._runner.now()
        self._event = False

    def set_line(self, number: int, level: bool) -> None:
        self._levels = self._levels & ~(1 << number) | level << number
        self._runner.interrupt()

    def _timer(self, register: int) -> int:
        return self._words.get(_TIMER + register, 0)

    @property
    def _time(self) -> int:
        return (self._runner.now() - self._begun) * self._ticks // self._instructions

    def _update_event(self) -> None:
        if self._timer(_CONTROL) & (_COUNTS | _COMPARES) == _COUNTS | _COMPARES and self._time >= self._compare:
            self._event = True

    @property
    def _compare(self) -> int:
        return self._timer(_COMPARE_HIGH) << 32 | self._timer(_COMPARE_LOW)

    def _next_line(self) -> int:
        self._update_event()
        timer = self._event and self._timer(_CONTROL) & _INTERRUPTS
        waiting = (self._levels | self._set | bool(timer) << _TIMER_LINE) & self._enabled
        return (waiting & -waiting).bit_length() - 1 if waiting else _NONE

    def pending(self) -> int:
        on = self._words.get(_DISTRIBUTOR, 0) & self._words.get(_INTERFACE + _ICC_CONTROL, 0) & 1
        masked = self._active or not self._words.get(_INTERFACE + _ICC_MASK, 0)
        return int(bool(on and not masked and self._next_line() != _NONE))

    def next_event(self) -> int | None:
        """Time at which the timer reaches its comparator; None if it already has."""
        if self._timer(_CONTROL) & _INTERRUPTS and self._time < self._compare:
            return self._begun - -self._compare * self._instructions // self._ticks
        return None

    def load(self, offset: int) -> int:
        if offset == _INTERFACE + _ICC_ACKNOWLEDGE:
            line = self._next_line() if not self._active else _NONE
            if line != _NONE:
                self._active |= 1 << line
                self._set &= ~(1 << line)
            return line
        if offset in (_TIMER + _LOW, _TIMER + _HIGH):
            return self._time >> (offset & 4) * 8 & 0xFFFFFFFF
        if offset == _TIMER + _STATUS:
            self._update_event()
            return int(self._event)
        base, first = offset - _DISTRIBUTOR & ~0x7F, (offset & 0x7F) * 8
        if base in (_ENABLE, _DISABLE):
            return self._enabled >> first & 0xFFFFFFFF
        if base in (_SET_PENDING, _CLEAR_PENDING):
            return (self._levels | self._set) >> first & 0xFFFFFFFF
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
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
_RECEIVED, _EMPTY, _SENT = 1 << 0, 1 << 1, 1 << 3  # of ISR and SR: RX trigger, RX empty, TX empty
_FIFO_BYTES = 64


class CadenceUart(Device):
    """A UART of the Zynq (UG585, chapter 19 and B.33). It sends instantly; RXWM is always one byte."""

    size = 0x1000

    def __init__(self, runner: CoreRunner, send: Callable[[bytes], None], set_line: Callable[[bool], None]) -> None:
        self._send = send
        self._set_line = set_line
        self.input = SerialInput(runner, _FIFO_BYTES, self._raise_trigger)
        self.reset()

    def reset(self) -> None:
        self._words = {_CR: 0x128, _ISR: _SENT}
        self.input.clear()
        self._drive()

    def _raise_trigger(self) -> None:
        self._words[_ISR] |= _RECEIVED
        self._drive()

    def _drive(self) -> None:
        self._set_line(bool(self._words.get(_IMR, 0) & self._words[_ISR]))

    def load(self, offset: int) -> int:
        if offset == _FIFO:
            return self.input.fifo.popleft() if self.input.fifo else 0
        if offset == _SR:
            return _SENT | (_RECEIVED if self.input.fifo else _EMPTY)
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write a word. Ones in ISR clear events; an event with a lasting cause is set again at once."""
        if offset == _FIFO:
            if self._words[_CR] & _SENDS:
                self._send(bytes([value & 0xFF]))
                self._words[_ISR] |= _SENT
        elif offset == _ISR:
            self._words[_ISR] &= ~value
            if self.input.fifo:
                self._words[_ISR] |= _RECEIVED
        elif offset in (_IER, _IDR):
            mask = self._words.get(_IMR, 0)
            self._words[_IMR] = mask | value if offset == _IER else mask & ~value
        else:
            word = self._words.get(offset, 0) & ~lanes | value
            self._words[offset] = word & ~_RESETS if offset == _CR else word
        self._drive()


_LOCK, _UNLOCK, _LOCKED = 0x004, 0x008, 0x00C
_KEYS = {_LOCK: 0x767B, _UNLOCK: 0xDF0D}
_PLL_STATUS, _REBOOT_STATUS, _OCM = 0x10C, 0x258, 0x910
_IDENTITY = 0x530
_STABLE_AND_LOCKED = 0x3F


class SystemControl(PlainRegisters):
    """SLCR of the Zynq (UG585, B.28): registers that store their value unless locked. PLLs lock at once.

    PSS_IDCODE has no part and an invalid revision, which tells a port that its timer counts instructions. In QEMU
    it is 0.
    """

    def __init__(self) -> None:
        # Locked; the on-chip memory is mapped as for the boot ROM.
        words = {_LOCKED: 1, _OCM: 0x18, _PLL_STATUS: _STABLE_AND_LOCKED, _IDENTITY: 15 << 28}
        super().__init__(words, (_LOCKED, _PLL_STATUS, _IDENTITY), size=0x1000)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset in _KEYS:
            if value & 0xFFFF == _KEYS[offset]:
                self.values[_LOCKED] = int(offset == _LOCK)
        elif not self.values[_LOCKED]:
            super().store(offset, value, lanes)


_CFG_IN, _JPROGRAM = 0x05, 0x0B
_SYNCHRONISATION = f"{0xAA995566:032b}"


class ProgrammableLogic:
    """Programmable logic as seen by its TAP (Xilinx UG470, tables 5-20 and 6-3).

    It detects the synchronisation word of a bitstream and ignores the rest. ``bitstream`` is the name of the
    loaded one, or empty.
    """

    registers: Mapping[int, int] = {_CFG_IN: STREAM, _JPROGRAM: EVENT}

    def __init__(self, bitstream: str) -> None:
        self.bitstream = bitstream
        self._tail = ""

    def update(self, instruction: int, value: int) -> None:
        """Clear the logic, or process 64 bits, lowest first."""
        if instruction == _JPROGRAM:
            self.bitstream = self._tail = ""
        elif not self.bitstream:
            bits = self._tail + f"{value:064b}"[::-1]
            self._tail = bits[1 - len(_SYNCHRONISATION) :]
            if _SYNCHRONISATION in bits:
                self.bitstream = "a bitstream"


_INSTRUCTION_BITS = 4
_AHB_AP, _APB_AP = 0x44770001, 0x24770002
_NO_TABLE, _TABLE = 0xFFFFFFFF, 0x80000003  # BASE
_PRIVATE = 0xF8F00000  # UG585, table 4-7
_UNITS = (0x80090000, 0x80092000)  # UG585, table 28-5
_UNIT_BYTES = 0x1000


class CoreSight:
    """Memory behind the APB-AP: the debug registers of both cores, and an empty ROM table."""

    def __init__(self, units: tuple[DebugUnit, ...]) -> None:
        self._units = dict(zip(_UNITS, units, strict=True))

    def read(self, address: int, size: int) -> bytes:
        return b"".join(self._word(address + offset).to_bytes(4, "little") for offset in range(0, size, 4))

    def _word(self, address: int) -> int:
        unit = self._units.get(address & -_UNIT_BYTES)
        return unit.read(address % _UNIT_BYTES) if unit else 0

    def write(self, address: int, data: bytes) -> None:
        for offset in range(0, len(data), 4):
            unit = self._units.get(address + offset & -_UNIT_BYTES)
            if unit:
                unit.write((address + offset) % _UNIT_BYTES, int.from_bytes(data[offset : offset + 4], "little"))


class ZynqBoard(JtagBoard):
    """A board with a Zynq. Its second core stays in the boot ROM; its second TAP is that of the logic."""

    def __init__(self, spec: JtagSpec) -> None:
        bus = Bus(spec.regions)
        # The running core is created last: the bus reports changes of memory to it.
        self._second, self._cpu = CortexA9(bus, _PRIVATE, 1), CortexA9(bus, _PRIVATE)
        self._private = PrivatePeripherals(self._cpu, 1, 1)
        models = {"mpcore": self._make_private, "cadence_uart": self._make_uart, "slcr": lambda _: SystemControl()}
        self._logic = ProgrammableLogic(spec.logic)
        super().__init__(spec, self._cpu, bus, models, lambda: self._logic.bitstream)
        units = (DebugUnit(self._cpu, bus), DebugUnit(self._second, bus))
        self._port = dap.JtagDebugPort(
            {
                0: dap.MemoryAccessPort(bus, identification=_AHB_AP, base=_NO_TABLE),
                1: dap.MemoryAccessPort(CoreSight(units), identification=_APB_AP, base=_TABLE),
            }
        )
        self.taps = (
            *(replace(tap, registers=self._logic.registers, update=self._logic.update) for tap in self.taps),
            Tap(
                instruction_bits=_INSTRUCTION_BITS,
                idcode=spec.idcode,
                idcode_instruction=dap.JTAG_IDCODE,
                registers=dict.fromkeys((dap.JTAG_ABORT, dap.JTAG_DPACC, dap.JTAG_APACC), dap.JTAG_REGISTER_BITS),
                capture=self._port.capture,
                update=self._update,
            ),
        )

    def _make_private(self, peripheral: Peripheral) -> Device:
        settings = peripheral.settings
        self._private = PrivatePeripherals(self._cpu, settings["ticks"], settings["instructions"])
        self._cpu.sources.append(self._private)
        return self._private

    def _make_uart(self, peripheral: Peripheral) -> Device:
        line = functools.partial(self._drive, peripheral.irq or 0)
        uart = CadenceUart(self._cpu, self._print, line)
        self._add_input(uart.input)
        return uart

    def _drive(self, line: int, level: bool) -> None:
        self._private.set_line(line, level)

    def _update(self, instruction: int, value: int) -> None:
        if instruction == dap.JTAG_DPACC:
            self._port.update(instruction, value)
            return
        try:
            with self._stopped_core():
                self._port.update(instruction, value)
        except BusError:  # the model has failed
            self._port.fail()

    def _reset(self) -> None:
        super()._reset()
        self._second.reset()
