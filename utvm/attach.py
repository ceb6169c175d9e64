"""Puts a board on the bench: physical or virtual, as one object.

:func:`attach` finds the board, holds its lock, starts what it needs (a virtual board and OpenOCD, or QEMU, and the
console) and ends all of it when its ``with`` block ends. :class:`Bench` is what the rest of the project sees of a
board.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import platformdirs
from serial.tools import list_ports

from utvm.boards import Board, OpenOcdBoard, QemuBoard
from utvm.console import Console
from utvm.errors import BoardError, ConfigError, ProbeError
from utvm.firmware import Firmware
from utvm.lock import hold
from utvm.probe.debug_port import DebugPort, OpenOcdPort, QemuPort
from utvm.probe.gdb import GdbClient
from utvm.probe.openocd import OpenOcd
from utvm.probe.qemu import Qemu
from utvm.probe.usb import Probe, ProbeId, detect
from utvm.process import Service

Kind = Literal["virtual", "physical"]
Wish = Literal["auto", "virtual", "physical"]


def wish(physical: bool, virtual: bool) -> Wish:
    """Turn the two switches of the command line into one wish.

    Raises:
        ConfigError: both are given.
    """
    if physical and virtual:
        raise ConfigError("--physical and --virtual exclude each other", "give one, or neither")
    return "physical" if physical else "virtual" if virtual else "auto"


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
        services: tuple[Service | OpenOcd | Qemu, ...],
        machine: Service | None = None,
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

    @property
    def count_unit(self) -> Literal["instructions", "cycles"]:
        """What the board's cycle counter counts: a virtual board has instructions, not time."""
        return "instructions" if self.kind == "virtual" else "cycles"

    def describe(self) -> str:
        """Return one line that says what is on the bench."""
        serial = f", serial {self.serial}" if self.serial else ""
        return f"{self.board.name}: {self.model}, {self.probe}{serial}"

    def check(self) -> None:
        """Raise ProbeError if something that the board needs has died."""
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
        """Program a firmware and verify it by reading it back; nothing is done where the board holds it already.

        Raises:
            BoardError: the code memory reads back otherwise than it was written, or refuses.
            ProbeError: the probe or what drives it failed.
        """
        self.reset(halt=True)
        if self.first_difference(firmware) is None:
            return
        self._port.program(firmware.segments)
        wrong = self.first_difference(firmware)
        if wrong is not None:
            kind = self.board.region(self.board.layout.code).kind
            raise BoardError(
                f"{kind} of {self.board.name} reads back wrong at {wrong:#010x} after programming",
                "the flash may be worn out or write-protected",
            )

    def first_difference(self, firmware: Firmware) -> int | None:
        """Return the first address where memory differs from a firmware, or None where it is the same."""
        for address, data in firmware.segments:
            held = self.read_memory(address, len(data))
            if held != data:
                return address + next(i for i, (a, b) in enumerate(zip(held, data, strict=True)) if a != b)
        return None

    def reset(self, *, halt: bool) -> None:
        """Reset the board; ``halt`` stops it before its first instruction."""
        self._port.reset(halt=halt)

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
                "unplug a physical board and plug it in again by hand; an emulated one can only be reset",
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
        serial: which physical board, where several are plugged in.
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
            stack.enter_context(hold(f"virtual {board.name}", directory=_own_state()))
        if isinstance(board, OpenOcdBoard):
            yield _through_openocd(stack, board, probe, log_directory, latency_us)
        elif isinstance(board, QemuBoard):
            if latency_us:
                raise ConfigError(f"{board.name} is emulated by QEMU: it has no probe that could be slow")
            yield _in_qemu(stack, board, log_directory)


def _own_state() -> Path:
    """Return a directory of this user only: others have virtual boards of their own."""
    own = platformdirs.user_state_path("utvm")
    try:
        own.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{own}: cannot be made: {error.strerror}", "set XDG_STATE_HOME") from error
    return own


def _through_openocd(
    stack: contextlib.ExitStack, board: OpenOcdBoard, probe: Probe | None, log_directory: Path, latency_us: int
) -> Bench:
    """Start a software model where there is no probe, and OpenOCD on it or on the probe."""
    if probe is None:
        identity = board.virtual.serial
        machine = stack.enter_context(start_virtual(board, log_directory, latency_us=latency_us))
        assert machine.health_match
        commands = [board.openocd.virtual_probe.format(port=machine.health_match["stlink"])]
        console_url: str | None = f"socket://127.0.0.1:{machine.health_match['console']}"
        description = "virtual ST-Link"
        switched: Service | None = machine
    else:
        identity = probe.serial
        stack.enter_context(hold(f"{probe.kind} {identity}"))
        commands = [board.openocd.select_serial.format(serial=identity)]
        console_url = _serial_device(identity)
        description = f"{probe.kind} at USB {probe.usb_path}"
        switched = None
    openocd = stack.enter_context(
        OpenOcd(board.openocd_config, commands=commands, log=log_directory / "openocd.log")
    )
    gdb = stack.enter_context(GdbClient("127.0.0.1", openocd.gdb_port))
    _check_identity(board, gdb, identity)
    return Bench(
        board,
        "virtual" if probe is None else "physical",
        "VIRTUAL board, a software model" if probe is None else "PHYSICAL board",
        description,
        identity,
        gdb,
        OpenOcdPort(gdb),
        stack.enter_context(_console(board, console_url)) if console_url else None,
        (openocd,) if switched is None else (switched, openocd),
        switched,
    )


def _in_qemu(stack: contextlib.ExitStack, board: QemuBoard, log_directory: Path) -> Bench:
    """Start QEMU, which is board and debug port in one."""
    emulator = board.virtual.emulator
    code = board.region(board.layout.code).address
    qemu = stack.enter_context(Qemu(emulator, code, log=log_directory / "qemu.log"))
    gdb = stack.enter_context(GdbClient("127.0.0.1", qemu.gdb_port, advice=qemu.advice))
    return Bench(
        board,
        "virtual",
        f"VIRTUAL board, emulated by QEMU ({emulator.machine})",
        "QEMU's GDB stub without OpenOCD",
        board.virtual_serial,
        gdb,
        QemuPort(gdb),
        stack.enter_context(_console(board, f"socket://127.0.0.1:{qemu.console_port}")),
        (qemu,),
    )


def _console(board: Board, url: str) -> Console:
    return Console(url, board.console.baud, board.console.flow_control)


def start_virtual(board: OpenOcdBoard, log_directory: Path, *, port: int = 0, latency_us: int = 0) -> Service:
    """Return the process of a virtual board, to be entered with ``with``.

    Its ``health_match`` has the groups ``stlink`` and ``console``: TCP ports on the loopback interface.
    """
    return Service(
        f"virtual {board.name}",
        [
            sys.executable,
            "-m",
            "utvm.virtual",
            f"--stlink-port={port}",
            "--console-port=0",
            f"--latency-us={latency_us}",
            f"--serial={board.virtual.serial}",
        ],
        log=log_directory / "virtual.log",
        health=r"ready: st-link tcp (?P<stlink>\d+), console tcp (?P<console>\d+)",
        error=ProbeError,
        stdin=board.machine_spec().model_dump_json(),
    )


def find_probe(board: Board, wish: Wish, serial: str) -> Probe | None:
    """Return the probe to use, or None for the virtual board."""
    if not isinstance(board, OpenOcdBoard):
        if wish == "physical" or serial:
            raise ConfigError(f"{board.name} is emulated: there is no physical one here", "leave that out")
        return None
    if wish == "virtual":
        if serial:
            raise ConfigError("--serial names a physical board", "leave out --virtual")
        return None
    detection = detect([ProbeId(match.kind, match.vendor, match.product) for match in board.probes])
    found = [probe for probe in detection.probes if not serial or probe.serial == serial]
    if len(found) == 1:
        if not found[0].serial:
            # OpenOCD would take any probe of the kind.
            raise ProbeError(
                f"the probe at USB {found[0].usb_path} has no serial number that can be read",
                found[0].problem or "unplug and replug it, or use --virtual",
            )
        return found[0]
    if len(found) > 1:
        serials = ", ".join(probe.serial or f"(unreadable, at {probe.usb_path})" for probe in found)
        raise ConfigError(f"{len(found)} probes could be {board.name}: {serials}", "name one with --serial SERIAL")
    if wish == "physical" or serial:
        which = f"probe {serial}" if serial else f"probe for {board.name}"
        reason = detection.problem or "none is plugged in"
        raise ProbeError(f"there is no {which}: {reason}", "see ./inv board.detect, or use --virtual")
    return None


def _check_identity(board: OpenOcdBoard, gdb: GdbClient, serial: str) -> None:
    """Refuse a board of another kind before anything is programmed into it."""
    expected = board.identity
    found = int.from_bytes(gdb.read_memory(expected.address, 4), "little") & expected.mask
    if found != expected.value:
        raise BoardError(
            f"the board at probe {serial} is not {board.name}: "
            f"{expected.register_name} says {found:#x}, not {expected.value:#x}",
            "name the right probe with --serial (./inv board.detect lists them), or use --virtual",
        )


def _serial_device(serial: str) -> str | None:
    """Return the serial device that belongs to a probe, found by its serial number."""
    for port in list_ports.comports():
        if serial and port.serial_number == serial:
            device: str = port.device
            return device
    return None
