# SPDX-License-Identifier: Apache-2.0
"""``firmware.flash``, ``board.monitor``, ``board.reset`` and ``board.program-fpga``."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from utvm import drivers, errors, runtime, selection
from utvm.base.log import log_into
from utvm.base.storage.files import write_whole
from utvm.base.text.quoting import printable_lines
from utvm.boards.bitstream import read_bitstream, remember_bitstream
from utvm.cli import compiling, output
from utvm.errors import ConfigError
from utvm.selection import BoardSelection
from utvm.session import application, pipes
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
    image = application.read_image(reachable.board, file, address)
    with _open(where, "firmware.flash", swo) as connection:
        program = application.Application(connection, image)
        compiling.print_use(image)
        output.OUT.print("flashed and verified; it starts")
        if seconds and pipe is not None:
            with pipes.open_pipe(connection, replace(image, pipe=pipe)) as wire:
                listen(connection, wire.restart, seconds, wire.transport)
        else:
            if seconds and not swo:
                _need_console(connection)
            listen(connection, program.run, seconds or _START_SECONDS)
        output.OUT.print(f"it runs, at {check_core(connection, image)}")


def monitor(where: selection.BoardSelection, seconds: float, swo: str) -> None:
    reachable = compiling.find_with_debug_port(where)
    if reachable.kind == "virtual" and reachable.probe is None:
        output.OUT.print(
            "each command starts a fresh, empty VIRTUAL board: "
            "./inv firmware.flash app.elf --monitor flashes a program and prints its console"
        )
    with _open(where, "board.monitor", swo) as connection:
        if not swo:
            _need_console(connection)
        listen(connection, lambda: connection.reset(halt=False), seconds or math.inf)


def reset(where: selection.BoardSelection) -> None:
    with _open(where, "board.reset") as connection:
        connection.reset(halt=False)


def program_fpga(where: selection.BoardSelection, bitstream: str) -> None:
    """Program a board's programmable logic; an emulated board only stores the bitstream."""
    reachable, file = compiling.find_with_debug_port(where), Path(bitstream)
    if not bitstream:
        raise ConfigError("no bitstream is named", "--bitstream FILE.bit")
    read_bitstream(file, reachable.board.programmable)
    with _open(where, "board.program-fpga") as connection:
        programmed = connection.program_logic(file)
        if connection.kind == "virtual":
            remember_bitstream(connection.board, file.name)
    output.OUT.print(f"programmed: {file.name}, {len(programmed.data):,} bytes, for {programmed.part}")
    output.OUT.print(f"design {programmed.design}, made on {programmed.date} at {programmed.time}")
    if connection.kind == "virtual":
        output.OUT.print("a VIRTUAL board has no logic: it only stores the bitstream's name")


@contextlib.contextmanager
def _open(where: selection.BoardSelection, command: str, swo: str = "") -> Iterator[drivers.Connection]:
    logs = output.logs_of(command)
    with log_into(logs), compiling.find_with_debug_port(where).open(logs, output.say) as connection:
        output.OUT.print(connection.describe())
        if swo:
            write_whole(Path(swo), b"")
            connection.trace_into(Path(swo))
        yield connection
    if swo:
        output.OUT.print(f"SWO: {Path(swo).stat().st_size:,} bytes in {swo}")


def _need_console(connection: drivers.Connection) -> None:
    if connection.console is None:
        raise errors.BoardError(f"{connection.board.full_name} has no console here", application.SILENT)


def listen(
    connection: drivers.Connection, start: Callable[[], object], seconds: float, transport: Transport | None = None
) -> None:
    """Start a program, and print its output for some seconds; without a console, only wait.

    Args:
        transport: channel of its output; by default the console.
    """
    listener = transport or connection.console
    if seconds == math.inf:
        output.OUT.print("Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        start()
        end = time.monotonic() + seconds
        while (time_left := min(end - time.monotonic(), _CHECK_SECONDS)) > 0:
            if listener is None:
                time.sleep(time_left)
            else:
                try:
                    message = listener.read(time_left).decode("utf-8", "replace").replace("\r", "")
                except errors.TransportError:
                    time.sleep(_CHECK_SECONDS)  # A stopping emulator closes its console first.
                    connection.check()
                    raise
                sys.stdout.write(printable_lines(message))
                sys.stdout.flush()
            connection.check()
