# SPDX-License-Identifier: Apache-2.0
"""What a computer does to any program: no room, no rights, no memory. Said in a line, with a hint."""

import errno
import traceback
from collections.abc import Iterator
from pathlib import Path

from utvm.base.storage.cache_entries import cache_root
from utvm.errors import UtvmError

_ROOM = "free some room, or set XDG_CACHE_HOME to a disk that has some"
_RIGHTS = "may you write there? XDG_CACHE_HOME chooses another place for the cache"
_MEMORY = "free some memory, or raise the limit (ulimit -v)"
# As Python says that the kernel gives it no thread, and C++ that it gives it no memory.
_NO_MEMORY = ("can't start new thread", "std::bad_alloc")
_HINTS = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this computer: end a program that has them",
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: "raise the limit on processes (ulimit -u)",
    errno.EIO: "is the disk well? dmesg says more",
}


def explained(error: BaseException) -> UtvmError | None:
    """Return an error that says what is scarce, if that is what an exception comes from; None where it is not."""
    for each in _behind(error):
        if isinstance(each, OSError) and each.errno in _HINTS:
            where = f"{each.filename}: " if each.filename else ""
            return UtvmError(f"{where}{each.strerror}", _HINTS[each.errno])
        if isinstance(each, OSError) and _is_in_the_cache(each.filename):
            # It was whole when it was looked up.
            return UtvmError(
                f"{each.filename}: {each.strerror}", "the cache was changed while it was used: run again"
            )
        if isinstance(each, FileNotFoundError) and each.filename is None and _is_nowhere():
            return UtvmError("the current folder is not there any more", "cd to one that is")
        if isinstance(each, MemoryError) or any(words in str(each) for words in _NO_MEMORY):
            return UtvmError("there is not enough memory", _MEMORY)
        if isinstance(each, ImportError) or _is_of_loading(each):
            return UtvmError(
                f"a part of the program cannot be loaded: {' '.join(str(each).split())}",
                "is there enough memory (ulimit -v)? else delete .venv for ./inv to install it anew",
            )
    return None


def _is_in_the_cache(path: object) -> bool:
    return isinstance(path, str | Path) and Path(path).is_relative_to(cache_root())


def _is_nowhere() -> bool:
    """Whether the folder that we were called in has been removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _is_of_loading(error: BaseException) -> bool:
    """Whether an installed package, which loads everywhere else, has failed while it was loaded."""
    return any(
        frame.name == "<module>" and "site-packages" in frame.filename
        for frame in traceback.extract_tb(error.__traceback__)
    )


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it comes from, the last first."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
