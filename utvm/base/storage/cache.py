# SPDX-License-Identifier: Apache-2.0
"""Cache of results by content: a result is reused if its inputs and tools are the same.

An entry is a directory below the user's cache directory, named by a SHA-256 over all inputs. It appears by one
atomic rename, so readers see all of it or nothing, and writers do not conflict. The next writer removes temporary
folders of killed writers. An entry is sealed when created; each use checks the seal.

:func:`mark_used` protects an entry from pruning while the process lives, by a kernel lock on one byte of a shared
file; the byte's offset is a hash of the entry's name.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from utvm import errors, paths
from utvm.base.storage import files

# Package files are in folders by the first letters of their names.
_DEEPER = {"packages": "sha256/*/*"}
_handles: dict[Path, IO[bytes]] = {}
_checked: set[Path] = set()


def cache_root() -> Path:
    """Return the user's cache directory, with a folder per kind of entry."""
    root = paths.user_folder("cache")
    if root not in _checked:
        try:
            files.check_own_folder(root)
        except files.UnsafeFileError as error:
            raise errors.ConfigError(
                f"{root}: is not used as the cache: {error.strerror}",
                "set XDG_CACHE_HOME to a folder that only you can write into",
            ) from error
        except OSError:  # Missing or inaccessible: the next writer reports it.
            return root
        _checked.add(root)
    return root


def mark_used(entry: Path) -> None:
    """Protect an entry from pruning while this process lives, and set its time of last use.

    Args:
        entry: may not exist yet; ignored outside the user's cache directory.
    """
    root = cache_root()
    if not entry.is_relative_to(root):
        return
    # A read-only cache is not pruned either.
    with contextlib.suppress(OSError):
        fcntl.lockf(_locks(root), fcntl.LOCK_SH, 1, _lock_offset(root, entry))
        os.utime(entry)


@dataclass(frozen=True)
class CacheEntry:
    """A cache entry; ``used`` is its last use, in seconds since the epoch."""

    kind: str
    path: Path
    size: int
    used: float


def entries() -> Iterator[CacheEntry]:
    root = cache_root()
    for folder in sorted(path for path in root.glob("*") if path.is_dir()):
        for path in sorted(folder.glob(_DEEPER.get(folder.name, "*"))):
            if not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    size = sum(file.lstat().st_blocks * 512 for file in (path, *path.rglob("*")))
                    yield CacheEntry(folder.name, path, size, path.stat().st_mtime)


def prune(older_than: float, dry_run: bool = False) -> Iterator[CacheEntry]:
    """Remove and yield entries that are not in use and were last used ``older_than`` seconds ago or earlier."""
    root, now = cache_root(), time.time()
    for entry in entries():
        if now - entry.used < older_than:
            continue
        with contextlib.ExitStack() as stack:
            if not stack.enter_context(_lock_if_unused(root, entry.path)):
                continue
            if not dry_run:
                # One atomic rename; a killed pruning leaves a temporary folder.
                trash = stack.enter_context(files.temporary_folder(root / entry.kind))
                entry.path.rename(trash / entry.path.name)
            yield entry


def _locks(root: Path) -> IO[bytes]:
    if root not in _handles:
        files.create_own_folder(root, 0o700)
        # Closing any handle of the file would drop all of the process's locks, so it stays open.
        _handles[root] = open(root / "in-use", "a+b", opener=files.open_regular)  # noqa: SIM115
    return _handles[root]


def _lock_offset(root: Path, entry: Path) -> int:
    name = entry.relative_to(root).as_posix()
    return int(hashlib.sha256(os.fsencode(name)).hexdigest()[:15], 16)


@contextlib.contextmanager
def _lock_if_unused(root: Path, entry: Path) -> Iterator[bool]:
    try:
        fcntl.lockf(_locks(root), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _lock_offset(root, entry))
    except (BlockingIOError, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        fcntl.lockf(_locks(root), fcntl.LOCK_UN, 1, _lock_offset(root, entry))


_log = logging.getLogger("utvm.cache")
_SEAL = "seal"


def content_key(*parts: str | bytes) -> str:
    """Return the hex SHA-256 over length-prefixed parts."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def tree_digest(directory: Path) -> str:
    """Return the hex SHA-256 over the names and contents of all source files below a directory."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return content_key(*(part for path in files for part in (str(path.relative_to(directory)), path.read_bytes())))


def file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def seal(folder: Path, name: str) -> None:
    """Finish a folder: write its seal, and flush everything to the disk.

    Renaming it afterwards is safe: a power cut leaves no empty files.

    Args:
        name: name of the entry; under another name the seal is invalid.
    """
    (folder / _SEAL).write_bytes(_contents(folder, name))
    for path in (*folder.rglob("*"), folder):
        if path.is_file() or path.is_dir():
            _flush(path)


def is_sealed(folder: Path, name: str) -> bool:
    """True if the folder is unchanged since it was sealed under this name: file names, contents, executable bits.

    The seal is not parsed but computed again and compared, so a damaged seal needs no special case.
    """
    seal = folder / _SEAL
    try:
        # Special files may block or have no end.
        return stat.S_ISREG(seal.lstat().st_mode) and seal.read_bytes() == _contents(folder, name)
    except OSError:
        return False


def rename_durably(folder: Path, target: Path) -> None:
    """Rename a sealed folder so that a power cut does not undo it."""
    folder.rename(target)
    _flush(target.parent)


class Cache:
    """The entries of one kind."""

    def __init__(self, kind: str, root: Path | None = None) -> None:
        self.directory = (root or cache_root()) / kind

    def find(self, key: str) -> Path | None:
        """Return the entry's directory, or None if it does not exist; set a damaged one aside."""
        entry = self.directory / key
        mark_used(entry)
        if is_sealed(entry, key):
            _log.info("%s %s: found in the cache", self.directory.name, key[:12])
            return entry
        if not os.path.lexists(entry):
            return None
        unwritable = errors.ConfigError.on_os_error(
            f"{entry}: damaged, and cannot be replaced",
            "remove it, or set XDG_CACHE_HOME to a directory that can be written",
        )
        # Under the lock: another process may have replaced it with a good one.
        with unwritable, self._exclusive():
            if is_sealed(entry, key):
                return entry
            if os.path.lexists(entry):
                self._set_aside(entry)
        return None

    def fetch(self, key: str, make: Callable[[Path], None]) -> Path:
        """Return the entry's directory; create it if it is missing or damaged.

        Args:
            make: fills the given empty directory. If it raises, no entry remains.
        """
        entry = self.find(key)
        while not entry:
            entry = self._create(key, make)
        return entry

    def _create(self, key: str, make: Callable[[Path], None]) -> Path | None:
        _log.info("%s %s: is missing, creating it", self.directory.name, key[:12])
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(files.temporary_folder(self.directory))
            except OSError as error:
                raise self._unwritable(error) from error
            make(folder)
            entry = self.directory / key
            try:
                seal(folder, key)
                rename_durably(folder, entry)
            except OSError as error:
                # Another process created the same entry meanwhile; use it.
                if not entry.is_dir():
                    raise self._unwritable(error) from error
                return self.find(key)
            return entry

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Lock this directory against other processes that set entries aside."""
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            # Without file locks, two processes at once may create an entry twice.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _set_aside(self, entry: Path) -> None:
        """Keep a damaged entry for inspection, replacing an earlier one."""
        aside = entry.with_name(f"{entry.name}.damaged")
        files.remove_tree(aside)
        aside.unlink(missing_ok=True)
        entry.rename(aside)
        _log.warning("%s: damaged, not used; set aside as %s and created again", entry, aside.name)

    def _unwritable(self, error: OSError) -> errors.ConfigError:
        return errors.ConfigError(
            f"{self.directory}: the cache cannot be written: {error.strerror or error}",
            "make it writable, or set XDG_CACHE_HOME to a directory that is",
        )


def _contents(folder: Path, name: str) -> bytes:
    lines = [os.fsencode(name)]
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if str(below) != _SEAL:
            mode = path.lstat().st_mode
            content = file_digest(path) if stat.S_ISREG(mode) else ""
            kind = f"{stat.S_IFMT(mode):o}{'x' if mode & stat.S_IXUSR else ''}"
            lines.append(b" ".join((kind.encode(), content.encode(), os.fsencode(below))))
    return b"\n".join(lines) + b"\n"


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
