# SPDX-License-Identifier: Apache-2.0
"""A board with a JTAG port: core, peripherals and console."""

from collections import deque
from collections.abc import Callable, Mapping

from utvm.virtual.bus import Bus, Device
from utvm.virtual.core_thread import CoreThread
from utvm.virtual.jtag.chain import Tap
from utvm.virtual.jtag.core import CoreRunner
from utvm.virtual.spec import JtagSpec, Peripheral
from utvm.virtual.wiring import Wiring, find_model

_PAUSE = 8000  # instructions until a FIFO is filled again: a program needs time to read and handle the bytes


class SerialInput:
    """Input of a UART: fills its FIFO at once, and again after a pause.

    Args:
        depth: size of the FIFO in bytes.
        on_fill: called after bytes were added.

    Attributes:
        fifo: bytes that the program has not read yet.
    """

    def __init__(self, runner: CoreRunner, depth: int, on_fill: Callable[[], None]) -> None:
        self.fifo: deque[int] = deque()
        self._runner = runner
        self._depth = depth
        self._on_fill = on_fill
        self._waiting: deque[int] = deque()
        self._next = 0

    def clear(self) -> None:
        self.fifo.clear()
        self._waiting.clear()

    def receive(self, data: bytes) -> None:
        self._waiting.extend(data)
        self._runner.interrupt()

    def pending(self) -> int:
        """Fill the FIFO if it is time to. The UART, not this, drives the interrupt."""
        if self._waiting and self._runner.now() >= self._next:
            self._next = self._runner.now() + _PAUSE
            while self._waiting and len(self.fifo) < self._depth:
                self.fifo.append(self._waiting.popleft())
            self._on_fill()
        return 0

    def next_event(self) -> int | None:
        """Time at which the FIFO is filled again."""
        return max(self._next, self._runner.now() + 1) if self._waiting else None


class JtagBoard(CoreThread):
    """A board. All methods may be called from any thread.

    Args:
        models: factories of devices by model.
        logic: returns the name of the bitstream in the programmable logic.

    Attributes:
        on_console_output: receives console output, in the core's thread: it must not block.
        taps: its TAPs, the one at TDO first.
    """

    def __init__(
        self,
        spec: JtagSpec,
        runner: CoreRunner,
        bus: Bus,
        models: Mapping[str, Callable[[Peripheral], Device]],
        logic: Callable[[], str] = lambda: "",
    ) -> None:
        self.on_console_output: Callable[[bytes], None] = lambda data: None
        self.taps: tuple[Tap, ...] = tuple(
            Tap(tap.instruction_bits, tap.idcode, tap.idcode_instruction, {}, lambda _: 0, lambda _, __: None)
            for tap in spec.taps
        )
        self._runner = runner
        self._bus = bus
        self._devices: list[Device] = []
        self._inputs: list[SerialInput] = []
        super().__init__(spec.name, runner)
        # Models of other packages have no interrupt line here.
        wiring = Wiring(bus, runner, lambda _: None, (), self._print, logic)
        for peripheral in spec.peripherals:
            make = models.get(peripheral.model)
            device = (
                make(peripheral) if make else find_model(spec.name, peripheral.model, models)(peripheral, wiring)
            )
            bus.add(peripheral.address, device)
            runner.core.map_device(peripheral.address, device)
            self._devices.append(device)

    def console_input(self, data: bytes) -> None:
        """Send bytes to the board's serial line."""
        with self._stopped_core():
            for line in self._inputs:
                line.receive(data)

    def reset(self) -> None:
        """Pulse the system reset line."""
        with self._stopped_core():
            self._reset()

    def _has_work(self) -> bool:
        return not self._runner.halted

    def _print(self, data: bytes) -> None:
        self.on_console_output(data)

    def _reset(self) -> None:
        for device in self._devices:
            device.reset()
        self._runner.reset()

    def _add_input(self, line: SerialInput) -> None:
        self._inputs.append(line)
        self._runner.sources.insert(0, line)
