# SPDX-License-Identifier: Apache-2.0
"""``firmware.flash``, ``board.monitor``, ``board.reset``, ``board.program-fpga`` and ``board.gdb``."""

import contextlib
import json
import math
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from utvm import boards, drivers, firmware, paths, runtime
from utvm.base.log import log_into
from utvm.base.process import peer, signals
from utvm.base.storage.files import check_writable, private_folder, write_whole
from utvm.base.text.quoting import gdb, printable_lines
from utvm.boards import Board
from utvm.boards.bitstream import read_bitstream, remember_bitstream
from utvm.cli import choices, compiling
from utvm.cli.output import OUT, logs_of, say
from utvm.errors import BoardError, ConfigError, ProbeError, ToolchainError, TransportError
from utvm.firmware import Firmware
from utvm.firmware.build import shipped_sources, source_folders
from utvm.probe.relay import DoorRelay
from utvm.selection import BoardSelection
from utvm.selection import words as spelled
from utvm.session import pipes
from utvm.session.application import SILENT, Application, read_elf, read_image
from utvm.session.diagnosis import check_core
from utvm.session.transport import Transport

_START_SECONDS = 0.3  # A program that faults at its start does so within this time.
_CHECK_SECONDS = 0.2  # Time between two checks of the board.


def flash(
    where: BoardSelection,
    file: str,
    seconds: float,
    pipe: runtime.Pipe | None = None,
    address: int | None = None,
    swo: str = "",
) -> None:
    """Flash an image, start it, and print its console for some seconds.

    Args:
        pipe: channel of its output, if not the console.
        address: load address of a plain binary.
        swo: file for the bytes of the pin SWO.
    """
    reachable = compiling.find_with_debug_port(where)
    image = read_image(reachable.board, file, address)
    with _open(where, "firmware.flash", swo) as connection:
        program = Application(connection, image)
        compiling.print_use(image)
        OUT.print("flashed and verified; it starts")
        if seconds and pipe is not None:
            with pipes.open_pipe(connection, replace(image, pipe=pipe)) as wire:
                listen(connection, wire.restart, seconds, wire.transport)
        else:
            if seconds and not swo:
                _need_console(connection)
            listen(connection, program.run, seconds or _START_SECONDS)
        OUT.print(f"it runs, at {check_core(connection, image)}")


def monitor(where: BoardSelection, seconds: float, swo: str) -> None:
    reachable = compiling.find_with_debug_port(where)
    if reachable.kind == "virtual" and reachable.probe is None:
        OUT.print(
            "each command starts a fresh, empty VIRTUAL board: "
            "./inv firmware.flash app.elf --monitor flashes a program and prints its console"
        )
    with _open(where, "board.monitor", swo) as connection:
        if not swo:
            _need_console(connection)
        listen(connection, lambda: connection.reset(halt=False), seconds or math.inf)


def reset(where: BoardSelection) -> None:
    with _open(where, "board.reset") as connection:
        connection.reset(halt=False)


def program_fpga(where: BoardSelection, bitstream: str) -> None:
    """Program a board's programmable logic; an emulated board only stores the bitstream."""
    reachable, file = compiling.find_with_debug_port(where), Path(bitstream)
    if not bitstream:
        raise ConfigError("no bitstream is named", "--bitstream FILE.bit")
    read_bitstream(file, reachable.board.programmable)
    with _open(where, "board.program-fpga") as connection:
        programmed = connection.program_logic(file)
        if connection.kind == "virtual":
            remember_bitstream(connection.board, file.name)
    OUT.print(f"programmed: {file.name}, {len(programmed.data):,} bytes, for {programmed.part}")
    OUT.print(f"design {programmed.design}, made on {programmed.date} at {programmed.time}")
    if connection.kind == "virtual":
        OUT.print("a VIRTUAL board has no logic: it only stores the bitstream's name")


@contextlib.contextmanager
def _open(where: BoardSelection, command: str, swo: str = "") -> Iterator[drivers.Connection]:
    logs = logs_of(command)
    with log_into(logs), compiling.find_with_debug_port(where).open(logs, say) as connection:
        OUT.print(connection.describe())
        if swo:
            write_whole(Path(swo), b"")
            connection.trace_into(Path(swo))
        yield connection
    if swo:
        OUT.print(f"SWO: {Path(swo).stat().st_size:,} bytes in {swo}")


def _need_console(connection: drivers.Connection) -> None:
    if connection.console is None:
        raise BoardError(f"{connection.board.full_name} has no console here", SILENT)


def listen(
    connection: drivers.Connection, start: Callable[[], object], seconds: float, transport: Transport | None = None
) -> None:
    """Start a program, and print its output for some seconds; without a console, only wait.

    Args:
        transport: channel of its output; by default the console.
    """
    listener = transport or connection.console
    if seconds == math.inf:
        OUT.print("Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        start()
        end = time.monotonic() + seconds
        while (time_left := min(end - time.monotonic(), _CHECK_SECONDS)) > 0:
            if listener is None:
                time.sleep(time_left)
            else:
                try:
                    message = listener.read(time_left).decode("utf-8", "replace").replace("\r", "")
                except TransportError:
                    time.sleep(_CHECK_SECONDS)  # A stopping emulator closes its console first.
                    connection.check()
                    raise
                sys.stdout.write(printable_lines(message))
                sys.stdout.flush()
            connection.check()


DEBUGGER = "gdb-multiarch"
READY = "a debugger may connect to"
_LAST_PORT = 65535
_PORT = 3333  # Default of other debug servers, such as OpenOCD.
_LAUNCH = Path(".vscode", "launch.json")


def debug(where: BoardSelection, what: choices.DebugChoice, command: list[str], port: int, vscode: bool) -> None:
    """Flash a board, and debug its program.

    Args:
        command: GDB commands; without any, the session is interactive.
        port: TCP port for the user's own debugger; 0 to start one here.
        vscode: only write VS Code's configuration.
    """
    if bool(what.elf) == bool(what.model):
        raise ConfigError("no program is named", "give --elf FILE, or --model FILE")
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"--port goes from 1 to {_LAST_PORT}", "leave it out to start a debugger here")
    reachable = compiling.find_with_debug_port(where)
    image = _image_of(what, reachable.board, reachable.capabilities)
    if vscode:
        _write_launch(where, what, image, port or _PORT)
        return
    logs = logs_of("board.gdb")
    with log_into(logs), _door(port) as (door, address), reachable.open(logs, say) as connection:
        OUT.print(connection.describe())
        Application(connection, image)
        OUT.print("flashed and verified; halted at its first instruction")
        with DoorRelay(connection.hand_over(), door):
            if port:
                OUT.print(f"{READY} {address}")
                listen(connection, lambda: None, math.inf)
                return
            with _console_in(connection, logs / "console.log"):
                script = logs / "commands.gdb"
                # Without this, GDB postpones a breakpoint at an unknown function.
                no_pending = ["set breakpoint pending off"] if command else []
                lines = [*_source_commands(image), *no_pending, f"target extended-remote {address}", *command]
                script.write_bytes(os.fsencode("".join(f"{line}\n" for line in lines)))
                _run(image.elf, script, by_hand=not command)


@contextlib.contextmanager
def _door(port: int) -> Iterator[tuple[socket.socket, str]]:
    """Listen for this user's debuggers on a TCP port or private socket; yield it and its GDB address."""
    with contextlib.ExitStack() as stack:
        if port:
            with ProbeError.on_os_error(f"TCP port {port} cannot be served", "choose another one"):
                door = stack.enter_context(peer.listen(port))
            yield door, f"127.0.0.1:{port}"
            return
        folder = stack.enter_context(private_folder())
        door = stack.enter_context(socket.socket(socket.AF_UNIX))
        door.bind(f"{folder}/gdb")
        door.listen()
        yield door, f"{folder}/gdb"


def _image_of(what: choices.DebugChoice, board: Board, capabilities: frozenset[str]) -> Firmware:
    if what.elf:
        return read_elf(board, what.elf)
    boards.load_chip(board.name)
    library = compiling.compile_choice(board, what)
    inputs = compiling.read_inputs(library, "")
    return firmware.build(board, [library], "standing_alone", inputs, able=capabilities)


def _source_commands(image: Firmware) -> list[str]:
    """Return the commands that show GDB the sources of firmware linked by utvm; others have no such paths."""
    folders, sources = (
        source_folders(image.board, image.elf.parent),
        runtime.sources(image.board.architecture, "standing_alone", None),
    )
    if (shipped := shipped_sources(image.elf.resolve())).is_dir():
        folders, sources = [(shipped / "utvm", "/utvm")], tuple(shipped.rglob("*.S"))
    known = sorted(folders, key=lambda entry: -len(entry[1]))  # GDB takes the first match.
    # GDB does not find assembler sources by itself.
    return [
        *(f"set substitute-path {gdb(name)} {gdb(str(folder))}" for folder, name in known),
        f"directory {gdb(':'.join(['$cdir', '$cwd', *map(str, sorted({source.parent for source in sources}))]))}",
    ]


def _run(elf: Path, script: Path, by_hand: bool) -> None:
    # A user's .gdbinit is for interactive sessions.
    options = ["--quiet"] if by_hand else ["--quiet", "--nx", "--batch"]
    sys.stdout.flush()
    previous_handler = signal.getsignal(signal.SIGINT)
    if by_hand:
        # Ctrl-C belongs to GDB: it stops the program on the board.
        signal.signal(signal.SIGINT, lambda *_: None)
    try:
        result = subprocess.run(
            [DEBUGGER, *options, "-x", str(script), str(elf)],
            check=False,
            stdin=None if by_hand else subprocess.DEVNULL,
            preexec_fn=signals.die_with_parent(),
        )
    except FileNotFoundError:
        raise ToolchainError(f"{DEBUGGER} is not installed", f"sudo apt-get install {DEBUGGER}") from None
    finally:
        signal.signal(signal.SIGINT, previous_handler)
    if result.returncode:
        raise ConfigError(f"GDB ended with exit code {result.returncode}", "its message above names the command")


@contextlib.contextmanager
def _console_in(connection: drivers.Connection, log: Path) -> Iterator[None]:
    """Write a board's console into a file during a ``with`` block, since GDB has the terminal."""
    console = connection.console
    if console is None:
        yield
        return
    ended = threading.Event()

    def write() -> None:
        with log.open("wb", buffering=0) as file, contextlib.suppress(TransportError):
            output = b""
            while output or not ended.is_set():
                file.write(output := console.read(0.2))

    reader = threading.Thread(target=write)
    reader.start()
    try:
        OUT.print(f"its console is written to {log}")
        yield
    finally:
        ended.set()
        reader.join()


def _write_launch(where: BoardSelection, what: choices.DebugChoice, image: Firmware, port: int) -> None:
    """Write a configuration of Microsoft's C/C++ extension that starts this program as the server."""
    program = Path(sys.argv[0]).resolve() if paths.INSTALLED else paths.ROOT / "inv"
    # VS Code may start it in any folder.
    field: dict[str, Any] = {"elf": str(image.elf)} if what.elf else {"model": str(Path(what.model).resolve())}
    arguments = ["board.gdb", *spelled(replace(what, **field)), *spelled(where), "--port", str(port)]
    name = f"{image.board.full_name}: {Path(what.elf or what.model).name}"
    configuration = {
        "name": name,
        **json.loads((Path(__file__).parent / "starting" / "launch.json").read_text(encoding="utf-8")),
        "program": str(image.elf),
        "miDebuggerPath": DEBUGGER,
        "miDebuggerServerAddress": f"127.0.0.1:{port}",
        "setupCommands": [{"text": command} for command in _source_commands(image)],
        "debugServerPath": str(program),
        "debugServerArgs": subprocess.list2cmdline(arguments),
        "serverStarted": READY,
    }
    content = _launch_file()
    others = [entry for entry in content["configurations"] if entry.get("name") != name]
    content["configurations"] = [*others, configuration]
    _LAUNCH.parent.mkdir(exist_ok=True)
    check_writable(str(_LAUNCH))
    write_whole(_LAUNCH, json.dumps(content, indent=4) + "\n")
    OUT.print(f"wrote {_LAUNCH}: {name!r} (extension ms-vscode.cpptools)")
    OUT.print(f"or by hand: {shlex.join([str(program), *arguments])}")


def _launch_file() -> dict[str, Any]:
    try:
        content = json.loads(_LAUNCH.read_text(encoding="utf-8"))
        if isinstance(content["configurations"], list):
            return dict(content)
        why = "configurations is not a list"
    except FileNotFoundError:
        return {"version": "0.2.0", "configurations": []}
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = str(error)
    raise ConfigError(
        f"cannot add to {_LAUNCH}: {why}", "VS Code allows comments in it, JSON does not: move it away first"
    )
