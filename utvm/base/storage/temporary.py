# SPDX-License-Identifier: Apache-2.0
"""Temporary folders, and the check for free space.

A temporary folder is removed when its ``with`` block ends. Its owner locks it, so that later owners can detect
and remove folders of killed processes. :func:`private_folder` is for sockets, whose path length the kernel limits.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from utvm.errors import ProvisionError

_PREFIX = ".draft-"
_LONGEST_SOCKET_PATH = 107  # Bytes: sun_path of the kernel, without its NUL.
_LONGEST_PARENT = _LONGEST_SOCKET_PATH - len("/") - 32 - len(f"/{_PREFIX}") - 8
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


remove_tree = functools.partial(shutil.rmtree, ignore_errors=True)


@contextlib.contextmanager
def temporary_folder(parent: Path, remove: Callable[[Path], None] = remove_tree) -> Iterator[Path]:
    """Create an empty folder in ``parent``, and always remove it at the end.

    Its path is absolute. A folder that was renamed meanwhile is kept.
    """
    parent = parent.resolve()
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent, remove)
    folder, handle = _create_with_lock(parent)
    try:
        yield folder
    finally:
        try:
            remove(folder)
        finally:
            os.close(handle)


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Create a temporary folder of mode 0700 for Unix sockets, and remove it at the end.

    Its path has at most 74 bytes, so that a socket in it may have a name of 32; if ``TMPDIR`` is too long or not
    writable, another parent is used.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    parents = (os.environ.get("TMPDIR", ""), "/tmp", runtime, "/var/tmp", "/dev/shm")
    failure: OSError = FileNotFoundError("no temporary folder has a path short enough for sockets")
    for parent in map(Path, filter(os.path.isabs, parents)):
        with contextlib.ExitStack() as stack:
            try:
                if not parent.is_dir() or len(os.fsencode(parent.resolve())) > _LONGEST_PARENT:
                    continue
                folder = stack.enter_context(temporary_folder(parent))
            except OSError as error:
                failure = error
                continue
            yield folder
            return
    raise failure


def _create_with_lock(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, _FOLDER)
            # Without file locks, there is no sweeping either.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)
        # Another process swept it before it was locked.


def _sweep(parent: Path, remove: Callable[[Path], None]) -> None:
    """Remove folders of killed processes; skip those that cannot be identified."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            handle = os.open(folder, _FOLDER)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            continue
        try:
            remove(folder)
        finally:
            os.close(handle)


_RESERVED = 16 << 20  # Bytes: more than a run's logs, its report, or the firmware of most suites.


def require_free_space(folders: Iterable[Path]) -> None:
    """Check that all folders are writable and have free space, all at once.

    The space is allocated briefly, which also checks quotas and limits, in unnamed files that leave no trace.
    """
    with contextlib.ExitStack() as stack:
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                os.posix_fallocate(file.fileno(), 0, _RESERVED)
            except OSError as error:
                raise ProvisionError(
                    f"{folder}: {_RESERVED >> 20} MiB cannot be written there: {error.strerror or error}",
                    "free some space, make it writable, or choose another (--report-dir, XDG_CACHE_HOME)",
                ) from error
