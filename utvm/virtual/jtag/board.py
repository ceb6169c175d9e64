# SPDX-License-Identifier: Apache-2.0
"""A board with a JTAG port: core, peripherals and console."""

import contextlib
import ctypes
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm.base.process.peer import Acceptor
from utvm.base.storage.files import private_folder
from utvm.errors import ConfigError
from utvm.virtual import core_thread, native
from utvm.virtual.bus import Bus, Device
from utvm.virtual.jtag.core import CoreRunner
from utvm.virtual.spec import JtagSpec, Peripheral
from utvm.virtual.wiring import Wiring, find_model

_log = logging.getLogger(__name__)
_TAPS = 4
_INSTRUCTIONS = 64
STREAM, EVENT = 255, 254
"""Special lengths. STREAM: ``update`` gets 64 bits at a time; EVENT: it is called for the instruction itself."""
_CAPTURE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
_UPDATE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
_RESET = ctypes.CFUNCTYPE(None)


@dataclass(frozen=True)
class Tap:
    """A test access port.

    Attributes:
        idcode_instruction: the instruction after a reset; it selects IDCODE.
        registers: length of the other data registers by instruction, or STREAM or EVENT; the rest is BYPASS.
        capture: returns the value of the instruction's data register.
        update: called with the value shifted into it.
    """

    instruction_bits: int
    idcode: int
    idcode_instruction: int
    registers: Mapping[int, int]
    capture: Callable[[int], int]
    update: Callable[[int, int], None]


class _TapState(ctypes.Structure):
    _fields_ = (
        *native.fields(ctypes.c_uint32, "instruction_bits idcode idcode_instruction instruction bits streamed"),
        ("shifted", ctypes.c_uint64),
        ("lengths", ctypes.c_uint8 * _INSTRUCTIONS),
    )


class _ChainState(ctypes.Structure):
    _fields_ = (
        ("capture", _CAPTURE),
        ("update", _UPDATE),
        ("reset", _RESET),
        ("taps", ctypes.c_uint32),
        ("tap", _TapState * _TAPS),
        *native.fields(ctypes.c_uint32, "state clock tdo left"),
    )


class BitbangServer(Acceptor):
    """Serves the pins of a chain on a Unix socket, which is cheaper than TCP; one client at a time.

    The tap at TDO comes first; ``reset`` is called when the system reset line is pulled. ``path`` is the socket,
    in a private folder that :meth:`close` removes.
    """

    def __init__(self, taps: Sequence[Tap], reset: Callable[[], None]) -> None:
        self._c = native.load_library(Path(__file__).with_name("chain.c"))
        self._c.utvm_bitbang.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._state = _ChainState(
            _CAPTURE(lambda tap, register: taps[tap].capture(register)),
            _UPDATE(lambda tap, register, value: taps[tap].update(register, value)),
            _RESET(reset),
            len(taps),
        )
        for state, tap in zip(self._state.tap, taps, strict=False):
            state.instruction_bits, state.idcode = tap.instruction_bits, tap.idcode
            state.instruction = state.idcode_instruction = tap.idcode_instruction
            state.bits = 1
            for instruction, bits in tap.registers.items():
                state.lengths[instruction] = bits
        with ConfigError.on(
            OSError, "no socket can be made for the pins:", "set TMPDIR to a folder on a disk with room"
        ):
            self._resources = contextlib.ExitStack()
            self.path: str = f"{self._resources.enter_context(private_folder())}/pins"
            super().__init__(socket.socket(socket.AF_UNIX))
            self._listener.bind(self.path)
        self._listener.listen()

    def serve(self) -> None:
        """Serve clients until :meth:`close`."""
        for client in self.clients():
            with client:
                error = self._c.utvm_bitbang(ctypes.byref(self._state), client.fileno())
                if error:
                    _log.info("the client left: %s", os.strerror(error))

    def close(self) -> None:
        super().close()
        self._resources.close()


_PAUSE = 8000  # instructions until a FIFO is filled again: a program needs time to read and handle the bytes


class SerialInput:
    """Input of a UART: fills its FIFO of ``depth`` bytes at once, calls ``on_fill``, and repeats after a pause."""

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
        """Fill the FIFO if it is time. The UART, not this, drives the interrupt."""
        if self._waiting and self._runner.now() >= self._next:
            self._next = self._runner.now() + _PAUSE
            while self._waiting and len(self.fifo) < self._depth:
                self.fifo.append(self._waiting.popleft())
            self._on_fill()
        return 0

    def next_event(self) -> int | None:
        """Time at which the FIFO is filled again."""
        return max(self._next, self._runner.now() + 1) if self._waiting else None


class JtagBoard(core_thread.CoreThread):
    """A board. All methods may be called from any thread.

    Device factories are given by model; ``logic`` returns the name of the bitstream in the programmable logic.
    ``on_console_output`` is called in the core's thread and must not block. The tap at TDO comes first.
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
        wiring = Wiring(bus, runner, lambda _: None, (), self._print, logic=logic)
        for peripheral in spec.peripherals:
            make = models.get(peripheral.model)
            device = make(peripheral) if make else find_model(spec.name, peripheral.model, models)(peripheral, wiring)
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
