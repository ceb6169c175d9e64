# SPDX-License-Identifier: Apache-2.0
"""``firmware.flash``, ``board.monitor``, ``board.reset`` and ``board.program-fpga``."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from utvm.base.log import log_into
from utvm.base.text.quoting import printable_lines
from utvm.boards.bitstream import read_bitstream, remember_bitstream
from utvm.cli.compiling import find_debugged, print_use
from utvm.cli.output import OUT, logs_of, say
from utvm.drivers import Connection
from utvm.errors import BoardError, ConfigError, TransportError
from utvm.runtime import Pipe
from utvm.selection import BoardSelection
from utvm.session.application import SILENT, Application, read_image
from utvm.session.diagnosis import check_core
from utvm.session.pipes import open_pipe
from utvm.session.transport import Transport

_MOMENT = 0.3  # Seconds in which a program that faults at its start has done so.
_LOOK = 0.2  # Seconds between two checks of the board.


def flash(
    where: BoardSelection, file: str, seconds: float, pipe: Pipe | None = None, address: int | None = None
) -> None:
    """Flash an image, start it, and print its console for some seconds.

    Args:
        pipe: channel of its output, if not the console.
        address: of a plain binary.
    """
    found = find_debugged(where)
    image = read_image(found.board, file, address)
    with _open(where, "firmware.flash") as connection:
        program = Application(connection, image)
        print_use(image)
        OUT.print("programmed and compared; it starts")
        if seconds and pipe is not None:
            with open_pipe(connection, replace(image, pipe=pipe)) as wire:
                listen(connection, wire.restart, seconds, wire.transport)
        else:
            if seconds:
                _need_console(connection)
            listen(connection, program.run, seconds or _MOMENT)
        OUT.print(f"it runs, at {check_core(connection, image)}")


def monitor(where: BoardSelection, seconds: float) -> None:
    found = find_debugged(where)
    if found.kind == "virtual" and found.probe is None:
        OUT.print(
            "each command has a VIRTUAL board of its own, with nothing on it that could say anything: "
            "./inv firmware.flash app.elf --monitor puts a program on one and listens"
        )
    with _open(where, "board.monitor") as connection:
        _need_console(connection)
        listen(connection, lambda: connection.reset(halt=False), seconds or math.inf)


def reset(where: BoardSelection) -> None:
    with _open(where, "board.reset") as connection:
        connection.reset(halt=False)


def program_fpga(where: BoardSelection, bitstream: str) -> None:
    """Program a board's programmable logic; an emulated board only stores the bitstream."""
    found, file = find_debugged(where), Path(bitstream)
    if not bitstream:
        raise ConfigError("no bitstream is named", "--bitstream FILE.bit")
    read_bitstream(file, found.board.programmable)
    with _open(where, "board.program-fpga") as connection:
        programmed = connection.program_logic(file)
        if connection.kind == "virtual":
            remember_bitstream(connection.board, file.name)
    OUT.print(f"programmed: {file.name}, {len(programmed.data):,} bytes, for {programmed.part}")
    OUT.print(f"design {programmed.design}, made on {programmed.date} at {programmed.time}")
    if connection.kind == "virtual":
        OUT.print("a VIRTUAL board has no logic: it remembers that it was programmed")


@contextlib.contextmanager
def _open(where: BoardSelection, command: str) -> Iterator[Connection]:
    logs = logs_of(command)
    with log_into(logs), find_debugged(where).open(logs, say) as connection:
        OUT.print(connection.describe())
        yield connection


def _need_console(connection: Connection) -> None:
    if connection.console is None:
        raise BoardError(f"{connection.board.full_name} has no console here", SILENT)


def listen(
    connection: Connection, start: Callable[[], object], seconds: float, speaking: Transport | None = None
) -> None:
    """Start a program, and print its output for some seconds; without a console, only wait.

    Args:
        speaking: channel of its output; by default the console.
    """
    heard = speaking or connection.console
    if seconds == math.inf:
        OUT.print("Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        start()
        end = time.monotonic() + seconds
        while (left := min(end - time.monotonic(), _LOOK)) > 0:
            if heard is None:
                time.sleep(left)
            else:
                try:
                    message = heard.read(left).decode("utf-8", "replace").replace("\r", "")
                except TransportError:
                    time.sleep(_LOOK)  # A stopping emulator closes its console first.
                    connection.check()
                    raise
                sys.stdout.write(printable_lines(message))
                sys.stdout.flush()
            connection.check()
