# SPDX-License-Identifier: Apache-2.0
"""What the rest of the project sees of a board: one class, whatever the board is and however it is reached."""

import contextlib
import logging
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from utvm.base.process.service import Service
from utvm.boards import Board, Kind
from utvm.boards.bitstream import Bitstream, read_bitstream
from utvm.errors import BoardError, ProbeError
from utvm.probe.console import Console
from utvm.probe.debug_port import DebugPort
from utvm.probe.gdb import GdbClient

if TYPE_CHECKING:
    from utvm.firmware import Firmware

_log = logging.getLogger("utvm.probe.openocd")

Unit = Literal["instructions", "modelled cycles", "cycles", "ns"]

_UNITS: Mapping[Kind, Unit] = {"virtual": "instructions", "physical": "cycles", "process": "ns"}


WORTH_MOVING = 16 * 1024 * 1024
"""Of :class:`Bench`, where nothing slow is in between."""


class Checkable(Protocol):
    """Something that a board needs."""

    def check(self) -> None:
        """Raise ProbeError if it has died, or has been unplugged."""


class Connection:
    """A board that is powered, connected and ours.

    Parts that it has not are absent: a process has no debug port, and so has what else needs one to be reached.

    Attributes:
        board: what the board is.
        kind: ``physical``, ``virtual`` or ``process``.
        model: what the board is in the end, in words: on a desk, or software, and whose.
        capabilities: what suites may need and this one has.
        logs: the folder of what is said by what was started for it.
        probe: what drives its debug port, in words.
        serial: serial number of the probe, or an empty string where there is none.
        console: its serial line, or None where there is none, or a physical board's cannot be found.
        worth_moving: bytes that a test may write and read back in a minute or so.

    Args:
        port: its debug port.
        services: what it needs and what may die.
        machine: the process whose power can be switched.
        emulated: an emulator knows not all of the chip's registers, and is reset where a chip is only halted.
        unit: what its cycle counter counts, where that is not usual for its kind.
    """

    def __init__(
        self,
        board: Board,
        kind: Kind,
        model: str,
        capabilities: frozenset[str],
        logs: Path,
        *,
        probe: str = "",
        serial: str = "",
        port: DebugPort | None = None,
        console: Console | None = None,
        services: Sequence[Checkable] = (),
        machine: Service | None = None,
        emulated: bool = False,
        unit: Unit | None = None,
        worth_moving: int = WORTH_MOVING,
    ) -> None:
        self.board = board
        self.kind = kind
        self.model = model
        self.capabilities = capabilities
        self.logs = logs
        self.probe = probe
        self.serial = serial
        self.worth_moving = worth_moving
        self.console = console
        self._debug_port = port
        self._services = services
        self._machine = machine
        self._emulated = emulated
        self._unit = unit or _UNITS[kind]
        self._image: Firmware | None = None

    @property
    def has_debug_port(self) -> bool:
        """Whether its memory and its core can be reached from outside."""
        return self._debug_port is not None

    @property
    def _port(self) -> DebugPort:
        if self._debug_port is None:
            raise ProbeError(f"{self.board.name} has no debug port", 'mark the test with needs("debug port")')
        return self._debug_port

    @property
    def gdb(self) -> GdbClient:
        """The way to its debug port.

        Raises:
            ProbeError: it has none.
        """
        return self._port.gdb

    @property
    def count_unit(self) -> Unit:
        """What the cycle counter counts: a virtual board has instructions, or what a model makes of them."""
        return self._unit

    def describe(self) -> str:
        """Return one line that says what is on the bench."""
        serial = f"serial {self.serial}" if self.serial else ""
        return f"{self.board.full_name}: {', '.join(filter(None, (self.model, self.probe, serial)))}"

    def check(self) -> None:
        """Raise ProbeError if something that the board needs has died, or has been unplugged."""
        for service in self._services:
            service.check()

    def reaching(self) -> contextlib.AbstractContextManager[None]:
        """Reach memory several times in one ``with`` block: a core that must stand still for it does so once."""
        return self._port.access()

    def read_memory(self, address: int, size: int) -> bytes:
        """Read ``size`` bytes of target memory.

        Raises:
            BoardError: the board refuses the address.
            ProbeError: the probe or what drives it failed.
        """
        with self._port.access():
            return self.gdb.read_memory(address, size)

    def write_memory(self, address: int, data: bytes) -> None:
        """Write target memory; flash is not written this way. Raises as :meth:`read_memory`."""
        with self._port.access():
            self.gdb.write_memory(address, data)

    def program(self, firmware: "Firmware") -> None:
        """Put a firmware where it runs from, and verify it by reading it back.

        Nothing is done where the board holds it already. Afterwards the board stands before its first instruction.
        For an image in RAM alone that is so until the next reset; flash is left as it is.

        Raises:
            BoardError: the code memory reads back otherwise than it was written, or refuses.
            ProbeError: the probe or what drives it failed.
        """
        if not self.has_debug_port:
            return  # what is no chip runs its program from a file
        self._image = None
        self.reset(halt=True)
        self.clear_breakpoints()  # one in the program would be taken for a difference
        if self.first_difference(firmware) is not None:
            self._load(firmware)
        self._image = firmware
        self._port.programmed(firmware.symbols)
        if self.board.start.by == "entry" or firmware.in_ram:
            self._stand_at_entry(firmware)
        else:
            # A core takes its start and its stack from memory when it is reset.
            self.reset(halt=True)

    def program_logic(self, file: Path) -> Bitstream:
        """Program its programmable logic, after looking whether the bitstream is whole and for this chip.

        Raises:
            ConfigError: it has none, or the file is none for it: nothing was done.
            ProbeError: the probe or what drives it failed.
        """
        logic = self.board.programmable
        bitstream = read_bitstream(file, logic.part)
        self._port.program_logic(file, logic.load)
        return bitstream

    def _load(self, firmware: "Firmware") -> None:
        flash = [region for region in self.board.memory if region.kind == "flash"]

        def in_flash(address: int) -> bool:
            return any(region.address <= address < region.end for region in flash)

        if to_program := [segment for segment in firmware.segments if in_flash(segment[0])]:
            self._write_flash(to_program)
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

    def _write_flash(self, segments: Sequence[tuple[int, bytes]]) -> None:
        try:
            self._port.program(segments)
        except BoardError as refusal:
            # OpenOCD gives up by the wall clock, which may have been set: what a flash refuses, it refuses again.
            _log.warning("%s: once more: %s", self.board.name, refusal.message)
            self.reset(halt=True)
            self._port.program(segments)

    def first_difference(self, firmware: "Firmware") -> int | None:
        """Return the first address where memory differs from a firmware, or None where it is the same."""
        for address, data in firmware.segments:
            held = self.read_memory(address, len(data))
            if held != data:
                return address + next(i for i, (a, b) in enumerate(zip(held, data, strict=True)) if a != b)
        return None

    def reset(self, *, halt: bool) -> None:
        """Reset the board; ``halt`` stops it before its first instruction.

        Where the debugger starts the program, it is the one that was programmed last, loaded again if the board
        has lost it: a core that is only halted, because a reset would cost it its memory, stands there too. It is
        the same with an image in RAM alone that clients are served by.

        Raises:
            BoardError: its memory is not ready for an image.
            ProbeError: the probe or what drives it failed.
        """
        if self.board.start.by == "vectors":
            served = self._image is not None and self._image.in_ram and self._image.pipe is not None
            self._port.reset(halt=halt or served)
            if served:
                self._stand_anew(halt)
            return
        if self.board.start.reset or self._emulated:
            self._port.reset(halt=True)
        else:
            self._port.halt()
        self._prepare()
        if self._image is not None:
            self._stand_anew(halt)

    def _stand_anew(self, halt: bool) -> None:
        """Have the board stand at the start of the image that was programmed last, or begin with it."""
        assert self._image
        if self.first_difference(self._image) is not None:
            self._load(self._image)
        self._stand_at_entry(self._image)
        if not halt:
            self.gdb.resume()

    def _prepare(self) -> None:
        """Do and check what memory needs before an image is in it."""
        for word in self.board.start.prepare:
            if self._emulated and not word.emulated:
                continue
            try:
                if word.write:
                    self._port.write_word(word.address, word.value)
                found = int.from_bytes(self.gdb.read_memory(word.address, 4), "little")
            except BoardError as error:
                raise BoardError(f"{self.board.full_name}: {error.message}", word.otherwise) from error
            if (found ^ word.value) & word.mask:
                raise BoardError(
                    f"{self.board.full_name} is not ready: {word.address:#010x} holds {found:#x}, "
                    f"not {word.value:#x} (mask {word.mask:#x})",
                    word.otherwise,
                )

    def _stand_at_entry(self, firmware: "Firmware") -> None:
        for name, value in firmware.entry_registers.items():
            self.gdb.write_register(name, value)

    @property
    def has_power_switch(self) -> bool:
        """Whether :meth:`power_cycle` works here."""
        return self._machine is not None

    def power_cycle(self) -> None:
        """Take the board's power away and give it back; its program starts, with no debugger on it.

        RAM, registers and breakpoints are lost, flash is not. The debug port has lost its connection, and answers
        again after a :meth:`reset`.

        Raises:
            BoardError: nothing here can switch this board's power.
            ProbeError: the virtual board has died.
        """
        if self._machine is None:
            raise BoardError(
                f"the power of {self.board.name} cannot be switched from here",
                "unplug a physical board and plug it in again by hand; an emulated one can only be reset, and one "
                "on USB is switched by who started it",
            )
        self.clear_breakpoints()
        self._machine.ask(signal.SIGUSR1, "power cycle [0-9]+ done")

    def insert_breakpoint(self, address: int) -> None:
        """Set a breakpoint: the core's own, or in RAM one in the program where the core has none there."""
        ram = (region for region in self.board.memory if region.kind == "ram")
        self.gdb.insert_breakpoint(address, in_ram=any(one.address <= address < one.end for one in ram))

    def clear_breakpoints(self) -> None:
        """Take out all breakpoints."""
        with self._port.access():
            self.gdb.clear_breakpoints()

    def hand_over(self) -> int:
        """Leave the debug port to somebody's debugger; return the TCP port of this computer where it is served.

        Its memory and its core are out of our reach from then on.

        Raises:
            ProbeError: it has none, or what drives it failed.
        """
        self.clear_breakpoints()
        return self.gdb.hand_over()

    def run_until_stop(self, timeout: float) -> int:
        """Let the core run until it stops by itself, or stop it after a while; return the program counter.

        Args:
            timeout: seconds.
        """
        self.gdb.resume()
        if self.gdb.wait_for_stop(timeout) is None:
            self.check()
            self.gdb.interrupt()
            if self.gdb.wait_for_stop(5.0) is None:
                raise ProbeError(f"{self.board.name} cannot be halted", "check its power and its debug cable")
        return self.gdb.read_register("pc")
