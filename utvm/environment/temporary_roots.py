# SPDX-License-Identifier: Apache-2.0
"""Temporary folders that may hold a root file system, and the errors of a full disk."""

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
    """Empty temporary folder, see :func:`utvm.base.storage.temporary.temporary_folder`."""
    try:
        with temporary.temporary_folder(parent, _remove) as folder:
            try:
                yield folder
            except OSError as error:
                # Before the folder is removed: the message gives the free space.
                raise _translate(error, folder.parent) from error
    except OSError as error:
        raise _translate(error, parent.resolve()) from error


@contextlib.contextmanager
def replace_folder(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a new folder, which replaces the given one when the block ends, and a folder for working files."""
    with temporary_root(folder.parent) as work:
        new = work / "new"
        new.mkdir()
        yield new, work
        if folder.exists():
            folder.rename(work / "earlier")
        new.rename(folder)


def _remove(folder: Path) -> None:
    temporary.remove_tree(folder)
    if folder.exists() and shutil.which("mmdebstrap"):
        # Only a user namespace may remove files of the root file system's users.
        subprocess.run(["mmdebstrap", "--unshare-helper", "rm", "-rf", folder], capture_output=True, check=False)
    if folder.exists():
        raise ProvisionError(f"{folder}: cannot be removed", f"sudo rm -rf {folder}")


def disk_full(folder: Path) -> ProvisionError:
    free = shutil.disk_usage(folder).free // 1_000_000
    return ProvisionError(
        f"{folder}: the disk is full ({free} MB free)",
        "building an image takes about 5 GB: free some space, or set XDG_CACHE_HOME to another disk",
    )


def _translate(error: OSError, parent: Path) -> ProvisionError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(parent)
    return ProvisionError(f"{error.filename or parent}: {error.strerror or error}", "check its permissions")
