# SPDX-License-Identifier: Apache-2.0
"""How far long work is: one line that changes on a terminal, elsewhere a line now and then.

How long is left follows from what a step counts itself (``3 of 20``), and from how long steps took the last time.
It goes to standard error: what a command finds out stays alone on the standard output.
"""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.live import Live
from rich.text import Text

from utvm.base.storage.cache_entries import cache_root
from utvm.base.storage.files import write_whole
from utvm.base.text.terminal import Terminal
from utvm.cli.output import tell
from utvm.errors import ConfigError

_LOOK = 1.0  # Seconds between looks at the clock.
_SHORT = 3.0  # Seconds that need no word.
_NOW_AND_THEN = 15.0  # Seconds between lines where there is no terminal.
_COUNT = re.compile(r"(\d+) of (\d+)")


class Advance:
    """The steps of some work, how long each has taken, and what is left.

    Args:
        before: seconds of each step the last time, in their order.
        clock: seconds.
    """

    def __init__(self, before: dict[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self.taken: dict[str, float] = {}
        self.step = ""
        self._before = before
        self._clock = clock
        self._begin = clock()

    def begin(self, step: str) -> None:
        """Note that a step begins, or that one that counts has come further."""
        if _name(step) != _name(self.step):
            self.end()
            self._begin = self._clock()
        self.step = step

    def end(self) -> None:
        """Note that the step is over."""
        if self.step:
            self.taken[_name(self.step)] = self.spent
        self.step = ""

    @property
    def spent(self) -> float:
        """Seconds in this step."""
        return self._clock() - self._begin

    def left(self) -> float | None:
        """Return about how many seconds are left; None where nothing says so."""
        name = _name(self.step)
        count = _COUNT.search(self.step)
        if count and int(count[1]):
            here = self.spent * (int(count[2]) - int(count[1])) / int(count[1])
        elif self._before.get(name, 0.0) > self.spent:
            here = self._before[name] - self.spent
        else:
            return None  # It takes longer than ever: how long, nobody knows.
        names = list(self._before)
        later = names[names.index(name) + 1 :] if name in names else []
        return here + sum(self._before[each] for each in later)

    def told(self) -> str:
        """Return what a reader is told."""
        left = self.left()
        rest = "" if left is None else f", about {_spoken(left)} left"
        return f"{self.step}: {_spoken(self.spent)}{rest}"


class _Teller:
    """Tells a reader how far some work is, whenever it looks at it."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._terminal = Terminal(stderr=True)
        self._live: Live | None = None
        self._said, self._when = "", 0.0

    def look(self) -> None:
        advance = self._advance
        if not advance.step or advance.spent < _SHORT:
            self.end()
            return
        if self._terminal.is_terminal:
            if self._live is None:
                # Without a thread of its own: a model is compiled in a fork of this process.
                self._live = Live(console=self._terminal, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(Text(advance.told(), style="dim"), refresh=True)
        # The longer it takes, the rarer: a log of an hour's work is still read.
        elif _name(advance.step) != self._said or advance.spent - self._when > max(_NOW_AND_THEN, self._when / 4):
            self._said, self._when = _name(advance.step), advance.spent
            self._terminal.print(advance.told(), soft_wrap=True)

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


@contextlib.contextmanager
def looked_at(work: str, step: str) -> Iterator[tuple[Advance, Callable[[], None]]]:
    """Tell how far some work is, for the length of a ``with`` block.

    Args:
        work: what it is called where times are remembered.
        step: its first step.

    Yields:
        its advance, and what is to be called about every second.
    """
    advance = Advance(_remembered().get(work, {}))
    advance.begin(step)
    teller = _Teller(advance)
    try:
        yield advance, teller.look
    finally:
        teller.end()
    advance.end()
    if sum(advance.taken.values()) > _SHORT:
        _remember(work, advance.taken)


@contextlib.contextmanager
def working(work: str, step: str) -> Iterator[Callable[[str], None]]:
    """As :func:`looked_at`, in a thread; yields what is called with each further step."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK):
            look()

    with looked_at(work, step) as (advance, look):
        thread = threading.Thread(target=watch, name="progress", daemon=True)
        # Where no thread can be had, the work is done without a word.
        with contextlib.suppress(RuntimeError):
            thread.start()
        try:
            yield advance.begin
        finally:
            over.set()
            if thread.ident is not None:
                thread.join()


@contextlib.contextmanager
def telling(work: str, first: str = "") -> Iterator[Callable[[str], None]]:
    """As :func:`working`; each step is printed as it begins, so that a log has it too.

    An empty step is somebody else's, who has the terminal from then on.
    """
    with working(work, first) as step:

        def say(what: str) -> None:
            if what:
                tell(what)
            step(what)

        yield say


def _name(step: str) -> str:
    return _COUNT.sub("", step).strip()


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _file() -> Path:
    return cache_root() / "durations.json"


def _remembered() -> dict[str, dict[str, float]]:
    if not _file().is_file():  # nor a device, which has no end
        return {}
    try:
        content = json.loads(_file().read_text(encoding="utf-8"))
        return {work: {step: float(took) for step, took in steps.items()} for work, steps in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # it is there to be forgotten


def _remember(work: str, taken: dict[str, float]) -> None:
    content = _remembered()
    before = content.get(work, {})
    # A step that found its result ready says nothing of how long it takes where it does not.
    content[work] = {step: max(round(took, 1), before.get(step, 0.0)) for step, took in taken.items()}
    with contextlib.suppress(OSError, ConfigError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(), json.dumps(content).encode())
