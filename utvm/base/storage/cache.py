# SPDX-License-Identifier: Apache-2.0
"""Results kept by content: what was made once from the same input by the same tools is not made again.

An entry is a directory under the user's cache directory, named by a SHA-256 over everything that shaped it. It
appears by one rename, so a reader sees a whole entry or none, and two writers cannot spoil each other's work. What
was left by a writer that was killed goes when the next one writes.

Nothing is believed unchecked: an entry is sealed when it is made, and the seal is looked at whenever it is used.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from utvm.base.storage.cache_entries import cache_root, use
from utvm.base.storage.temporary import remove_tree, temporary_folder
from utvm.errors import ConfigError

_log = logging.getLogger("utvm.cache")
_SEAL = "seal"


def content_key(*parts: str | bytes) -> str:
    """Return the SHA-256, in hexadecimal, over some parts, each told apart from the next."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def tree_digest(directory: Path) -> str:
    """Return the SHA-256 over the names and contents of all source files below a directory."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return content_key(*(part for path in files for part in (str(path.relative_to(directory)), path.read_bytes())))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def seal(folder: Path, name: str) -> None:
    """Finish a folder: write into it what is in it and whose it is, and all of it to the disk.

    After that it may be renamed: no power cut leaves it with an empty file.

    Args:
        name: what the folder is the entry of; under another name the seal does not hold.
    """
    (folder / _SEAL).write_bytes(_contents(folder, name))
    for path in (*folder.rglob("*"), folder):
        if path.is_file() or path.is_dir():
            _flush(path)


def is_sealed(folder: Path, name: str) -> bool:
    """Whether a folder is still what was sealed under this name: no byte, file or access right other than then.

    The seal is not parsed but written once more and compared, so that there is no case of a damaged seal.
    """
    kept = folder / _SEAL
    try:
        # What is no file may have no end, or nobody who writes into it.
        return stat.S_ISREG(kept.lstat().st_mode) and kept.read_bytes() == _contents(folder, name)
    except OSError:
        return False


def settle(folder: Path, place: Path) -> None:
    """Rename a sealed folder so that a power cut does not undo it."""
    folder.rename(place)
    _flush(place.parent)


class Cache:
    """The entries of one kind.

    Args:
        kind: name of the directory that holds them, for example ``libraries``.
        root: directory that holds all kinds; by default the user's cache directory.
    """

    def __init__(self, kind: str, root: Path | None = None) -> None:
        self.directory = (root or cache_root()) / kind

    def find(self, key: str) -> Path | None:
        """Return the entry's directory, or None if there is none; one that is not as it was made is set aside."""
        entry = self.directory / key
        use(entry)
        if is_sealed(entry, key):
            _log.info("%s %s: was made before", self.directory.name, key[:12])
            return entry
        if not os.path.lexists(entry):
            return None
        try:
            # Alone: somebody else may have done this meanwhile, and made a good one.
            with self._alone():
                if is_sealed(entry, key):
                    return entry
                if os.path.lexists(entry):
                    self._set_aside(entry)
        except OSError as error:
            raise ConfigError(
                f"{entry}: damaged, and cannot be replaced: {error.strerror or error}",
                "remove it, or set XDG_CACHE_HOME to a directory that can be written",
            ) from error
        return None

    def fetch(self, key: str, make: Callable[[Path], None]) -> Path:
        """Return the entry's directory, making it first if there is none or it is damaged.

        Args:
            make: fills the empty directory it is handed. What it raises leaves no entry behind.
        """
        found = self.find(key)
        while not found:
            found = self._made(key, make)
        return found

    def _made(self, key: str, make: Callable[[Path], None]) -> Path | None:
        """Make an entry and return its directory; None if somebody else's is there, and damaged."""
        _log.info("%s %s: is not there, and is made", self.directory.name, key[:12])
        with contextlib.ExitStack() as open_things:
            try:
                folder = open_things.enter_context(temporary_folder(self.directory))
            except OSError as error:
                raise self._unwritable(error) from error
            make(folder)
            entry = self.directory / key
            try:
                seal(folder, key)
                settle(folder, entry)
            except OSError as error:
                # Somebody else made the same entry meanwhile; theirs is as good.
                if not entry.is_dir():
                    raise self._unwritable(error) from error
                return self.find(key)
            return entry

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others from setting aside what is in this directory."""
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            # A file system that has no such locks: two at once would make an entry twice.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _set_aside(self, entry: Path) -> None:
        """Keep a damaged entry for whoever wants to know how it came about, in the place of an earlier one."""
        aside = entry.with_name(f"{entry.name}.damaged")
        remove_tree(aside)
        aside.unlink(missing_ok=True)
        entry.rename(aside)
        _log.warning("%s: damaged, not used; it is set aside as %s and made again", entry, aside.name)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self.directory}: the cache cannot be written: {error.strerror or error}",
            "make it writable, or set XDG_CACHE_HOME to a directory that is",
        )


def _contents(folder: Path, name: str) -> bytes:
    """Return in a few lines whose a folder is and what is in it, except the seal."""
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
