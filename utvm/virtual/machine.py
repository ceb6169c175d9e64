# SPDX-License-Identifier: Apache-2.0
"""A virtual board with a Cortex-M, as seen from its debug port and its reset pin."""

import functools
import logging
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from utvm.errors import ConfigError
from utvm.virtual import blocks, core_thread, nordic, rules, signals, stm32
from utvm.virtual.bus import PAGE, BitBand, Bus, BusError, Device, ResetCause
from utvm.virtual.cortex_m import cpu, debug, kinds
from utvm.virtual.nordic import Nvmc
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, MachineSpec, Peripheral
from utvm.virtual.stm32.flash import EmbeddedFlash
from utvm.virtual.stm32.flash_h7 import H7FlashController
from utvm.virtual.wiring import SerialDevice, Timer, Wiring, find_model

__all__ = ["BoardModel", "BusError"]

_ERASED = 0xFF
_LOWEST_SUPPLY = 1.7  # volts; VDD in the general operating conditions of ST's data sheet, STM32F746xx
CONSTANTS = "constants"
MODELS = {**rules.FACTORIES, **stm32.MODELS, **nordic.MODELS}
_INSTANCES = [row.split(" ", 1) for row in Path(__file__).with_name("instances.txt").read_text().splitlines()[1:]]
_BIT_BANDED = ("cortex-m4",)

_log = logging.getLogger(__name__)


class BoardModel(core_thread.CoreThread):
    """A board. All methods may be called from any thread.

    At too low a supply, the core does not run and the debug port does not respond. ``on_console_output`` is called
    with console output in the core's thread: it must not block.

    Attributes:
        trace: the last bytes of SWO that no probe has read.
        touched: messages about the first access of the core to a peripheral without a model.
    """

    def __init__(self, spec: MachineSpec, *, millivolts: int = NOMINAL_MILLIVOLTS) -> None:
        self.spec = spec
        self.volts = millivolts / 1000
        self.on_console_output: Callable[[bytes], None] = lambda data: None
        self._others: set[str] = set()  # serial lines beside the console that have sent
        self.touched: list[str] = []
        self._in_reset = False
        # Seeded: two runs have the same contents after the same number of power cycles.
        self._noise = random.Random(0)
        self._bus = Bus(spec.regions)
        for memory in self._bus.memories:
            if memory.region.kind != "ram" and not memory.region.alias_of:
                memory.fill(_ERASED)
        kind = kinds.KINDS[spec.cpu]
        self.port_ids = replace(kind.port, others=spec.access_ports)
        self._cpu = cpu.CortexM(
            kind, self._bus, interrupts=spec.interrupts, vector_table=spec.reset_vector_base, timing=spec.timing
        )
        super().__init__(spec.name, self._cpu)
        self.trace = self._cpu.trace
        self.signals = signals.Signals(self._cpu.now, self._cpu.reschedule)
        self._bus.add(signals.WINDOW, self.signals)  # for debuggers only, not for the core
        self._chip = blocks.parse(spec.blocks)
        self._peripherals: list[Device] = []
        self._consoles: list[SerialDevice] = []
        for peripheral in spec.peripherals:
            self._add(peripheral, self._print)
        self._debug_units = [device for device in self._peripherals if isinstance(device, stm32.DebugMcu)]
        controllers = EmbeddedFlash, H7FlashController, Nvmc
        self._flashes = [device for device in self._peripherals if isinstance(device, controllers)]
        self._add_blocks(self._chip)
        self._reset(ResetCause.POWER)

    @property
    def powered(self) -> bool:
        return self.volts >= _LOWEST_SUPPLY

    @property
    def debuggable(self) -> bool:
        """True if the debug port responds: with supply, and not in Stop mode without DBGMCU's clocks."""
        stopped = self._cpu.deeply_asleep and any(not unit.clocks_in_stop for unit in self._debug_units)
        return self.powered and not stopped

    def start(self) -> None:
        """Power the board: the core runs."""
        if self.powered:
            super().start()

    def read(self, address: int, size: int) -> bytes:
        """Read memory or registers as an access port: 1, 2 or 4 bytes, or a block by words."""
        with self._stopped_core():
            self._check_protection(address)
            return self._bus.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Write memory or registers as an access port."""
        with self._stopped_core():
            self._check_protection(address)
            self._bus.write(address, data)
            self._serve_reset_request()

    def _check_protection(self, address: int) -> None:
        """Refuse a debugger what read protection hides: an STM32's flash, all of an nRF52."""
        memory = self._bus.memory_at(address)
        is_flash = memory is not None and memory.region.kind == "flash"
        if any(flash.protected and (is_flash or isinstance(flash, Nvmc)) for flash in self._flashes):
            raise BusError(address)

    @property
    def protected(self) -> bool:
        return any(flash.protected for flash in self._flashes)

    def erase_all(self) -> None:
        with self._stopped_core():
            for flash in self._flashes:
                flash.erase_all()

    def hold_reset(self) -> None:
        """Pull nRST low: core and peripherals are held in reset; memory and debug keep their state."""
        with self._stopped_core():
            self._in_reset = True
            self._reset(ResetCause.PIN)

    def release_reset(self) -> None:
        """Release nRST: the core starts at its reset vector, or halts there if a debugger requested that."""
        with self._stopped_core():
            if not self._in_reset:
                return
            self._in_reset = False
            halt_requested = self._cpu.halted
            self._reset(ResetCause.PIN)
            if halt_requested and not self._cpu.halted:
                self._cpu.halt(debug.DFSR_HALTED)

    def power_cycle(self) -> None:
        """Switch the power off and on: flash keeps its contents, RAM holds noise, all registers are reset."""
        with self._stopped_core():
            for memory in self._bus.memories:
                if memory.region.kind == "ram":
                    memory.lose(self._noise)
                    self._bus.on_memory_change(memory.start, memory.end)
            self._cpu.power_on()
            self._reset(ResetCause.POWER)

    def console_input(self, data: bytes) -> None:
        """Send bytes to the board's serial line."""
        with self._stopped_core():
            for device in self._consoles:
                device.receive(data)

    @property
    def instructions(self) -> int:
        with self._stopped_core():
            return self._cpu.count

    def _add_blocks(self, chip: blocks.ChipMap) -> None:
        """Add the chip's peripherals that the specification lacks: with models, or as plain registers.

        On a board without a console, all serial lines are it.
        """
        lone = bool(self._consoles)
        for block in chip.blocks:
            name = f"{chip.chip} {block.name}"
            model = next((model for model, pattern in _INSTANCES if re.fullmatch(pattern, name)), None)
            if model and block.address % PAGE == 0 and not self._bus.overlaps(block.address, PAGE):
                settings = {f"at{offset:#x}": value for offset, (value, _) in block.registers.items()}
                irqs = tuple(irq for irq in block.irqs if irq < self.spec.interrupts)
                irq = irqs[0] if irqs else None
                instance = Peripheral(model=model, address=block.address, irq=irq, irqs=irqs, settings=settings)
                self._add(instance, functools.partial(self._tell, block.name) if lone else self._print)
        for start, size in blocks.free_runs(chip, self._bus):
            self._place(start, blocks.Blocks(chip, start, size, self._note_touch))
        if chip.blocks and self.spec.cpu in _BIT_BANDED:
            for alias, base in ((0x22000000, 0x20000000), (0x42000000, 0x40000000)):
                self._place(alias, BitBand(self._bus, base))

    def _note_touch(self, name: str, address: int) -> None:
        text = f"touched {name} at {address:#010x} from PC {self._cpu.core.state.begun:#010x}, which is not modelled"
        self.touched.append(text)
        _log.warning(text)

    def _place(self, address: int, device: Device) -> None:
        self._peripherals.append(device)
        self._cpu.add_device(address, device)
        if isinstance(device, Timer):
            self._cpu.add_timer(device)

    def _add(self, peripheral: Peripheral, send: Callable[[bytes], None]) -> None:
        if peripheral.model == CONSTANTS:
            self._add_constants(peripheral)
            return
        lines = tuple(self._line(irq) for irq in peripheral.irqs)
        names = (block.name for block in self._chip.blocks if block.address == peripheral.address)
        line, reset, name = self._line(peripheral.irq), self._cpu.request_reset, next(names, "")
        wiring = Wiring(self._bus, self._cpu, line, lines, send, reset, signals=self.signals, name=name)
        model = peripheral.model
        make = MODELS[model] if model in MODELS else find_model(self.spec.name, model, [*MODELS, CONSTANTS])
        device = make(peripheral, wiring)
        if peripheral.address % PAGE:
            raise ConfigError(
                f"{self.spec.name}: {peripheral.model} at {peripheral.address:#x}: not a multiple of {PAGE}"
            )
        if self._bus.overlaps(peripheral.address, device.size):
            raise ConfigError(
                f"{self.spec.name}: {peripheral.model} at {peripheral.address:#x} takes {device.size} bytes, and "
                "overlaps a memory or another device",
                "change the address of one of them in the board's file",
            )
        self._place(peripheral.address, device)
        if isinstance(device, SerialDevice) and send == self._print:
            self._consoles.append(device)

    def _line(self, irq: int | None) -> Callable[[bool], None]:
        if irq is None:
            return lambda level: None
        return lambda level: self._cpu.exceptions.set_line(irq, level)

    def _print(self, data: bytes) -> None:
        self.on_console_output(data)

    def _tell(self, name: str, _data: bytes) -> None:
        if name not in self._others:
            _log.warning("%s sends: it is not the console", name)
        self._others.add(name)

    def _add_constants(self, peripheral: Peripheral) -> None:
        """Write the constants of a read-only memory; settings are named word0, word1..."""
        for name, value in peripheral.settings.items():
            address = peripheral.address + 4 * int(name.removeprefix("word"))
            memory = self._bus.memory_at(address)
            if memory is None or memory.region.kind != "rom":
                raise ConfigError(f"{self.spec.name}: constants at {address:#x} need a region of kind rom there")
            memory.bytes[address - memory.start : address - memory.start + 4] = value.to_bytes(4, "little")

    def _may_run(self) -> bool:
        return not self._in_reset

    def _after_run(self) -> None:
        self._serve_reset_request()

    def _serve_reset_request(self) -> None:
        request = self._cpu.take_reset_request()
        if request:
            self._reset(ResetCause.SOFTWARE if request is True else request)
        elif request is not None:
            self._cpu.reset()

    def _reset(self, cause: ResetCause) -> None:
        for device in self._peripherals:
            device.reset()
            device.was_reset(cause)
        self._cpu.reset()
