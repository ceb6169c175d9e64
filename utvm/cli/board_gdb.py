# SPDX-License-Identifier: Apache-2.0
"""``board.gdb``: flash a program and debug it with GDB."""

import contextlib
import dataclasses
import json
import math
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from utvm import boards, drivers, firmware, paths, runtime, selection
from utvm.base.log import log_into
from utvm.base.process import peer, signals
from utvm.base.storage import files
from utvm.base.text.quoting import gdb
from utvm.boards import Board
from utvm.cli import board_run, choices, compiling, model_inputs
from utvm.cli.output import OUT, logs_of, say
from utvm.errors import ConfigError, ProbeError, ToolchainError, TransportError
from utvm.firmware import Firmware
from utvm.firmware.build import shipped_sources, source_folders
from utvm.options import words as spelled
from utvm.probe.relay import DoorRelay
from utvm.session.application import Application, read_elf

DEBUGGER = "gdb-multiarch"
READY = "a debugger may connect to"
_LAST_PORT = 65535
_PORT = 3333  # Default of other debug servers, such as OpenOCD.
_LAUNCH = Path(".vscode", "launch.json")


def debug(
    where: selection.BoardSelection, what: choices.DebugChoice, command: list[str], port: int, vscode: bool
) -> None:
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
                board_run.listen(connection, lambda: None, math.inf)
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
        folder = stack.enter_context(files.private_folder())
        door = stack.enter_context(socket.socket(socket.AF_UNIX))
        door.bind(f"{folder}/gdb")
        door.listen()
        yield door, f"{folder}/gdb"


def _image_of(what: choices.DebugChoice, board: Board, capabilities: frozenset[str]) -> Firmware:
    if what.elf:
        return read_elf(board, what.elf)
    boards.load_chip(board.name)
    library = compiling.compile_choice(board, what)
    inputs = model_inputs.read_inputs(library, "")
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


def _write_launch(where: selection.BoardSelection, what: choices.DebugChoice, image: Firmware, port: int) -> None:
    """Write a configuration of Microsoft's C/C++ extension that starts this program as the server."""
    program = Path(sys.argv[0]).resolve() if paths.INSTALLED else paths.ROOT / "inv"
    # VS Code may start it in any folder.
    field: dict[str, Any] = {"elf": str(image.elf)} if what.elf else {"model": str(Path(what.model).resolve())}
    arguments = ["board.gdb", *spelled(dataclasses.replace(what, **field)), *spelled(where), "--port", str(port)]
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
    files.check_writable(str(_LAUNCH))
    files.write_whole(_LAUNCH, json.dumps(content, indent=4) + "\n")
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
