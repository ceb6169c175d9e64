# SPDX-License-Identifier: Apache-2.0
"""A board with a Zynq, as its JTAG pins and its console see it: two cores, of which one runs."""

import functools
from dataclasses import replace

from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.cortex_a.cpu import CortexA9
from utvm.virtual.cortex_a.debug import DebugUnit
from utvm.virtual.cortex_a.devices import CadenceUart, PrivatePeripherals, SystemControl
from utvm.virtual.cortex_a.logic import ProgrammableLogic
from utvm.virtual.dap import (
    JTAG_ABORT,
    JTAG_APACC,
    JTAG_DPACC,
    JTAG_IDCODE,
    JTAG_REGISTER_BITS,
    JtagDebugPort,
    MemoryAccessPort,
)
from utvm.virtual.jtag.board import JtagBoard
from utvm.virtual.jtag.chain import Tap
from utvm.virtual.spec import JtagSpec, Peripheral

_INSTRUCTION_BITS = 4
_AHB_AP, _APB_AP = 0x44770001, 0x24770002
_NO_TABLE, _TABLE = 0xFFFFFFFF, 0x80000003  # BASE
_PRIVATE = 0xF8F00000  # UG585, table 4-7
_UNITS = (0x80090000, 0x80092000)  # UG585, table 28-5
_UNIT_BYTES = 0x1000


class CoreSight:
    """What the APB-AP reaches: the debug registers of both cores, and a ROM table that lists nothing."""

    def __init__(self, units: tuple[DebugUnit, ...]) -> None:
        self._units = dict(zip(_UNITS, units, strict=True))

    def read(self, address: int, size: int) -> bytes:
        """Return a word, or several."""
        return b"".join(self._word(address + at).to_bytes(4, "little") for at in range(0, size, 4))

    def _word(self, address: int) -> int:
        unit = self._units.get(address & -_UNIT_BYTES)
        return unit.read(address % _UNIT_BYTES) if unit else 0

    def write(self, address: int, data: bytes) -> None:
        """Write words."""
        for at in range(0, len(data), 4):
            unit = self._units.get(address + at & -_UNIT_BYTES)
            if unit:
                unit.write((address + at) % _UNIT_BYTES, int.from_bytes(data[at : at + 4], "little"))


class ZynqBoard(JtagBoard):
    """A board. Its further TAP is its logic's. Its second core waits in the boot ROM for good."""

    def __init__(self, spec: JtagSpec) -> None:
        bus = Bus(spec.regions)
        # The one that runs is made last: it is told when memory changes.
        self._second, self._cpu = CortexA9(bus, _PRIVATE, 1), CortexA9(bus, _PRIVATE)
        self._private = PrivatePeripherals(self._cpu, 1, 1)
        models = {
            "mpcore": self._make_private,
            "cadence_uart": self._make_uart,
            "slcr": lambda _: SystemControl(),
        }
        self._logic = ProgrammableLogic(spec.logic)
        super().__init__(spec, self._cpu, bus, models, lambda: self._logic.holds)
        units = (DebugUnit(self._cpu, bus), DebugUnit(self._second, bus))
        self._port = JtagDebugPort(
            {
                0: MemoryAccessPort(bus, identification=_AHB_AP, base=_NO_TABLE),
                1: MemoryAccessPort(CoreSight(units), identification=_APB_AP, base=_TABLE),
            }
        )
        self.taps = (
            *(replace(tap, registers=self._logic.registers, update=self._logic.update) for tap in self.taps),
            Tap(
                instruction_bits=_INSTRUCTION_BITS,
                idcode=spec.idcode,
                idcode_instruction=JTAG_IDCODE,
                registers=dict.fromkeys((JTAG_ABORT, JTAG_DPACC, JTAG_APACC), JTAG_REGISTER_BITS),
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
        """Take what was shifted into the debug port. What is not for the core does not disturb it."""
        if instruction == JTAG_DPACC:
            self._port.update(instruction, value)
            return
        try:
            with self._visit():
                self._port.update(instruction, value)
        except BusError:  # the model has failed
            self._port.fail()

    def _reset(self) -> None:
        super()._reset()
        self._second.reset()
