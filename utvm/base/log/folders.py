# SPDX-License-Identifier: Apache-2.0
"""The folders that commands leave the logs of what they started in. The last ones are kept; the others go."""

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from utvm.errors import ConfigError

VARIABLE = "UTVM_KEEP_LOGS"
_KEPT = 50


def log_folder(folder: Path) -> Path:
    """Make a folder for logs and return it; its neighbours beyond the last 50, or as many as are asked for, go.

    It stays as long as this process runs, however many others come.
    """
    kept = _wanted()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Left open: the kernel takes the lock back when this process has ended, however it ends.
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    except OSError as error:
        raise ConfigError(
            f"{folder}: logs cannot be written there: {error.strerror or error}",
            "make it writable, or free some room",
        ) from error
    others = [
        path for path in folder.parent.iterdir() if path != folder and path.is_dir() and not path.is_symlink()
    ]
    for path in sorted(others, key=_age, reverse=True)[max(0, kept - 1) :]:
        _remove_unused(path)
    return folder


def _wanted() -> int:
    text = os.environ.get(VARIABLE, "")
    if text and not text.isdecimal():
        raise ConfigError(f"{VARIABLE}={text}: is not a number", "it says how many runs' logs are kept")
    return int(text) if text else _KEPT


def _age(folder: Path) -> float:
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime
    return 0.0


def _remove_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
