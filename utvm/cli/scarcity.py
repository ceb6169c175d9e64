# SPDX-License-Identifier: Apache-2.0
"""Errors of a computer that is short of space, rights or memory, in one line with a hint."""

import contextlib
import errno
import traceback
from collections.abc import Iterator
from pathlib import Path

from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import UnsafeFileError
from utvm.errors import ConfigError, UtvmError

_SPACE = "free some space, or set XDG_CACHE_HOME to a disk that has some"
_RIGHTS = "check its permissions; XDG_CACHE_HOME chooses another place for the cache"
_MEMORY = "free some memory, or raise the limit (ulimit -v)"
# Python's message if no thread can be started, and C++'s if there is no memory.
_NO_MEMORY = ("can't start new thread", "std::bad_alloc")
_AGAIN = "check that there is enough memory (ulimit -v); if so, delete .venv: ./inv installs it again"
_OF_BOARDS = ("pytest", "unicorn", "usb", "libusb_package")
_HINTS = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOTDIR: "a file is where a folder should be: HOME and XDG_CACHE_HOME name folders",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this computer: end a program that holds them",
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: "raise the limit on processes (ulimit -u)",
    errno.EIO: "check the disk: dmesg shows its errors",
}


def explain_scarcity(error: BaseException) -> UtvmError | None:
    """Return the error of a shortage that caused an exception, or None."""
    for cause in _causes(error):
        hint = cause.hint if isinstance(cause, UnsafeFileError) else _HINTS.get(getattr(cause, "errno", None) or 0)
        if isinstance(cause, OSError) and hint:
            prefix = f"{cause.filename}: " if cause.filename else ""
            return UtvmError(f"{prefix}{cause.strerror}", hint)
        if isinstance(cause, OSError) and _is_in_the_cache(cause.filename):
            # The entry was complete when it was looked up.
            return UtvmError(
                f"{cause.filename}: {cause.strerror}", "the cache was changed while it was used: run again"
            )
        if isinstance(cause, FileNotFoundError) and cause.filename is None and _is_cwd_missing():
            return UtvmError("the current folder no longer exists", "cd to one that exists")
        if isinstance(cause, MemoryError) or any(words in str(cause) for words in _NO_MEMORY):
            return UtvmError("there is not enough memory", _MEMORY)
        if isinstance(cause, ImportError) or _is_from_import(cause):
            of_boards = getattr(cause, "name", "") in _OF_BOARDS
            return UtvmError(
                f"a part of the program cannot be loaded: {' '.join(str(cause).split())}",
                "boards and suites need it: pip install 'utvm[boards]'" if of_boards else _AGAIN,
            )
    return None


def _is_in_the_cache(path: object) -> bool:
    with contextlib.suppress(ConfigError):  # without a home directory
        return isinstance(path, str | Path) and Path(path).is_relative_to(cache_root())
    return False


def _is_cwd_missing() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _is_from_import(error: BaseException) -> bool:
    return any(frame.name == "<module>" for frame in traceback.extract_tb(error.__traceback__))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
