"""Results kept by content: what was made once from the same input by the same tools is not made again.

An entry is a directory under the user's cache directory, named by a SHA-256 over everything that shaped it. It
appears by one rename, so a reader sees a whole entry or none, and two writers cannot spoil each other's work. What
was left by a writer that was killed goes when the next one writes.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import platformdirs

from utvm.drafts import draft
from utvm.errors import ConfigError


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


class Cache:
    """The entries of one kind.

    Args:
        kind: name of the directory that holds them, for example ``libraries``.
        root: directory that holds all kinds; by default the user's cache directory.
    """

    def __init__(self, kind: str, root: Path | None = None) -> None:
        self.directory = (root or Path(platformdirs.user_cache_dir("utvm"))) / kind

    def find(self, key: str) -> Path | None:
        """Return the entry's directory, or None if there is none."""
        entry = self.directory / key
        return entry if entry.is_dir() else None

    def fetch(self, key: str, make: Callable[[Path], None]) -> Path:
        """Return the entry's directory, making it first if there is none.

        Args:
            make: fills the empty directory it is handed. What it raises leaves no entry behind.

        Raises:
            ConfigError: the cache directory cannot be written.
        """
        found = self.find(key)
        if found:
            return found
        with contextlib.ExitStack() as open_things:
            try:
                folder = open_things.enter_context(draft(self.directory))
            except OSError as error:
                raise self._unwritable(error) from error
            make(folder)
            entry = self.directory / key
            try:
                folder.rename(entry)
            except OSError as error:
                # Somebody else made the same entry meanwhile; theirs is as good.
                if not entry.is_dir():
                    raise self._unwritable(error) from error
            return entry

    def discard(self, key: str) -> None:
        """Remove an entry that turned out to be damaged."""
        shutil.rmtree(self.directory / key, ignore_errors=True)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self.directory}: the cache cannot be written: {error.strerror or error}",
            "make it writable, or set XDG_CACHE_HOME to a directory that is",
        )
