"""Puts a board on the bench: physical or virtual, as one object.

:func:`attach` finds the board, holds its lock, starts what it needs (a virtual board and OpenOCD, or QEMU, and the
console) and ends all of it when its ``with`` block ends. :class:`Bench` is what the rest of the project sees of a
board.
"""

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import platformdirs

from utvm.boards import Board, Emulator, Identity, Kind, Physical, ProbeMatch, Simulator
from utvm.console import Console
from utvm.errors import BoardError, ConfigError, ProbeError
from utvm.firmware import Firmware
from utvm.lock import hold
from utvm.probe.choice import Wish, find_probe, match_of
from utvm.probe.debug_port import DebugPort, OpenOcdPort, QemuPort
from utvm.probe.gdb import GdbClient
from utvm.probe.openocd import OpenOcd
from utvm.probe.qemu import Qemu
from utvm.probe.spike import start_spike
from utvm.probe.usb import Probe, serial_ports
from utvm.probe.virtual import start_virtual
from utvm.process import Service


class Bench:
    """A board that is powered, connected and ours.

    Attributes:
        board: what the board is.
        kind: ``physical`` or ``virtual``.
        model: what the board is in the end, in words: on a desk, or software, and whose.
        probe: what drives its debug port, in words.
        serial: serial number of the probe, or an empty string where there is none.
        gdb: the way to its debug port.
        console: its serial line, or None where a physical board's cannot be found.
    """

    def __init__(
        self,
        board: Board,
        kind: Kind,
        model: str,
        probe: str,
        serial: str,
        gdb: GdbClient,
        port: DebugPort,
        console: Console | None,
        services: tuple[Service | OpenOcd | Qemu | Probe, ...],
        machine: Service | None = None,
        match: ProbeMatch | None = None,
    ) -> None:
        self.board = board
        self.kind = kind
        self.model = model
        self.probe = probe
        self.serial = serial
        self.gdb = gdb
        self._port = port
        self.console = console
        self._services = services
        self._machine = machine
        self._match = match
        self._image: Firmware | None = None

    @property
    def capabilities(self) -> frozenset[str]:
        """What suites may need and this one has."""
        return self.board.capabilities_of(self.kind, self._match)

    @property
    def count_unit(self) -> Literal["instructions", "cycles"]:
        """What the board's cycle counter counts: a virtual board has instructions, not time."""
        return "instructions" if self.kind == "virtual" else "cycles"

    def describe(self) -> str:
        """Return one line that says what is on the bench."""
        serial = f", serial {self.serial}" if self.serial else ""
        return f"{self.board.spoken}: {self.model}, {self.probe}{serial}"

    def check(self) -> None:
        """Raise ProbeError if something that the board needs has died, or has been unplugged."""
        for service in self._services:
            service.check()

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

    def program(self, firmware: Firmware) -> None:
        """Put a firmware where it runs from, and verify it by reading it back.

        Nothing is done where the board holds it already. Afterwards the board stands before its first instruction.
        For an image in RAM alone that is so until the next reset; flash is left as it is.

        Raises:
            BoardError: the code memory reads back otherwise than it was written, or refuses.
            ProbeError: the probe or what drives it failed.
        """
        self._image = None
        self.reset(halt=True)
        if self.first_difference(firmware) is not None:
            self._load(firmware)
        self._image = firmware
        if self.board.start.by == "entry" or firmware.in_ram:
            self._stand_at_entry(firmware)
        else:
            # A core takes its start and its stack from memory when it is reset.
            self.reset(halt=True)

    def _load(self, firmware: Firmware) -> None:
        flash = [region for region in self.board.memory if region.kind == "flash"]

        def in_flash(address: int) -> bool:
            return any(region.address <= address < region.end for region in flash)

        if to_program := [segment for segment in firmware.segments if in_flash(segment[0])]:
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

    def first_difference(self, firmware: Firmware) -> int | None:
        """Return the first address where memory differs from a firmware, or None where it is the same."""
        for address, data in firmware.segments:
            held = self.read_memory(address, len(data))
            if held != data:
                return address + next(i for i, (a, b) in enumerate(zip(held, data, strict=True)) if a != b)
        return None

    def reset(self, *, halt: bool) -> None:
        """Reset the board; ``halt`` stops it before its first instruction.

        Where the debugger starts the program, it is the one that was programmed last, loaded again if the board
        has lost it: a core that is only halted, because a reset would cost it its memory, stands there too.

        Raises:
            BoardError: its memory is not ready for an image.
            ProbeError: the probe or what drives it failed.
        """
        if self.board.start.by == "vectors":
            self._port.reset(halt=halt)
            return
        if self.board.start.reset or self._is_emulated:
            self._port.reset(halt=True)
        else:
            self._port.halt()
        self._prepare()
        if self._image is not None:
            if self.first_difference(self._image) is not None:
                self._load(self._image)
            self._stand_at_entry(self._image)
            if not halt:
                self.gdb.resume()

    @property
    def _is_emulated(self) -> bool:
        return self.kind == "virtual" and self.board.virtual.emulator is not None

    def _prepare(self) -> None:
        """Do and check what memory needs before an image is in it."""
        for word in self.board.start.prepare:
            if self._is_emulated and not word.emulated:
                continue
            try:
                if word.write:
                    self._port.write_word(word.address, word.value)
                found = int.from_bytes(self.gdb.read_memory(word.address, 4), "little")
            except BoardError as error:
                raise BoardError(f"{self.board.spoken}: {error.message}", word.otherwise) from error
            if (found ^ word.value) & word.mask:
                raise BoardError(
                    f"{self.board.spoken} is not ready: {word.address:#010x} holds {found:#x}, "
                    f"not {word.value:#x} (mask {word.mask:#x})",
                    word.otherwise,
                )

    def _stand_at_entry(self, firmware: Firmware) -> None:
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
        """Set a hardware breakpoint."""
        self.gdb.insert_breakpoint(address)

    def clear_breakpoints(self) -> None:
        """Take out all breakpoints."""
        with self._port.access():
            self.gdb.clear_breakpoints()

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


@contextlib.contextmanager
def attach(
    board: Board, wish: Wish, *, log_directory: Path, serial: str = "", latency_us: int = 0
) -> Iterator[Bench]:
    """Put a board on the bench for the length of a ``with`` block.

    Args:
        wish: ``auto`` takes a physical board if one is plugged in.
        serial: of its probe, where several are plugged in; a virtual board's on USB is taken only with it.
        log_directory: where OpenOCD, the virtual board and QEMU keep their logs.
        latency_us: microseconds that every command of a virtual probe takes.

    Raises:
        ConfigError: the wish cannot be told from what is plugged in, or is nothing that the board has.
        ProbeError: no such probe, or OpenOCD cannot use it; QEMU is not installed, or cannot start.
        BoardError: another process uses the board, or the chip is not this board's.
    """
    probe = find_probe(board, wish, serial)
    with contextlib.ExitStack() as stack:
        if probe is None:
            stack.enter_context(hold(f"virtual {board.spoken}", directory=_own_state()))
        if board.physical and probe is not None:
            yield _on_usb(stack, board, board.physical, probe, log_directory)
        elif board.physical and board.virtual.model:
            yield _modelled(stack, board, board.physical, log_directory, latency_us)
        elif latency_us:
            raise ConfigError(f"{board.name} is emulated: it has no probe that could be slow")
        elif board.simulator:
            yield _simulated(stack, board, board.simulator, log_directory)
        elif board.virtual.emulator:
            yield _in_qemu(stack, board, board.virtual.emulator, log_directory)


def _own_state() -> Path:
    """Return a directory of this user only: others have virtual boards of their own."""
    own = platformdirs.user_state_path("utvm")
    try:
        own.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{own}: cannot be made: {error.strerror}", "set XDG_STATE_HOME") from error
    return own


def _on_usb(
    stack: contextlib.ExitStack, board: Board, physical: Physical, probe: Probe, log_directory: Path
) -> Bench:
    """Start OpenOCD on a probe: that of a physical board, or one of a virtual board that says so."""
    stack.enter_context(hold(f"{probe.kind} {probe.serial}"))
    kind: Kind = "virtual" if probe.virtual else "physical"
    match = match_of(board, probe)
    assert match
    commands = [physical.select_serial.format(serial=probe.serial)]
    openocd, gdb = _openocd(stack, board, commands, log_directory, match.openocd)
    _check_identity(board.name, physical.identity, gdb, probe.serial)
    console_url = next(iter(serial_ports(probe.serial, physical.console_interface)), None)
    return Bench(
        board,
        kind,
        "VIRTUAL board, a software model" if probe.virtual else "PHYSICAL board",
        f"{'virtual ' if probe.virtual else ''}{probe.kind} at USB {probe.usb_path}",
        probe.serial,
        gdb,
        OpenOcdPort(gdb, live=_is_live(board, kind, match)),
        stack.enter_context(_console(board, console_url)) if console_url else None,
        (probe, openocd),
        match=match,
    )


def _modelled(
    stack: contextlib.ExitStack, board: Board, physical: Physical, log_directory: Path, latency_us: int
) -> Bench:
    """Start a software model, and OpenOCD on it."""
    machine = stack.enter_context(start_virtual(board, log_directory, latency_us=latency_us))
    assert machine.health_match
    commands = [board.model.probe.format(port=machine.health_match["stlink"])]
    openocd, gdb = _openocd(stack, board, commands, log_directory)
    _check_identity(board.name, physical.identity, gdb, board.model.serial)
    return Bench(
        board,
        "virtual",
        "VIRTUAL board, a software model",
        "virtual ST-Link",
        board.model.serial,
        gdb,
        OpenOcdPort(gdb, live=_is_live(board, "virtual")),
        stack.enter_context(_console(board, f"socket://127.0.0.1:{machine.health_match['console']}")),
        (machine, openocd),
        machine,
    )


def _openocd(
    stack: contextlib.ExitStack, board: Board, commands: Sequence[str], log_directory: Path, config: str = ""
) -> tuple[OpenOcd, GdbClient]:
    """Start OpenOCD, and connect to it."""
    script = board.directory / config if config else board.openocd_config
    openocd = stack.enter_context(OpenOcd(script, commands=commands, log=log_directory / "openocd.log"))
    gdb = stack.enter_context(
        GdbClient("127.0.0.1", openocd.gdb_port, breakpoint_kind=board.cpu_row.breakpoint_kind)
    )
    return openocd, gdb


def _simulated(stack: contextlib.ExitStack, board: Board, simulator: Simulator, log_directory: Path) -> Bench:
    """Start Spike, and OpenOCD on it. Its serial line is on its own terminal, which it has not here."""
    spike = stack.enter_context(start_spike(simulator, board.memory, log_directory / "spike.log"))
    assert spike.health_match
    commands = [simulator.probe.format(port=spike.health_match["port"])]
    openocd, gdb = _openocd(stack, board, commands, log_directory)
    return Bench(
        board,
        "virtual",
        "VIRTUAL board, simulated by Spike",
        "JTAG over TCP",
        "",
        gdb,
        OpenOcdPort(gdb, live=_is_live(board, "virtual")),
        None,
        (spike, openocd),
    )


def _in_qemu(stack: contextlib.ExitStack, board: Board, emulator: Emulator, log_directory: Path) -> Bench:
    """Start QEMU, which is board and debug port in one."""
    instead = ", for want of Spike" if board.virtual.simulator else ""
    qemu = stack.enter_context(Qemu(emulator, log=log_directory / "qemu.log"))
    kind = board.cpu_row.breakpoint_kind
    gdb = stack.enter_context(GdbClient("127.0.0.1", qemu.gdb_port, advice=qemu.advice, breakpoint_kind=kind))
    return Bench(
        board,
        "virtual",
        f"VIRTUAL board, emulated by QEMU ({emulator.machine}{instead})",
        "QEMU's GDB stub without OpenOCD",
        "",
        gdb,
        QemuPort(gdb, live=_is_live(board, "virtual")),
        stack.enter_context(_console(board, f"socket://127.0.0.1:{qemu.console_port}")),
        (qemu,),
    )


def _is_live(board: Board, kind: Kind, match: ProbeMatch | None = None) -> bool:
    return "memory while running" in board.capabilities_of(kind, match)


def _console(board: Board, url: str) -> Console:
    return Console(url, board.console.baud, board.console.flow_control)


def _check_identity(board: str, expected: Identity, gdb: GdbClient, serial: str) -> None:
    """Refuse a board of another kind before anything is programmed into it."""
    try:
        found = int.from_bytes(gdb.read_memory(expected.address, 4), "little") & expected.mask
        said = f"says {found:#x}, not {expected.value:#x}"
    except BoardError as error:
        found, said = None, f"cannot be read: {error.message}"
    if found != expected.value:
        raise BoardError(
            f"the board at probe {serial} is not {board}: {expected.register_name} {said}",
            "name the right probe with --serial (./inv board.detect lists them), or use --virtual",
        )
