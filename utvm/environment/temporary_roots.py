# SPDX-License-Identifier: Apache-2.0
"""Drafts: scratch folders for what may be a root file system, and what is said when there is no room for one."""

import contextlib
import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from utvm.base.storage import temporary
from utvm.errors import ProvisionError


@contextlib.contextmanager
def temporary_root(parent: Path) -> Iterator[Path]:
    """Make an empty folder as :func:`utvm.base.storage.temporary.temporary_folder` does."""
    try:
        with temporary.temporary_folder(parent, _remove) as folder:
            try:
                yield folder
            except OSError as error:
                # Said before it is removed: how much room there is now.
                raise _explained(error, folder.parent) from error
    except OSError as error:
        raise _explained(error, parent.resolve()) from error


def _remove(folder: Path) -> None:
    temporary.remove_tree(folder)
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
