# SPDX-License-Identifier: Apache-2.0
"""What boards behind JTAG pins share: a core's thread, devices by name, a console."""

from collections import deque
from collections.abc import Callable, Mapping

from utvm.virtual.bus import Bus, Device
from utvm.virtual.jtag.chain import Tap
from utvm.virtual.runner import CoreRunner
from utvm.virtual.spec import JtagSpec, Peripheral
from utvm.virtual.stage import Stage
from utvm.virtual.surroundings import Surroundings, maker_of

_PAUSE = 8000  # instructions between two fillings of a FIFO: a program takes the bytes out and looks at them


class SerialInput:
    """What comes on a serial line: it fills a UART's FIFO at once, and again after a while.

    Args:
        depth: bytes of the FIFO.
        filled: told that it was.

    Attributes:
        fifo: what the program has not taken yet.
    """

    def __init__(self, runner: CoreRunner, depth: int, filled: Callable[[], None]) -> None:
        self.fifo: deque[int] = deque()
        self._runner = runner
        self._depth = depth
        self._filled = filled
        self._coming: deque[int] = deque()
        self._next = 0

    def clear(self) -> None:
        """Forget what came."""
        self.fifo.clear()
        self._coming.clear()

    def receive(self, data: bytes) -> None:
        """Take what the host types."""
        self._coming.extend(data)
        self._runner.interrupt()

    def pending(self) -> int:
        """Fill the FIFO where it is time to; whoever has it interrupts."""
        if self._coming and self._runner.now() >= self._next:
            self._next = self._runner.now() + _PAUSE
            while self._coming and len(self.fifo) < self._depth:
                self.fifo.append(self._coming.popleft())
            self._filled()
        return 0

    def next_event(self) -> int | None:
        """Return when the FIFO is filled again."""
        return max(self._next, self._runner.now() + 1) if self._coming else None


class JtagBoard(Stage):
    """A board. All methods may be called from any thread.

    Args:
        runner: its core.
        models: what makes a device of a peripheral, by the name of its model.
        logic: what programmable logic holds.

    Attributes:
        on_console_output: receives what the board prints. Called from the core's thread: it must not block.
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
        # What others bring has no interrupt line here.
        around = Surroundings(bus, runner, lambda _: None, (), self._print, logic)
        for peripheral in spec.peripherals:
            make = models.get(peripheral.model)
            device = (
                make(peripheral) if make else maker_of(spec.name, peripheral.model, models)(peripheral, around)
            )
            bus.add(peripheral.address, device)
            runner.core.map_device(peripheral.address, device)
            self._devices.append(device)

    def console_input(self, data: bytes) -> None:
        """Send bytes to the board's serial line."""
        with self._visit():
            for line in self._inputs:
                line.receive(data)

    def reset(self) -> None:
        """Pull the system's reset line, and let it go."""
        with self._visit():
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
