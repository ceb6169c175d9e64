# SPDX-License-Identifier: Apache-2.0
"""An open board, for the rest of the project: one class for every board and driver."""

import contextlib
import logging
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from utvm import errors
from utvm.base.process import Service
from utvm.boards import Board
from utvm.boards.bitstream import Bitstream, read_bitstream
from utvm.boards.parts import Kind
from utvm.errors import BoardError, ProbeError
from utvm.probe import debug_port, packets
from utvm.probe.console import Console
from utvm.probe.gdb import GdbClient
from utvm.virtual import signals, wiring

if TYPE_CHECKING:
    from utvm.firmware import Firmware

_log = logging.getLogger("utvm.probe.openocd")

Unit = Literal["instructions", "modelled cycles", "cycles", "ns"]

_UNITS: Mapping[Kind, Unit] = {"virtual": "instructions", "physical": "cycles", "process": "ns"}


_STOP_SECONDS = 0.1  # Seconds for a debugger to detect a halted core.

WORTH_MOVING = 16 * 1024 * 1024
"""Default of :attr:`Connection.worth_moving`."""


class Edge(NamedTuple):
    """A change of a pin; ``tick`` is its time in ticks of the core clock, asleep or not."""

    tick: int
    level: bool


class Pin:
    """A pin (``PD12``, ``P0.13``) or a timer's channel (``TIM3_CH1``); its edges are recorded from then on.
    Also the device behind an SPI master (``SPI1``), or at an address of an I2C bus (``I2C1.50``).

    Raises BoardError if the board has no such signal.
    """

    def __init__(self, board: wiring.TargetMemory, name: str) -> None:
        self._board, self._name = board, name.encode().ljust(signals.NAME_BYTES, b"\0")
        if len(self._name) > signals.NAME_BYTES or self._read(signals.STATE) == signals.ABSENT:
            raise errors.BoardError(f"there is no pin {name!r}", "pins are PD12, P0.13, TIM3_CH1 and so on")

    def _read(self, offset: int, size: int = 4) -> int:
        self._board.write_memory(signals.WINDOW, self._name)
        return int.from_bytes(self._board.read_memory(signals.WINDOW + offset, size), "little")

    def _write(self, offset: int, value: int) -> None:
        self._board.write_memory(signals.WINDOW, self._name)
        self._board.write_memory(signals.WINDOW + offset, value.to_bytes(4, "little"))

    @property
    def level(self) -> bool | None:
        """Present level; None if the signal has none yet."""
        return {0: False, 1: True}.get(self._read(signals.STATE))

    def drive(self, level: bool | None) -> None:
        """Drive an input from outside; None releases it."""
        self._write(signals.STATE, signals.UNKNOWN if level is None else int(level))

    def edges(self) -> list[Edge]:
        """Return the last edges, at most 254, oldest first."""
        count, bits = min(self._read(signals.COUNT), signals.MOST_EDGES), 8 * signals.EDGE_BYTES
        data = self._read(signals.EDGES, count * signals.EDGE_BYTES) if count else 0
        rows = (data >> at for at in range(0, count * bits, bits))
        return [Edge(row & (1 << 64) - 1, bool(row >> 64 & 1)) for row in rows]

    def clear(self) -> None:
        """Discard the recorded edges."""
        self._write(signals.COUNT, 0)

    def reply(self, data: bytes) -> None:
        """Add bytes that the device behind a master will send; without any, it sends ones."""
        for byte in data:
            self._write(signals.REPLY, byte)

    def sent(self) -> bytes:
        """Return the bytes received since the last call. From the first call on, the device answers its master."""
        size = self._read(signals.SENT)
        data = self._read(signals.WIRE, size + 3 & ~3).to_bytes(size + 3, "little")[:size] if size else b""
        self._write(signals.SENT, 0)
        return data


class Checkable(Protocol):
    """A process or probe of a board."""

    def check(self) -> None:
        """Raise ProbeError if it has ended or was unplugged."""


@dataclass(eq=False)
class Connection:
    """An open board. Some have no debug port: a process, for instance.

    Attributes:
        kind: ``physical``, ``virtual`` or ``process``.
        model: description: a physical board, a software model or an emulator.
        capabilities: features that suites may require.
        logs: folder with the logs of its processes.
        serial: serial number of its probe, or empty.
        console: its serial line, or None.
        services: its processes and probe, which may fail.
        machine: the process that can power-cycle the board.
        emulated: True for an emulator: it lacks some registers and is always reset, not only halted.
        unit: unit of its cycle counter, if not the usual one of its kind.
        worth_moving: bytes that a test can write and read back in about a minute.
    """

    board: Board
    kind: Kind
    model: str
    capabilities: frozenset[str]
    logs: Path
    probe: str = ""
    serial: str = ""
    port: debug_port.DebugPort | None = None
    console: Console | None = None
    services: Sequence[Checkable] = ()
    machine: Service | None = None
    emulated: bool = False
    unit: Unit | None = None
    worth_moving: int = WORTH_MOVING
    _image: "Firmware | None" = field(default=None, init=False)

    @property
    def has_debug_port(self) -> bool:
        """True if it has a debug port."""
        return self.port is not None

    @property
    def _port(self) -> debug_port.DebugPort:
        if self.port is None:
            raise ProbeError(f"{self.board.name} has no debug port", 'mark the test with needs("debug port")')
        return self.port

    @property
    def gdb(self) -> GdbClient:
        """Client of its debug port; raises ProbeError if it has none."""
        return self._port.gdb

    @property
    def count_unit(self) -> Unit:
        """Unit of the cycle counter: a virtual board counts instructions, or modelled cycles."""
        return self.unit or _UNITS[self.kind]

    def describe(self) -> str:
        """Describe the board in one line."""
        serial = f"serial {self.serial}" if self.serial else ""
        return f"{self.board.full_name}: {', '.join(filter(None, (self.model, self.probe, serial)))}"

    def check(self) -> None:
        """Raise ProbeError if one of its processes has ended, or its probe was unplugged."""
        for service in self.services:
            service.check()

    def halted_access(self) -> contextlib.AbstractContextManager[None]:
        """Access memory several times with the core halted only once, if necessary."""
        return self._port.access()

    def read_memory(self, address: int, size: int) -> bytes:
        """Read target memory. Raises BoardError if an address is refused, ProbeError if probe or server fail."""
        with self._port.access():
            return self.gdb.read_memory(address, size)

    def write_memory(self, address: int, data: bytes) -> None:
        """Write target memory; flash is not written this way. Raises as :meth:`read_memory`."""
        with self._port.access():
            self.gdb.write_memory(address, data)

    def program(self, firmware: "Firmware") -> None:
        """Program and verify a firmware, unless the board holds it already; then halt at its first instruction.

        An image in RAM stays halted there until the next reset; flash is not changed. Raises BoardError if
        verification fails or the memory cannot be written, ProbeError if probe or server fail.
        """
        if not self.has_debug_port:
            return  # a process runs its program from a file
        self._image = None
        self.reset(halt=True)
        self.clear_breakpoints()  # one in the program would fail verification
        if self.first_difference(firmware) is not None:
            self._load(firmware)
        self._image = firmware
        self._port.set_symbols(firmware.symbols)
        if self.board.start.by == "entry" or firmware.in_ram:
            self._set_entry_registers(firmware)
        else:
            # A core reads its start address and stack pointer at reset.
            self.reset(halt=True)

    def program_logic(self, file: Path) -> Bitstream:
        """Load a bitstream into the board's programmable logic.

        Raises ConfigError if there is none, or the file is not a bitstream for it; ProbeError if probe or server
        fail.
        """
        logic = self.board.programmable
        bitstream = read_bitstream(file, logic)
        self._port.program_logic(file, logic.load)
        return bitstream

    def _load(self, firmware: "Firmware") -> None:
        flash = [region for region in self.board.memory if region.kind == "flash"]

        def in_flash(address: int) -> bool:
            return any(region.address <= address < region.end for region in flash)

        if to_program := [segment for segment in firmware.segments if in_flash(segment[0])]:
            try:
                self._port.program(to_program)
            except BoardError as refusal:
                # OpenOCD's timeout uses the wall clock, which may be set: a real failure occurs again.
                _log.warning("%s: once more: %s", self.board.name, refusal.message)
                self.reset(halt=True)
                self._port.program(to_program)
        for address, data in firmware.segments:
            if not in_flash(address):
                self.gdb.write_memory(address, data)
        wrong = self.first_difference(firmware)
        if wrong is not None:
            kind = "flash" if in_flash(wrong) else "ram"
            raise BoardError(
                f"{kind} of {self.board.name} reads back wrong at {wrong:#010x} after programming",
                "the flash may be worn out or write-protected" if kind == "flash" else "is its memory powered?",
            )

    def first_difference(self, firmware: "Firmware") -> int | None:
        """First address where memory differs from a firmware, or None."""
        for address, data in firmware.segments:
            contents = self.read_memory(address, len(data))
            if contents != data:
                return address + next(i for i, (a, b) in enumerate(zip(contents, data, strict=True)) if a != b)
        return None

    def reset(self, *, halt: bool) -> None:
        """Reset the board; ``halt`` stops it before its first instruction.

        Where the debugger starts programs, it starts the one programmed last, loaded again if memory has lost it.
        The same applies to an image in RAM with an RPC server.

        Raises:
            BoardError: its memory is not ready for an image.
            ProbeError: the probe or its server failed.
        """
        if self.board.start.by == "vectors":
            serves_rpc = self._image is not None and self._image.in_ram and self._image.pipe is not None
            self._port.reset(halt=halt or serves_rpc)
            if serves_rpc:
                self._restart_image(halt)
            return
        if self.board.start.reset or self.emulated:
            self._port.reset(halt=True)
        else:
            self._port.halt()
        self._prepare()
        if self._image is not None:
            self._restart_image(halt)

    def _restart_image(self, halt: bool) -> None:
        assert self._image
        if self.first_difference(self._image) is not None:
            self._load(self._image)
        self._set_entry_registers(self._image)
        if not halt:
            self.gdb.resume()

    def _prepare(self) -> None:
        for word in self.board.start.prepare:
            if self.emulated and not word.emulated:
                continue
            try:
                if word.write:
                    self._port.write_word(word.address, word.value)
                value = int.from_bytes(self.gdb.read_memory(word.address, 4), "little")
            except BoardError as error:
                raise BoardError(f"{self.board.full_name}: {error.message}", word.otherwise) from error
            if (value ^ word.value) & word.mask:
                raise BoardError(
                    f"{self.board.full_name} is not ready: {word.address:#010x} holds {value:#x}, "
                    f"not {word.value:#x} (mask {word.mask:#x})",
                    word.otherwise,
                )

    def _set_entry_registers(self, firmware: "Firmware") -> None:
        for name, value in firmware.entry_registers.items():
            self.gdb.write_register(name, value)

    @property
    def has_power_switch(self) -> bool:
        """True if :meth:`power_cycle` is supported."""
        return self.machine is not None

    def pin(self, name: str) -> Pin:
        """Return a pin of a virtual board. Raises BoardError on physical boards, or if there is no such pin."""
        if "pins" not in self.capabilities:
            raise BoardError(f"{self.board.name} has no accessible pins", 'mark the test with needs("pins")')
        return Pin(self, name)

    def trace_into(self, file: Path) -> None:
        """Append the bytes of the pin SWO to a file from now on; raises ProbeError if that is not possible."""
        self._port.trace_into(file, self.board.clock_hz)

    def power_cycle(self) -> None:
        """Switch the board off and on; its program starts without a debugger.

        RAM, registers and breakpoints are lost, flash is not. The debug port needs a :meth:`reset` afterwards.
        Raises BoardError without a power switch, ProbeError if the virtual board has ended.
        """
        if self.machine is None:
            raise BoardError(
                f"the power of {self.board.name} cannot be switched from here",
                "unplug a physical board and plug it in again by hand; an emulated one can only be reset, and a "
                "virtual one on USB is switched by the command that started it",
            )
        self.clear_breakpoints()
        self.machine.send_and_wait(signal.SIGUSR1, "power cycle [0-9]+ done")

    def insert_breakpoint(self, address: int) -> None:
        """Set a hardware breakpoint, or in RAM a software one if the core has none there."""
        ram = (region for region in self.board.memory if region.kind == "ram")
        self.gdb.insert_breakpoint(address, in_ram=any(region.address <= address < region.end for region in ram))

    def clear_breakpoints(self) -> None:
        """Remove all breakpoints."""
        with self._port.access():
            self.gdb.clear_breakpoints()

    def hand_over(self) -> packets.GdbLink:
        """Release the debug port to a debugger and return the connection to its server; raises ProbeError."""
        self.clear_breakpoints()
        return self.gdb.hand_over()

    def has_stopped(self) -> bool:
        """True if a running core has halted by itself."""
        return self.gdb.running and self.gdb.wait_for_stop(_STOP_SECONDS) is not None

    def halt(self) -> None:
        """Halt the core."""
        self._port.stop()

    def run_until_stop(self, timeout: float) -> int:
        """Run until the core stops, or stop it after ``timeout`` seconds; return the program counter."""
        self.gdb.resume()
        if self.gdb.wait_for_stop(timeout) is None:
            self.check()
            self.gdb.interrupt()
            if self.gdb.wait_for_stop(5.0) is None:
                raise ProbeError(f"{self.board.name} cannot be halted", "check its power and its debug cable")
        return self.gdb.read_register("pc")
