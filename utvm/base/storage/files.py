# SPDX-License-Identifier: Apache-2.0
"""Opens and writes users' files, files whose names another user of this computer can guess, and temporary folders.

In a shared folder another user may have put a link, a FIFO or their own file at a name, so such names are opened
by :func:`open_regular` and :func:`create_own_folder`. User files are read only if regular, and written atomically.

A temporary folder is removed when its ``with`` block ends. Its owner locks it, so that later owners can detect
and remove folders of killed processes. :func:`private_folder` is for sockets, whose path length the kernel limits.
"""

import contextlib
import errno
import fcntl
import functools
import grp
import os
import pwd
import secrets
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from utvm.base.text.quoting import encodable
from utvm.errors import ConfigError, ProvisionError

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}
# open(2) of a link, a FIFO or socket without a reader, or a folder; mkdir(2) of an existing name.
_WRONG_KIND = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
_HINT = "remove it, or have its owner remove it"


class UnsafeFileError(OSError):
    """The file at a name is not a regular file or folder of this user; ``strerror`` describes it."""

    hint = _HINT

    def __init__(self, path: str | Path, problem: str) -> None:
        super().__init__(errno.EINVAL, problem, str(path))


def open_regular(path: str | Path, flags: int, *, shared: bool = False) -> int:
    """Open a regular file only, without following links or blocking.

    Usable as ``opener`` of :func:`open`. A file is truncated after it was checked.

    Args:
        shared: accept a file of another user.
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
    """Raise as :func:`open_regular` for a file that another program will open; it may be missing."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    _check_file(path, status, shared)


def create_own_folder(path: Path, mode: int = 0o755) -> None:
    """Create a folder, or check an existing one; raises as :func:`check_own_folder`."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode, parents=True, exist_ok=True)
    check_own_folder(path)


def check_own_folder(path: Path) -> None:
    """Check that only this user and root can write into a folder.

    A link to a folder is followed if this user or root made it.
    """
    if path.is_symlink() and not path.exists():
        raise UnsafeFileError(path, "it is a broken symbolic link")
    for status in (path.lstat(), path.stat()):
        if status.st_uid not in (0, os.geteuid()):
            raise UnsafeFileError(path, f"it belongs to {_user(status.st_uid)}")
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFileError(path, f"it is {_KINDS[stat.S_IFMT(status.st_mode)]}, not a folder")
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and _has_others(status.st_gid)):
        raise UnsafeFileError(path, "other users may write into it")


def _check_file(path: str | Path, status: os.stat_result, shared: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(path, f"it is {_KINDS[stat.S_IFMT(status.st_mode)]}, not a regular file")
    if status.st_nlink > 1:
        raise UnsafeFileError(path, "it is a hard link: the file has another name, too")
    if not shared and status.st_uid != os.geteuid():
        raise UnsafeFileError(path, f"it belongs to {_user(status.st_uid)}")


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _has_others(gid: int) -> bool:
    own = os.geteuid()
    try:
        members = grp.getgrgid(gid).gr_mem
    except KeyError:
        members = []
    users = pwd.getpwall()
    return any(user.pw_uid != own and (user.pw_gid == gid or user.pw_name in members) for user in users)


UNREADABLE_ZIP = (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError, EOFError)
"""Exceptions of :mod:`zipfile` for invalid, damaged or encrypted archives."""


def check_readable(path: str | Path, hint: str) -> None:
    """Refuse to read pipes and devices, which may have no end, and empty files (such as those of /proc)."""
    try:
        status = Path(path).stat()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: cannot be read: there is no such file", hint) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}", hint) from error
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path}: is a folder", hint)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path}: is not a regular file", hint)
    if not status.st_size:
        raise ConfigError(f"{path}: is empty", hint)


def read_text(path: str | Path, hint: str = "") -> str:
    check_readable(path, hint)
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text", hint) from error


def check_writable(*paths: str | Path) -> None:
    """Refuse unwritable files before any work is done for them; empty paths are ignored."""
    for path in filter(None, map(str, paths)):
        place = Path(path).resolve()
        if not place.parent.is_dir():
            raise ConfigError(f"{path}: its folder does not exist")
        if place.is_dir():
            raise ConfigError(f"{path}: is a folder")
        if place.exists() and not place.is_file():
            raise ConfigError(f"{path}: is not a regular file, so it cannot be replaced")
        _check_can_write(place.parent, path)


def check_folder(path: str | Path) -> None:
    """Refuse a folder that cannot be created or written before any work is done for it."""
    place = Path(path).resolve()
    parent = next(folder for folder in (place, *place.parents) if folder.exists())
    if not parent.is_dir():
        raise ConfigError(f"{path}: {'' if parent == place else f'{parent} '}is a file, but must be a folder")
    _check_can_write(parent, path)


def _check_can_write(folder: Path, path: str | Path) -> None:
    # The mode bits do not show root's rights or a read-only file system.
    with ConfigError.on_os_error(f"{path}: cannot be written", f"choose another folder: {folder} is not writable"):
        tempfile.TemporaryFile(dir=folder).close()


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file atomically; text in UTF-8, with a lone surrogate as ``\\udc80``."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb", opener=open_regular) as file:
            file.write(data if isinstance(data, bytes) else encodable(data).encode())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


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
            with ProvisionError.on_os_error(
                f"{folder}: {_RESERVED >> 20} MiB cannot be written there",
                "free some space, make it writable, or choose another (--report-dir, XDG_CACHE_HOME)",
            ):
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                os.posix_fallocate(file.fileno(), 0, _RESERVED)
