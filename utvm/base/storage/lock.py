# SPDX-License-Identifier: Apache-2.0
"""Locks for things that one process at a time may use, such as a board.

A lock is a file under ``/run/lock`` with a kernel lock (``flock``), which is released however its holder ends. Its
text names the holder; the file itself stays.
"""

import contextlib
import datetime
import fcntl
import os
import pwd
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from utvm.base.storage.files import open_regular
from utvm.base.text.quoting import encodable
from utvm.errors import BoardError

_SYSTEM_DIRECTORY = Path("/run/lock")
_LONGEST = 500  # Characters of a command that are stored.


def shared_directory() -> Path | None:
    """Return the directory for locks of all users of this machine, or None."""
    return _SYSTEM_DIRECTORY if os.access(_SYSTEM_DIRECTORY, os.W_OK) else None


@contextlib.contextmanager
def hold(
    name: str, *, directory: Path | None = None, patience: float = 0.0, waiting: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold the named lock while the ``with`` block runs.

    Args:
        name: the locked thing, such as ``stm32f746 066BFF303430`` (board and serial number).
        waiting: called once if the lock is held, with its holder and start time.
    """
    directory = directory or shared_directory() or Path(tempfile.gettempdir())
    path = directory / f"utvm-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.lock"
    handle = _open(path)
    try:
        deadline = time.monotonic() + patience
        free = _try_lock(handle)
        if not free and patience:
            waiting(f"held by {_holder(handle)}")
        while not (free or _try_lock(handle)):
            if time.monotonic() >= deadline:
                raise BoardError(
                    f"{name} is busy, held by {_holder(handle)}",
                    "wait until that has ended (a command that uses a board waits with --wait)",
                )
            time.sleep(0.2)
        os.ftruncate(handle, 0)
        os.pwrite(handle, encodable(_own_description()).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _own_description() -> str:
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"user {os.getuid()}"
    # Without the program's path, which varies.
    command = shlex.join(sys.argv[1:]) or Path(sys.argv[0]).name
    return f"{user}: {command[:_LONGEST]} (pid {os.getpid()}, since {now})\n"


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    with BoardError.on_os_error(f"{path}: the lock file cannot be opened", "remove it, or make it writable"):
        while True:
            try:
                # In a sticky directory the kernel may refuse O_CREAT for another user's file.
                return open_regular(path, os.O_RDWR, shared=True)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    handle = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                    # Despite the umask: the next holder may be another user.
                    os.fchmod(handle, 0o666)
                    return handle


def _holder(handle: int) -> str:
    """Read the holder's text, which is written just after locking."""
    for _ in range(20):
        text = os.pread(handle, 4 * _LONGEST, 0).decode(errors="replace").strip()
        if text:
            return text
        time.sleep(0.01)
    return "another process"
