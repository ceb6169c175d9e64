# SPDX-License-Identifier: Apache-2.0
"""Progress of long work on standard error: one changing line on a terminal, else a line now and then."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator

from rich.live import Live
from rich.text import Text

from utvm.base.text.terminal import Terminal
from utvm.cli.output import print_step

_UPDATE_SECONDS = 1.0
_SHORT_SECONDS = 3.0  # Shorter steps are not shown.
_LINE_SECONDS = 15.0  # Between two lines, without a terminal.
_COUNT = re.compile(r"(\d+) of (\d+)")


class ProgressLine:
    """The current step of some work, shown if it takes long."""

    def __init__(self, step: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._terminal = Terminal(stderr=True)
        self._live: Live | None = None
        self._step, self._begin, self._printed = step, clock(), -1.0

    def begin(self, step: str) -> None:
        """Begin a step, or update the count of the current one; an empty step releases the terminal."""
        if _COUNT.sub("", step) != _COUNT.sub("", self._step):
            self._begin, self._printed = self._clock(), -1.0
        self._step = step

    def text(self) -> str:
        """Return the step, its time and, if it has a count, the time left."""
        spent = self._clock() - self._begin
        count = _COUNT.search(self._step)
        left = ""
        if count and int(count[1]):
            left = f", about {_duration(spent * (int(count[2]) - int(count[1])) / int(count[1]))} left"
        return f"{self._step}: {_duration(spent)}{left}"

    def show(self) -> None:
        """Update the terminal; call about once a second."""
        spent = self._clock() - self._begin
        if not self._step or spent < _SHORT_SECONDS:
            self.close()
        elif self._terminal.is_terminal:
            if self._live is None:
                # Without a thread: models are compiled in a fork of this process.
                self._live = Live(console=self._terminal, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(Text(self.text(), style="dim"), refresh=True)
        elif self._printed < 0 or spent - self._printed > max(_LINE_SECONDS, self._printed / 4):
            # Less often the longer it takes, to keep logs short.
            self._printed = spent
            self._terminal.print(self.text(), soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


@contextlib.contextmanager
def show(step: str) -> Iterator[Callable[[str], None]]:
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
    """As :func:`show`; each step is also printed as it begins, so that logs contain it, too."""
    with show(first) as begin:

        def say(step: str) -> None:
            if step:
                print_step(step)
            begin(step)

        yield say


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
