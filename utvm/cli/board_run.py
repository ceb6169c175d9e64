# SPDX-License-Identifier: Apache-2.0
"""What ``firmware.flash``, ``board.monitor`` and ``board.reset`` do: a program runs, its console is printed."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from utvm.bench import Bench
from utvm.bench.logic import hold
from utvm.boards.bitstream import read_bitstream
from utvm.choice import BoardChoice
from utvm.cli.model_run import print_use, say
from utvm.cli.opening import find_debugged
from utvm.cli.output import OUT, logs_of
from utvm.errors import BoardError, ConfigError, TransportError
from utvm.log import kept_in
from utvm.quoting import printable_lines
from utvm.runtime import Pipe
from utvm.session.application import SILENT, Application, read_elf
from utvm.session.pipes import open_pipe
from utvm.session.standing import check_core
from utvm.session.transport import Transport

_MOMENT = 0.3  # Seconds in which a program that faults at its start has done so.
_LOOK = 0.2  # Seconds between two looks at whether the board is still there.


def flash(where: BoardChoice, elf: str, seconds: float, pipe: Pipe | None = None) -> None:
    """Program an image of somebody's own, start it, and print what its console says.

    Args:
        seconds: how long; 0 for not at all.
        pipe: what it speaks through, where that is not the console.

    Raises:
        UtvmError: the image is not for this board, the board refuses, or the core does not run in the end.
    """
    found = find_debugged(where)
    image = read_elf(found.board, elf)
    with _opened(where, "firmware.flash") as bench:
        program = Application(bench, image)
        print_use(found.board, image)
        OUT.print("programmed and compared; it starts")
        if seconds and pipe is not None:
            with open_pipe(bench, replace(image, pipe=pipe)) as wire:
                listen(bench, wire.restart, seconds, wire.transport)
        else:
            if seconds:
                _need_console(bench)
            listen(bench, program.run, seconds or _MOMENT)
        OUT.print(f"it runs, at {check_core(bench, image)}")


def monitor(where: BoardChoice, seconds: float) -> None:
    """Reset a board and print what its console says; raises as :func:`reset`."""
    found = find_debugged(where)
    if found.kind == "virtual" and found.probe is None:
        OUT.print(
            "each command has a VIRTUAL board of its own, with nothing on it that could say anything: "
            "./inv firmware.flash app.elf --monitor puts a program on one and listens"
        )
    with _opened(where, "board.monitor") as bench:
        _need_console(bench)
        listen(bench, lambda: bench.reset(halt=False), seconds)


def reset(where: BoardChoice) -> None:
    """Reset a board, whose program starts.

    Raises:
        UtvmError: it cannot be had, or has no debug port.
    """
    with _opened(where, "board.reset") as bench:
        bench.reset(halt=False)


def program_fpga(where: BoardChoice, bitstream: str) -> None:
    """Program a board's programmable logic; an emulated board remembers what it was programmed with.

    Raises:
        UtvmError: the file is no bitstream for its chip, or the board refuses.
    """
    found, file = find_debugged(where), Path(bitstream)
    if not bitstream:
        raise ConfigError("no bitstream is named", "--bitstream FILE.bit")
    # Before anything is started.
    read_bitstream(file, found.board.programmable.part)
    with _opened(where, "board.program-fpga") as bench:
        programmed = bench.program_logic(file)
        if bench.kind == "virtual":
            hold(bench.board, file.name)
    OUT.print(f"programmed: {file.name}, {len(programmed.data):,} bytes, for {programmed.part}")
    OUT.print(f"design {programmed.design}, made on {programmed.date} at {programmed.time}")
    if bench.kind == "virtual":
        OUT.print("a VIRTUAL board has no logic: it remembers that it was programmed")


@contextlib.contextmanager
def _opened(where: BoardChoice, command: str) -> Iterator[Bench]:
    logs = logs_of(command)
    with kept_in(logs), find_debugged(where).opened(logs, say) as bench:
        OUT.print(bench.describe())
        yield bench


def _need_console(bench: Bench) -> None:
    if bench.console is None:
        raise BoardError(f"{bench.board.spoken} has no console here", SILENT)


def listen(bench: Bench, start: Callable[[], object], seconds: float, speaking: Transport | None = None) -> None:
    """Let a program run, and print what it says for a while; where there is no console, only wait.

    Args:
        speaking: where it is heard; by default on the console.
    """
    heard = speaking or bench.console
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
                    said = heard.read(left).decode("utf-8", "replace").replace("\r", "")
                except TransportError:
                    time.sleep(_LOOK)  # An emulator that ends has closed its console before.
                    bench.check()
                    raise
                sys.stdout.write(printable_lines(said))
                sys.stdout.flush()
            bench.check()
