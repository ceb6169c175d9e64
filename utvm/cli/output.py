# SPDX-License-Identifier: Apache-2.0
"""Output of commands: one rich console for text and tables, the file or stream of ``--json``, and progress.

Progress of long work is on standard error: one changing line on a terminal, else a line now and then.
"""

import contextlib
import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from utvm.base.log import log_folder
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text import quoting, terminal
from utvm.base.text.terminal import ProgressLine
from utvm.paths import work

STDOUT = "-"
"""``--json`` without a file."""
_UPDATE_SECONDS = 1.0


class Output(terminal.Terminal):
    """The console of all commands; strings are printed literally, styled only by :class:`rich.text.Text`."""

    json_target = ""

    def send_json(self, target: str) -> None:
        """Set the file of :meth:`results`; for standard output, text moves to standard error."""
        self.json_target = target
        if target == STDOUT:
            self.stderr = True
        else:
            check_writable(target)

    def results(self, content: object) -> None:
        """Write a command's results as JSON, if ``--json`` is given; dataclasses become objects."""
        if self.json_target == STDOUT:
            sys.stdout.write(as_json(content))
        elif self.json_target:
            write_whole(Path(self.json_target), as_json(content))

    def table(self, headings: Sequence[str], *, rows: Iterable[Sequence[object]], show_header: bool = True) -> None:
        """Print rows as a table; a heading that begins with ``>`` right-aligns its column."""
        table = Table(box=None, show_header=show_header)
        for heading in headings:
            table.add_column(heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left")
        for row in rows:
            table.add_row(*map(_cell, row))
        self.print(table)


OUT = Output(markup=False, soft_wrap=True)


def as_json(content: object) -> str:
    """Return JSON text of a command's results; dataclasses become objects."""
    return json.dumps(content, indent=2, default=dataclasses.asdict) + "\n"


def _cell(value: object) -> str | Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, str):
        return quoting.printable(value)
    return "" if value is None else f"{value:,}"


def logs_of(command: str) -> Path:
    """Return the folder for logs of a command's processes."""
    return log_folder(work() / "logs" / f"{command}-{os.getpid()}")


def say(line: str) -> None:
    """Print a line of another program or a board."""
    OUT.print(line)


def print_step(step: str) -> None:
    """Print a step of preparation before a command's own work; logs contain it, too."""
    OUT.print(Text(quoting.printable(step), style="dim"))


@contextlib.contextmanager
def show_progress(step: str) -> Iterator[Callable[[str], None]]:
    """Show progress in a thread, as a context manager; yields a function that begins a further step."""
    stop, progress = threading.Event(), ProgressLine(step)

    def watch() -> None:
        while not stop.wait(_UPDATE_SECONDS):
            progress.show()

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    # If the system allows no thread, work without progress.
    with contextlib.suppress(RuntimeError):
        thread.start()
    try:
        yield progress.begin
    finally:
        stop.set()
        if thread.ident is not None:
            thread.join()
        progress.close()


@contextlib.contextmanager
def print_steps(first: str = "") -> Iterator[Callable[[str], None]]:
    """As :func:`show_progress`; each step is also printed as it begins, so that logs contain it, too."""
    with show_progress(first) as begin:

        def say(step: str) -> None:
            begin(step)
            if step:
                print_step(step)

        yield say
