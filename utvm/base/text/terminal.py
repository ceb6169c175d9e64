# SPDX-License-Identifier: Apache-2.0
"""The terminal, through rich: untrusted text is shown without effect; and the progress of long work."""

import html
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from utvm.base.text.quoting import printable_lines
from utvm.errors import ExitCode

_WIDE = 10_000
"""Columns where there is no terminal: each row of a table is one line, as grep expects."""
_ItemT = TypeVar("_ItemT")
_SHORT_SECONDS = 3.0  # Shorter steps are not shown.
_LINE_SECONDS = 10.0  # Between two lines, without a terminal.
_BAR_SECONDS = 0.5  # Between two changes of a bar.
_COUNT = re.compile(r"(\d+) of (\d+)")


class Terminal(Console):
    """A console that shows escape sequences in its text literally."""

    shown: "ProgressLine | None" = None  # Of all consoles: they are on one screen.

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, emoji=False, **settings)
        if "width" not in settings and not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = _WIDE

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print; long table cells wrap, and numbers stay whole."""
        if (line := Terminal.shown) and line.console is not self:
            line.close()
        for table in objects:
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
                self._keep_numbers_whole(table)
        super().print(*objects, **settings)

    def _keep_numbers_whole(self, table: Table) -> None:
        columns = [column for column in table.columns if column.justify == "right"]
        if not columns:
            return
        whole = table.__rich_measure__(self, self.options.update(width=10_000)).maximum
        for column in columns:
            words = (word for cell in (column.header, *column.cells) for word in self._plain(cell).split())
            column.min_width = max(map(len, words), default=0)
            if whole > self.width:
                column.width = column.min_width  # so that only text columns shrink

    def _plain(self, cell: object) -> str:
        return self.render_str(cell).plain if isinstance(cell, str) else str(cell)

    def on_broken_pipe(self) -> None:
        """Exit silently if the reader has gone: rich's exit code would mean a failed test."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(int(ExitCode.INFRASTRUCTURE)) from None

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable_lines(text), **settings)


class ProgressLine:
    """The current step of some work, shown if it takes long."""

    def __init__(self, step: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.console = Terminal(stderr=True)
        self._live: Live | None = None
        self._bar: Any = None
        self._lock = threading.RLock()
        self._name = _COUNT.sub("", step)
        self._step, self._begin, self._printed = step, clock(), -1.0
        self._last_line = self._begin

    def begin(self, step: str) -> None:
        """Begin a step, or update the count of the current one; an empty step releases the terminal."""
        name = _COUNT.sub("", step)
        if name != self._name:
            self.close()
        if name and name != self._name:
            self._name, self._begin, self._printed = name, self._clock(), -1.0
        self._step = step

    def text(self, columns: int = 0) -> str:
        """Return the step, its time and, if it has a count, the time left; the step's name is cut to fit in columns."""
        spent = self._clock() - self._begin
        count = _COUNT.search(self._step)
        name = self._step[: count.start()] if count else self._step
        rest = f"{self._step[len(name) :]}: {_duration(spent)}"
        if count and int(count[1]):
            rest += f", about {_duration(spent * (int(count[2]) - int(count[1])) / int(count[1]))} left"
        if columns and len(name) + len(rest) > columns:
            name = f"{name[: max(columns - len(rest) - 1, 0)]}…"
        return name + rest

    def show(self) -> None:
        """Update the terminal; call about once a second, from any thread."""
        with self._lock:
            now = self._clock()
            spent = now - self._begin
            lines = not (self.console.is_terminal or in_notebook())
            due = lines and now - self._last_line >= _LINE_SECONDS - 1
            if not self._step or (spent < _SHORT_SECONDS and not due):
                self.close()
            elif in_notebook():
                if spent - self._printed > _BAR_SECONDS:
                    self._printed = spent
                    self._show_bar()
            elif self.console.is_terminal:
                if self._live is None:
                    # Without a thread: models are compiled in a fork of this process.
                    self._live = Live(console=self.console, auto_refresh=False, transient=True)
                    self._live.start()
                    Terminal.shown = self
                self._live.update(Text(self.text(self.console.width), style="dim"), refresh=True)
            elif self._printed < 0 or due:
                self._printed, self._last_line = spent, now
                self.console.print(self.text(), soft_wrap=True)

    def _show_bar(self) -> None:
        from IPython.display import HTML, display

        count = _COUNT.search(self._step)
        values = f'value="{count[1]}" max="{count[2]}"' if count else ""
        bar = HTML(f"<progress {values}></progress> {html.escape(self.text())}")
        if self._bar:
            self._bar.update(bar)
        else:
            self._bar = display(bar, display_id=True)

    def close(self) -> None:
        with self._lock:
            if self._live is not None:
                Terminal.shown = None
                self._live.stop()
                self._live = None


def in_notebook() -> bool:
    """True in a kernel, such as Jupyter's."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def count(items: Sequence[_ItemT], name: str) -> Iterator[_ItemT]:
    """Yield items; a notebook shows how many of them are done, and the time left."""
    with closing(ProgressLine(f"{name}: 0 of {len(items)}")) as line:
        for number, item in enumerate(items, 1):
            yield item
            line.begin(f"{name}: {number} of {len(items)}")
            if in_notebook():
                line.show()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
