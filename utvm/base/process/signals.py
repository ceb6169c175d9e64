# SPDX-License-Identifier: Apache-2.0
"""The start and end of a process: environment, signals, and exit code.

Ctrl-C, SIGTERM and SIGHUP end ``with`` blocks in order; the death of the parent kills a child.
"""

import contextlib
import ctypes
import os
import pwd
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from utvm.errors import ExitCode


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP.

    Not a plain KeyboardInterrupt: CPython remembers one that passed through ``exec``, as during imports, and then
    ends with the signal whatever the exit code.
    """


# Under nohup, ignore a closed terminal.
_NOHUP = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
_ENDING = (signal.SIGINT, signal.SIGTERM, *(() if _NOHUP else (signal.SIGHUP,)))
_DEBOUNCE = 1.0  # Seconds.
_signal_times: list[float] = []
# If the last interruption was lost and must be raised again: when. No lock, which a second signal would wait for.
_lost: list[float] = []


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    now = time.monotonic()
    hurried = bool(_signal_times) and now - _signal_times[-1] <= _DEBOUNCE and not _lost
    _lost.clear()
    _signal_times.append(now)
    if not hurried:
        raise Interrupted


def raise_on_signals() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP raise :class:`Interrupted`, so that ``with`` blocks clean up.

    Signals within a second count as one, so that a hurried second Ctrl-C or a closing terminal does not interrupt
    the clean-up. Earlier signals are forgotten, unless they are still to be raised again: a program may run suites
    again after an interruption.
    """
    _signal_times.clear()
    if signal.getsignal(signal.SIGTERM) is not _interrupt:
        raise_lost_interruptions()
    for number in _ENDING:
        signal.signal(number, _interrupt)


def raise_lost_interruptions() -> None:
    """Raise :class:`Interrupted` again if Python ignores it, as in a finalizer or in a callback from C.

    Extends :data:`sys.unraisablehook`; whoever replaces the hook calls this again.
    """
    previous = sys.unraisablehook

    def hook(error: "sys.UnraisableHookArgs") -> None:
        if not issubclass(error.exc_type, Interrupted):
            previous(error)
            return
        # An exception from here would be ignored too.
        timer = threading.Timer(_RESEND_AFTER, _resend)
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread can be started; was_interrupted() remains
            timer.start()

    sys.unraisablehook = hook


_RESEND_AFTER = 0.02  # Seconds.


def _resend() -> None:
    _lost.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGTERM)


def ignore_signals() -> None:
    """Ignore Ctrl-C, SIGTERM and SIGHUP from here on: the exit code is decided.

    Otherwise Python restores default handlers while it exits, and a signal would change the exit code; ignored
    signals stay ignored. :func:`raise_on_signals` undoes it.
    """
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def record_signals() -> None:
    """Only record Ctrl-C, SIGTERM and SIGHUP from here on, for :func:`was_interrupted`."""
    for number in _ENDING:
        signal.signal(number, lambda *_: _signal_times.append(time.monotonic()))


def was_interrupted() -> bool:
    """True if Ctrl-C, SIGTERM or SIGHUP has arrived since :func:`raise_on_signals`.

    The exception may be replaced or lost: during imports, Python before 3.12 wraps it in RuntimeError in a
    ``__set_name__``; a callback from C loses it.
    """
    return bool(_signal_times)


def raise_if_interrupted() -> None:
    """Raise an interruption that another exception has replaced."""
    if was_interrupted():
        raise Interrupted


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> Callable[[], None]:
    """Return a ``preexec_fn`` for processes that must end with the thread that starts them."""
    return partial(die_with, os.getpid())


def die_with(parent: int) -> None:
    """End the calling process when the thread that started it ends, or at once if it has ended."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before prctl.
    if os.getppid() != parent:
        os._exit(1)


def end_with_inv() -> bool:
    """If ``inv`` started this process and waits for it, end with it, and return True."""
    starter = os.environ.pop("UTVM_STARTED_BY", "")
    if starter:
        die_with(int(starter))
    return bool(starter)


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def prepare_environment() -> None:
    """Open closed standard streams, name a user unknown to passwd, and bypass proxies for this computer."""
    # The next opened file would get a closed stream's number.
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
            os.dup2(getattr(sys, name).fileno(), number)
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        # getpass.getuser() reads this first, in labgrid too.
        os.environ.setdefault("LOGNAME", f"uid-{os.getuid()}")
    # gRPC reads only the first that is set; others read only lower case, Go both.
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
    """Exit with 3 if anything but Python itself calls C's ``exit()`` within the ``with`` block."""
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
        # Calls the handler once more and unregisters it, so that Python's own exit does not run it.
        _C_LIBRARY.__cxa_finalize(name)
