# SPDX-License-Identifier: Apache-2.0
"""The start and the end of a process: its environment, signals, and exit code.

Ctrl-C, SIGTERM and SIGHUP end ``with`` blocks in order; the death of the parent kills a child.
"""

import contextlib
import ctypes
import os
import pwd
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from utvm.errors import ExitCode


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP.

    A class of its own: CPython remembers a plain KeyboardInterrupt that passed through ``exec``, as it does while
    modules are imported, and then ends with the signal whatever exit code was asked for.
    """


# Under nohup, a terminal that is closed is of no concern.
_NOHUP = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
_ENDING = (signal.SIGINT, signal.SIGTERM, *(() if _NOHUP else (signal.SIGHUP,)))
_DEBOUNCE = 1.0  # Seconds.
_signal_times: list[float] = []


def raise_on_signals() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP raise :class:`Interrupted`, so that ``with`` blocks clean up.

    Several within a moment are one: a hurried Ctrl-C, a terminal that is closed. So the second does not interrupt
    what the first has begun. What came before is forgotten: a program may run suites again after it was
    interrupted.
    """
    _signal_times.clear()
    last = float("-inf")

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        _signal_times.append(last)
        if last - before > _DEBOUNCE:
            raise Interrupted

    for number in _ENDING:
        signal.signal(number, interrupt)


def ignore_signals() -> None:
    """Ignore Ctrl-C, SIGTERM and SIGHUP from here on: the exit code is decided.

    Without this, Python gives its handlers back while it ends, and a signal then ends it with an exit code of its
    own; what it does to an ignored signal is nothing. :func:`raise_on_signals` undoes it.
    """
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def record_signals() -> None:
    """Only record Ctrl-C, SIGTERM and SIGHUP from here on, for :func:`was_interrupted`."""
    for number in _ENDING:
        signal.signal(number, lambda *_: _signal_times.append(time.monotonic()))


def was_interrupted() -> bool:
    """True if such a signal has arrived since :func:`raise_on_signals`.

    The exception alone does not always tell. While modules are imported it may arrive as another: what comes in a
    ``__set_name__`` Python before 3.12 wraps in RuntimeError. In a callback from C it is lost.
    """
    return bool(_signal_times)


def raise_if_interrupted() -> None:
    """Raise an interruption that another exception has replaced."""
    if was_interrupted():
        raise Interrupted


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> Callable[[], None]:
    """A ``preexec_fn`` for processes that are to end when the thread that starts them ends."""
    return partial(die_with, os.getpid())


def die_with(parent: int) -> None:
    """Have the kernel end the calling process when the thread that started it ends; it has if that has ended."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # One that was killed before it could be asked for: nothing would tell of that any more.
    if os.getppid() != parent:
        os._exit(1)


def end_with_inv() -> bool:
    """If ``inv`` has started this process and waits for it, end with it, and return True."""
    starter = os.environ.pop("UTVM_STARTED_BY", "")
    if starter:
        die_with(int(starter))
    return bool(starter)


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def prepare_environment() -> None:
    """Open closed standard streams, give a user that passwd does not know a name,
    and send no connection to this computer through a proxy.
    """
    # A closed stream's number would be the next file's.
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
            os.dup2(getattr(sys, name).fileno(), number)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        # What getpass.getuser() looks at first, in labgrid too.
        os.environ.setdefault("LOGNAME", f"uid-{os.getuid()}")
    # gRPC looks at the first alone where there is one; it and others know the lower case only, Go's both.
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        hosts = os.environ.get(name, "")
        if name != "no_grpc_proxy" or hosts:
            added = [host for host in _LOOPBACK if host not in hosts.split(",")]
            os.environ[name] = ",".join([hosts, *added] if hosts else added)


_MESSAGE = b"error: a library ended the program\n  hint: is there enough memory (ulimit -v)?\n"
_C_LIBRARY = ctypes.CDLL(None)
_HANDLER_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


@contextlib.contextmanager
def guard_exit_code() -> Iterator[None]:
    """End the process with 3 where anything but Python itself calls C's ``exit()`` within the ``with`` block."""
    guarding = True
    process = os.getpid()

    def end(_argument: int | None, _status: int) -> None:
        if guarding and os.getpid() == process:
            with contextlib.suppress(OSError):
                os.write(2, _MESSAGE)
            os._exit(int(ExitCode.INFRASTRUCTURE))

    handler = _HANDLER_TYPE(end)
    name = ctypes.create_string_buffer(1)  # Its address names the handler to the C library.
    _C_LIBRARY.__cxa_atexit(handler, None, name)
    try:
        yield
    finally:
        guarding = False
        # Calls the handler once more, and forgets it: Python's own end must not find it.
        _C_LIBRARY.__cxa_finalize(name)
