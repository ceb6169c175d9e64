# SPDX-License-Identifier: Apache-2.0
"""A whole virtual board, as its debug port and its reset pin see it."""

import logging
import pkgutil
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from utvm.errors import ConfigError
from utvm.virtual.bus import PAGE, Bus, BusError, Device, ResetCause
from utvm.virtual.cortex_m.cpu import CortexM
from utvm.virtual.cortex_m.debug import DFSR_HALTED
from utvm.virtual.cortex_m.kinds import KINDS
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, MachineSpec, Peripheral
from utvm.virtual.stm32 import MODELS, Surroundings
from utvm.virtual.stm32.tim import TimDevice
from utvm.virtual.stm32.usart import Usart

__all__ = ["BoardModel", "BusError"]

_log = logging.getLogger(__name__)
_ERASED = 0xFF
_FAIR_SHARE = 2000  # instructions that the core executes between two visits, however many queue
_LOWEST_SUPPLY = 1.7  # volts; VDD in the general operating conditions of ST's data sheet, STM32F746xx
_DOZE = 0.005  # seconds: an idle board's clock runs many times faster than a real one's all the same
CONSTANTS = "constants"


class BoardModel:
    """A board. All methods may be called from any thread.

    The core runs in a thread of its own. Whoever looks in from outside stops it between two instructions; that
    changes neither what it does nor how many instructions it takes.

    Attributes:
        port_ids: what its debug port says that it is.
        on_console_output: receives what the board prints. Called from the core's thread: it must not block.

    Args:
        millivolts: its supply. With too little of it the core stands still, and its debug port is dead.

    Raises:
        ConfigError: the specification names an unknown model, or models do not fit the memory map.
        ToolchainError: the C part of the core cannot be compiled.
    """

    def __init__(self, spec: MachineSpec, *, millivolts: int = NOMINAL_MILLIVOLTS) -> None:
        self.spec = spec
        self.volts = millivolts / 1000
        self.on_console_output: Callable[[bytes], None] = lambda data: None
        self._condition = threading.Condition()
        self._gate = threading.Lock()  # of the number of visitors
        self._visitors = 0
        self._served = 0  # visits that have ended
        self._in_reset = False
        self._closing = False
        self._broken = False
        # Seeded: two runs find the same after the same number of power cycles.
        self._noise = random.Random(0)
        self._thread = threading.Thread(target=self._live, name=f"core of {spec.name}", daemon=True)
        self._bus = Bus(spec.regions)
        for memory in self._bus.memories:
            if memory.region.kind != "ram" and not memory.region.alias_of:
                memory.fill(_ERASED)
        kind = KINDS[spec.cpu]
        self.port_ids = kind.port
        self._cpu = CortexM(kind, self._bus, interrupts=spec.interrupts, vector_table=spec.reset_vector_base)
        self._peripherals: list[Device] = []
        for peripheral in spec.peripherals:
            self._add(peripheral)
        self._reset(ResetCause.POWER)

    @property
    def powered(self) -> bool:
        """Whether the supply is enough to work with."""
        return self.volts >= _LOWEST_SUPPLY

    def start(self) -> None:
        """Power the board: the core comes out of reset and runs."""
        if self.powered:
            self._thread.start()

    def close(self) -> None:
        """Stop the core for good. Safe to call again."""
        if self._closing:
            return
        with self._visit():
            self._closing = True
        if self._thread.ident is not None:
            self._thread.join()
        self._cpu.core.close()

    def read(self, address: int, size: int) -> bytes:
        """Read memory or registers, as the access port does: 1, 2 or 4 bytes, or a block in words.

        Raises:
            BusError: nobody answers at that address.
        """
        with self._visit():
            return self._bus.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Write memory or registers, as :meth:`read` reads them.

        Raises:
            BusError: nobody answers at that address, or it cannot be written.
        """
        with self._visit():
            self._bus.write(address, data)
            self._serve_reset_request()

    def hold_reset(self) -> None:
        """Pull nRST low: the core and the peripherals are reset and stand still; memory and debug stay."""
        with self._visit():
            self._in_reset = True
            self._reset(ResetCause.PIN)

    def release_reset(self) -> None:
        """Let nRST go: the core starts at its reset vector, or halts there if a debugger asked for it."""
        with self._visit():
            if not self._in_reset:
                return
            self._in_reset = False
            halt_asked = self._cpu.halted
            self._reset(ResetCause.PIN)
            if halt_asked and not self._cpu.halted:
                self._cpu.halt(DFSR_HALTED)

    def power_cycle(self) -> None:
        """Take the power away and give it back: RAM, registers and debug settings are lost, flash is not.

        RAM holds noise afterwards.
        """
        with self._visit():
            for memory in self._bus.memories:
                if memory.region.kind == "ram":
                    memory.lose(self._noise)
                    self._bus.on_memory_change(memory.start, memory.end)
            self._cpu.power_on()
            self._reset(ResetCause.POWER)

    def console_input(self, data: bytes) -> None:
        """Send bytes to the board's serial line."""
        with self._visit():
            for usart in self._peripherals:
                if isinstance(usart, Usart):
                    usart.receive(data)

    @property
    def instructions(self) -> int:
        """Instructions executed since the model was made."""
        with self._visit():
            return self._cpu.count

    def _add(self, peripheral: Peripheral) -> None:
        """Put a device on the bus.

        Raises:
            ConfigError: the board's file has it at an address where it cannot be.
        """
        if peripheral.model == CONSTANTS:
            self._add_constants(peripheral)
            return
        lines = tuple(self._line(irq) for irq in peripheral.irqs)
        around = Surroundings(self._bus, self._cpu, self._line(peripheral.irq), lines, self._print)
        device = self._maker(peripheral.model)(peripheral, around)
        if peripheral.address % PAGE:
            raise ConfigError(
                f"{self.spec.name}: {peripheral.model} at {peripheral.address:#x}: no multiple of {PAGE}"
            )
        if self._bus.is_taken(peripheral.address, device.size):
            raise ConfigError(
                f"{self.spec.name}: {peripheral.model} at {peripheral.address:#x} takes {device.size} bytes, and "
                "something else answers there already",
                "give one of the two another address in the board's file",
            )
        self._peripherals.append(device)
        self._cpu.add_device(peripheral.address, device)
        if isinstance(device, Usart | TimDevice):
            self._cpu.add_timer(device)

    def _maker(self, model: str) -> Callable[[Peripheral, Surroundings], Device]:
        """Return what makes a peripheral: one of ours, or what ``MODULE:NAME`` says."""
        if model in MODELS:
            return MODELS[model]
        try:
            if ":" in model:
                return cast(Callable[[Peripheral, Surroundings], Device], pkgutil.resolve_name(model))
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"{self.spec.name}: no model named {model!r}: {error}", "is the package that brings it installed?"
            ) from error
        known = ", ".join(sorted([*MODELS, CONSTANTS]))
        raise ConfigError(
            f"{self.spec.name}: no model named {model!r}", f"there are: {known}; MODULE:NAME is a further one"
        )

    def _line(self, irq: int | None) -> Callable[[bool], None]:
        """Return what drives an interrupt line."""
        if irq is None:
            return lambda level: None
        return lambda level: self._cpu.exceptions.set_line(irq, level)

    def _print(self, data: bytes) -> None:
        self.on_console_output(data)

    def _add_constants(self, peripheral: Peripheral) -> None:
        """Write words that the maker put into read-only memory; settings are named word0, word1...

        Raises:
            ConfigError: the board's file puts words where it has no read-only memory.
        """
        for name, value in peripheral.settings.items():
            address = peripheral.address + 4 * int(name.removeprefix("word"))
            memory = self._bus.memory_at(address)
            if memory is None or memory.region.kind != "rom":
                raise ConfigError(f"{self.spec.name}: constants at {address:#x} need a region of kind rom there")
            memory.bytes[address - memory.start : address - memory.start + 4] = value.to_bytes(4, "little")

    # The core's thread

    def _live(self) -> None:
        try:
            with self._condition:
                while not self._closing:
                    busy = not self._in_reset and self._cpu.run(_FAIR_SHARE)
                    self._serve_reset_request()
                    served = self._served
                    if self._cpu.dozing and not self._visitors:
                        # Otherwise a board that waits for its console would keep this computer busy.
                        self._condition.wait(_DOZE)
                        continue
                    while not self._closing and served == self._served and (self._visitors or not busy):
                        self._condition.wait()
        except Exception:
            self._broken = True
            _log.exception("the model of %s has failed", self.spec.name)

    def _serve_reset_request(self) -> None:
        peripherals = self._cpu.take_reset_request()
        if peripherals:
            self._reset(ResetCause.SOFTWARE)
        elif peripherals is not None:
            self._cpu.reset()

    def _reset(self, cause: ResetCause) -> None:
        for device in self._peripherals:
            device.reset()
            device.was_reset(cause)
        self._cpu.reset()

    @contextmanager
    def _visit(self) -> Iterator[None]:
        """Hold the core still between two instructions."""
        with self._gate:
            self._visitors += 1
            self._cpu.wanted = True
            # After "wanted": the core's thread clears "stop" and then looks at "wanted".
            self._cpu.core.state.stop = 1
        with self._condition:
            try:
                if self._broken:
                    raise BusError(0)
                yield
            finally:
                with self._gate:
                    self._visitors -= 1
                    self._cpu.wanted = self._visitors > 0
                self._served += 1
                self._condition.notify_all()
