# SPDX-License-Identifier: Apache-2.0
"""Opening files and folders at names that another user of this computer can guess.

In a folder that several users may write into, whoever comes first decides what is at a name: a link to somebody's
file, a FIFO that blocks, a file of theirs. Everything at such a name is opened by the functions here.
"""

import contextlib
import errno
import grp
import os
import pwd
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}
# open(2) of a link, of a FIFO or a socket without a reader, of a folder; mkdir(2) of what exists.
_WRONG_KIND = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
_HINT = "remove it, or have its owner remove it"


class UnsafeFileError(OSError):
    """What is at a name is not a regular file or a folder of this user. ``strerror`` says what it is."""

    hint = _HINT

    def __init__(self, path: str | Path, problem: str) -> None:
        super().__init__(errno.EINVAL, problem, str(path))


def open_regular(path: str | Path, flags: int, *, shared: bool = False) -> int:
    """Open a regular file, and nothing else: no link is followed, and nothing blocks.

    It has the form of an ``opener`` of :func:`open`. A file is truncated after it was checked.

    Args:
        flags: as of :func:`os.open`.
        shared: it may belong to another user.
    """
    safe = flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        handle = os.open(path, safe, 0o666)
    except OSError as error:
        if error.errno in _WRONG_KIND:
            check_regular(path, shared=shared)
        raise
    try:
        _check_file(path, os.fstat(handle), shared)
        if flags & os.O_TRUNC:
            os.ftruncate(handle, 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_regular(path: str | Path, *, shared: bool = False) -> None:
    """Raise as :func:`open_regular` for what another program will open; what is not there is fine."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    _check_file(path, status, shared)


def own_folder(path: Path, mode: int = 0o755) -> None:
    """Make a folder, or see that what is there is one by :func:`check_own_folder`; raises as that."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode, parents=True, exist_ok=True)
    check_own_folder(path)


def check_own_folder(path: Path) -> None:
    """See that something is a folder that nobody but this user and root can write into.

    A link to one is followed if this user or root made it.
    """
    if path.is_symlink() and not path.exists():
        raise UnsafeFileError(path, "it is a symbolic link to what is not there")
    for status in (path.lstat(), path.stat()):
        if status.st_uid not in (0, os.geteuid()):
            raise UnsafeFileError(path, f"it belongs to {_user(status.st_uid)}")
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFileError(path, f"it is {_kind(status)}, not a folder")
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and _has_others(status.st_gid)):
        raise UnsafeFileError(path, "other users may write into it")


def _check_file(path: str | Path, status: os.stat_result, shared: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(path, f"it is {_kind(status)}, not a regular file")
    if status.st_nlink > 1:
        raise UnsafeFileError(path, "it is a hard link: the file has another name, too")
    if not shared and status.st_uid != os.geteuid():
        raise UnsafeFileError(path, f"it belongs to {_user(status.st_uid)}")


def _kind(status: os.stat_result) -> str:
    return _KINDS[stat.S_IFMT(status.st_mode)]


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _has_others(gid: int) -> bool:
    """Whether a group has another user in it: with a umask of 002, each user's own group may write."""
    own = os.geteuid()
    try:
        members = grp.getgrgid(gid).gr_mem
    except KeyError:
        members = []
    users = pwd.getpwall()
    return any(user.pw_uid != own and (user.pw_gid == gid or user.pw_name in members) for user in users)
