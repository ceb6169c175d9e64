# SPDX-License-Identifier: Apache-2.0
"""What ``firmware.flash``, ``board.monitor`` and ``board.reset`` do: a program runs, its console is printed."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

from utvm.bench import Bench
from utvm.choice import BoardChoice
from utvm.cli.model_run import print_use, say
from utvm.cli.opening import find
from utvm.cli.output import OUT, logs_of
from utvm.errors import BoardError
from utvm.log import kept_in
from utvm.names import printable_lines
from utvm.session.application import Application, read_elf


def flash(where: BoardChoice, elf: str, seconds: float) -> None:
    """Program an image of somebody's own, start it, and print what its console says.

    Args:
        seconds: how long; 0 for not at all.

    Raises:
        UtvmError: the image is not for this board's memory, or the board refuses.
    """
    found = find(where)
    image = read_elf(found.board, elf)
    with _opened(where, "firmware.flash") as bench:
        program = Application(bench, image)
        print_use(found.board, image)
        OUT.print("programmed and compared; it runs")
        _listen(bench, program.run, seconds)


def monitor(where: BoardChoice, seconds: float) -> None:
    """Reset a board and print what its console says; raises as :func:`reset`."""
    with _opened(where, "board.monitor") as bench:
        _listen(bench, lambda: bench.reset(halt=False), seconds)


def reset(where: BoardChoice) -> None:
    """Reset a board, whose program starts.

    Raises:
        UtvmError: it cannot be had, or has no debug port.
    """
    with _opened(where, "board.reset") as bench:
        bench.reset(halt=False)


@contextlib.contextmanager
def _opened(where: BoardChoice, command: str) -> Iterator[Bench]:
    logs = logs_of(command)
    with kept_in(logs), find(where).opened(logs, say) as bench:
        OUT.print(bench.describe())
        yield bench


def _listen(bench: Bench, start: Callable[[], None], seconds: float) -> None:
    """Let a program run, and print what it says for a while."""
    if seconds and bench.console is None:
        raise BoardError(f"{bench.board.spoken} has no console here", "is its serial line plugged in?")
    if seconds == math.inf:
        OUT.print("Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        start()
        end = time.monotonic() + seconds
        while bench.console is not None and (left := end - time.monotonic()) > 0:
            sys.stdout.write(printable_lines(bench.console.read(min(left, 0.2)).decode("utf-8", "replace")))
            sys.stdout.flush()
            bench.check()
