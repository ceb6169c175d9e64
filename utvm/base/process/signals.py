# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP, so that ``with`` blocks clean up."""

import signal
import time
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP.

    A class of its own: CPython remembers a plain KeyboardInterrupt that passed through ``exec``, as it does while
    modules are imported, and then ends with the signal whatever exit code was asked for.
    """


# Under nohup, a terminal that is closed is of no concern.
_NOHUP = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
_ENDING = (signal.SIGINT, signal.SIGTERM, *(() if _NOHUP else (signal.SIGHUP,)))
_ONE_WISH = 1.0  # Seconds.
_signals_taken: list[float] = []


def raise_on_signals() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP raise :class:`Interrupted`, so that ``with`` blocks clean up.

    Several within a moment are one: a hurried Ctrl-C, a terminal that is closed. So the second does not interrupt
    what the first has begun. What came before is forgotten: a program may run suites again after it was
    interrupted.
    """
    _signals_taken.clear()
    last = float("-inf")

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        _signals_taken.append(last)
        if last - before > _ONE_WISH:
            raise Interrupted

    for number in _ENDING:
        signal.signal(number, interrupt)


def ignore_signals() -> None:
    """Ignore Ctrl-C and what else ends us from here on: how the run, or the process, ends is decided.

    Without this, Python gives its handlers back while it ends, and a signal then ends it with an exit code of its
    own; what it does to an ignored signal is nothing. :func:`end_in_order_on_signals` undoes it.
    """
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def record_signals() -> None:
    """Let Ctrl-C and what else ends us raise nothing any more: :func:`interrupted` tells of it."""
    for number in _ENDING:
        signal.signal(number, lambda *_: _signals_taken.append(time.monotonic()))


def interrupted() -> bool:
    """Whether such a signal has come since :func:`end_in_order_on_signals`.

    The exception alone does not always tell. While modules are imported it may arrive as another: what comes in a
    ``__set_name__`` Python before 3.12 wraps in RuntimeError. In a callback from C it is lost.
    """
    return bool(_signals_taken)


def stop_if_interrupted() -> None:
    """Go on with an interruption that another exception has taken the place of.

    Raises:
        Interrupted: there has been one.
    """
    if interrupted():
        raise Interrupted
