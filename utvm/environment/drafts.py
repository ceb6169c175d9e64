"""Folders for what is being made: gone when that is done or fails; after a kill -9, when the next one is made.

A draft is locked by the kernel as long as its maker lives, so that what a dead one left can be told from the work
of a living one.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from utvm.errors import ProvisionError

_PREFIX = ".draft-"


@contextlib.contextmanager
def draft(parent: Path) -> Iterator[Path]:
    """Make an empty folder in ``parent``, and remove it in the end, whatever happened. Its path is absolute.

    Raises:
        ProvisionError: it cannot be made, or the disk became full in the ``with`` block.
    """
    parent = parent.resolve()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise _explained(error, parent) from error
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    except OSError as error:
        raise _explained(error, parent) from error
    finally:
        _remove(folder)
        os.close(handle)


def sweep(parent: Path) -> None:
    """Remove the drafts whose makers were killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            except BlockingIOError:
                pass
            finally:
                os.close(handle)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and shutil.which("mmdebstrap"):
        # Files of a root file system belong to user numbers that only a user namespace gives us the right to.
        subprocess.run(["mmdebstrap", "--unshare-helper", "rm", "-rf", folder], capture_output=True, check=False)
    if folder.exists():
        raise ProvisionError(f"{folder}: cannot be removed", f"sudo rm -rf {folder}")


def disk_full(place: Path) -> ProvisionError:
    """Return the error for a disk without room."""
    free = shutil.disk_usage(place).free // 1_000_000
    return ProvisionError(
        f"{place}: the disk is full ({free} MB free)",
        "an image takes about 5 GB while it is made; free some, or set XDG_CACHE_HOME to another disk",
    )


def _explained(error: OSError, parent: Path) -> ProvisionError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(parent)
    return ProvisionError(
        f"{error.filename or parent}: {error.strerror or error}", "may you read and write there?"
    )
