# SPDX-License-Identifier: Apache-2.0
"""A board with one RISC-V hart, as its JTAG pins and its console see it."""

import functools

from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.jtag.board import JtagBoard
from utvm.virtual.jtag.chain import Tap
from utvm.virtual.riscv.debug_module import DebugModule
from utvm.virtual.riscv.devices import Clint, Plic, Uart16550
from utvm.virtual.riscv.hart import HALT_REQUEST, Hart
from utvm.virtual.spec import JtagSpec, Peripheral

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
        self._answer = 0
        self._hart.halt(HALT_REQUEST)  # with nothing in its memory it stands, as Spike does with -H
        self.taps += (
            Tap(
                instruction_bits=_INSTRUCTION_BITS,
                idcode=spec.idcode,
                idcode_instruction=_IDCODE,
                registers={_DTMCS: 32, _DMI: 34 + _ADDRESS_BITS},
                capture=lambda register: self._answer if register == _DMI else _VERSION_0_13 | _ADDRESS_BITS << 4,
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
        """Take what was shifted into the transport: a request to the debug module."""
        operation, data, address = value & 3, value >> 2 & 0xFFFFFFFF, value >> 34
        if register != _DMI or operation not in (_READ, _WRITE):
            return
        try:
            with self._visit():
                if operation == _READ:
                    data = self._module.read(address)
                else:
                    self._module.write(address, data)
                if self._module.reset_wanted:
                    self._module.reset_wanted = False
                    self._reset()
        except BusError:  # the model has failed
            self._answer = value >> 34 << 34 | _FAILED
            return
        self._answer = address << 34 | data << 2

    def _reset(self) -> None:
        super()._reset()
        self._hart.cause = HALT_REQUEST  # where it is halted, it is so anew
