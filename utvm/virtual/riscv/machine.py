# SPDX-License-Identifier: Apache-2.0
"""A board with one RISC-V hart, as its JTAG pins and its console see it."""

import functools
from collections.abc import Callable

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.jtag.chain import Tap
from utvm.virtual.riscv.debug_module import DebugModule
from utvm.virtual.riscv.devices import Clint, Plic, Uart16550
from utvm.virtual.riscv.hart import HALT_REQUEST, Hart
from utvm.virtual.spec import JtagSpec
from utvm.virtual.stage import Stage

# The debug transport (RISC-V External Debug Support 0.13.2, section 6.1).
_INSTRUCTION_BITS = 5
_IDCODE, _DTMCS, _DMI = 0x01, 0x10, 0x11
_VERSION_0_13, _ADDRESS_BITS = 1, 6
_READ, _WRITE = 1, 2
_FAILED = 2


class RiscvBoard(Stage):
    """A board. All methods may be called from any thread.

    Attributes:
        on_console_output: receives what the board prints. Called from the core's thread: it must not block.
        taps: its TAPs, the one at TDO first.

    Raises:
        ConfigError: the specification names an unknown model.
        ToolchainError: the C part of the core cannot be compiled.
    """

    def __init__(self, spec: JtagSpec) -> None:
        self.on_console_output: Callable[[bytes], None] = lambda data: None
        self._bus = Bus(spec.regions)
        self._hart = Hart(spec.cpu, self._bus, spec.start)
        super().__init__(spec.name, self._hart)
        self._uarts: list[Uart16550] = []
        self._devices = self._make_devices(spec)
        self._module = DebugModule(self._hart, self._bus)
        self._answer = 0
        self._hart.halt(HALT_REQUEST)  # with nothing in its memory it stands, as Spike does with -H
        self.taps = (
            Tap(
                instruction_bits=_INSTRUCTION_BITS,
                idcode=spec.idcode,
                idcode_instruction=_IDCODE,
                registers={_DTMCS: 32, _DMI: 34 + _ADDRESS_BITS},
                capture=lambda register: self._answer if register == _DMI else _VERSION_0_13 | _ADDRESS_BITS << 4,
                update=self._update,
            ),
        )

    def console_input(self, data: bytes) -> None:
        """Send bytes to the board's serial line."""
        with self._visit():
            for uart in self._uarts:
                uart.receive(data)

    def _make_devices(self, spec: JtagSpec) -> list[Device]:
        plic = Plic(self._hart)
        made: list[Device] = []
        for peripheral in spec.peripherals:
            device: Device
            if peripheral.model == "clint":
                device = clint = Clint(self._hart, peripheral.settings["tick"])
                self._hart.core.time = clint.mtime
                self._hart.sources.append(clint)
            elif peripheral.model == "plic":
                device = plic
                self._hart.sources.append(plic)
            elif peripheral.model == "ns16550":
                device = uart = Uart16550(
                    self._hart, self._print, functools.partial(plic.set_line, peripheral.irq or 0)
                )
                self._uarts.append(uart)
                # Before the PLIC, which hears of it.
                self._hart.sources.insert(0, uart)
            else:
                raise ConfigError(
                    f"{spec.name}: no model named {peripheral.model!r}", "there are: clint, plic, ns16550"
                )
            self._bus.add(peripheral.address, device)
            self._hart.core.map_device(peripheral.address, device)
            made.append(device)
        return made

    def _print(self, data: bytes) -> None:
        self.on_console_output(data)

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
        for device in self._devices:
            device.reset()
        self._hart.reset()
        self._hart.cause = HALT_REQUEST  # where it is halted, it is so anew
