# SPDX-License-Identifier: Apache-2.0
"""Folders for what is being made: gone when that is done or fails; after a kill -9, when the next one is made.

Such a folder is locked by the kernel as long as its maker lives, so that what a dead one left can be told from the
work of a living one.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_PREFIX = ".draft-"


def remove_tree(folder: Path) -> None:
    """Remove a folder and what is in it, as far as that goes."""
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def temporary_folder(parent: Path, remove: Callable[[Path], None] = remove_tree) -> Iterator[Path]:
    """Make an empty folder in ``parent``, and remove it in the end, whatever happened.

    Its path is absolute. It may be renamed meanwhile: then it stays.

    Args:
        remove: removes one that may be there or not.
    """
    parent = parent.resolve()
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent, remove)
    folder, handle = _made(parent)
    try:
        yield folder
    finally:
        try:
            remove(folder)
        finally:
            os.close(handle)


def _made(parent: Path) -> tuple[Path, int]:
    """Make one and lock it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            # A file system that has no such locks has no sweeping either.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)
        # Somebody else took it for a dead one's, in the moment before it was locked.


def _sweep(parent: Path, remove: Callable[[Path], None]) -> None:
    """Remove those whose makers were killed; leave alone what cannot be told to be one."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            handle = os.open(folder, os.O_RDONLY)
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
