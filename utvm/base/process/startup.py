# SPDX-License-Identifier: Apache-2.0
"""Prepares the environment of a utvm process, and guards its exit code."""

import contextlib
import ctypes
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

from utvm.errors import ExitCode

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
_LIBC = ctypes.CDLL(None)
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
    _LIBC.__cxa_atexit(handler, None, name)
    try:
        yield
    finally:
        guarding = False
        # Calls the handler once more, and forgets it: Python's own end must not find it.
        _LIBC.__cxa_finalize(name)
