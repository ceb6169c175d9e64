# SPDX-License-Identifier: Apache-2.0
"""What is kept under the user's cache directory: what is in use, how much it is, and what goes.

Whoever reads an entry says so by :func:`use`: it is not pruned as long as that process lives. The kernel keeps
that in mind, as a lock on one byte of a file, which follows from the entry's name: one open file does for all.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs

from utvm.base.storage.temporary import temporary_folder

# Packages are files, in folders by the first letters of their names.
_DEEPER = {"packages": "sha256/*/*"}
_handles: dict[Path, IO[bytes]] = {}


def cache_root() -> Path:
    """Return the user's cache directory: a folder in it for each kind of entry."""
    return Path(platformdirs.user_cache_dir("utvm"))


def use(entry: Path) -> None:
    """Keep an entry from being pruned as long as this process lives, and remember that it was used now.

    Args:
        entry: there or not, yet. What is not below the user's cache directory is left alone.
    """
    root = cache_root()
    if not entry.is_relative_to(root):
        return
    # Where nothing may be written, nothing is pruned either.
    with contextlib.suppress(OSError):
        fcntl.lockf(_locks(root), fcntl.LOCK_SH, 1, _byte(root, entry))
        os.utime(entry)


@dataclass(frozen=True)
class CacheEntry:
    """Something that is kept, of some kind; ``used`` is when, in seconds since 1970."""

    kind: str
    path: Path
    size: int
    used: float


def entries() -> Iterator[CacheEntry]:
    """Yield everything that is kept for this user."""
    root = cache_root()
    for folder in sorted(path for path in root.glob("*") if path.is_dir()):
        for path in sorted(folder.glob(_DEEPER.get(folder.name, "*"))):
            if not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    yield CacheEntry(folder.name, path, _size(path), path.stat().st_mtime)


def prune(older_than: float, dry_run: bool = False) -> Iterator[CacheEntry]:
    """Remove what was not used for some seconds and is not in use; yield each.

    Args:
        dry_run: remove nothing, only yield what would be.
    """
    root, now = cache_root(), time.time()
    for entry in entries():
        if now - entry.used < older_than:
            continue
        with contextlib.ExitStack() as open_things:
            if not open_things.enter_context(_nobody_uses(root, entry.path)):
                continue
            if not dry_run:
                # Gone by one rename: nobody sees half of it, and a killed pruning leaves a draft.
                trash = open_things.enter_context(temporary_folder(root / entry.kind))
                entry.path.rename(trash / entry.path.name)
            yield entry


def _locks(root: Path) -> IO[bytes]:
    if root not in _handles:
        root.mkdir(parents=True, exist_ok=True)
        # Such locks are a process's own: closed anywhere, the file would lose them all. So it stays open.
        _handles[root] = (root / "in-use").open("a+b")
    return _handles[root]


def _byte(root: Path, entry: Path) -> int:
    name = entry.relative_to(root).as_posix()
    return int(hashlib.sha256(os.fsencode(name)).hexdigest()[:15], 16)


@contextlib.contextmanager
def _nobody_uses(root: Path, entry: Path) -> Iterator[bool]:
    """Say whether no other process uses an entry, and let none begin to in the ``with`` block."""
    try:
        fcntl.lockf(_locks(root), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(root, entry))
    except (BlockingIOError, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        fcntl.lockf(_locks(root), fcntl.LOCK_UN, 1, _byte(root, entry))


def _size(path: Path) -> int:
    found = (path, *path.rglob("*")) if path.is_dir() else (path,)
    return sum(one.lstat().st_blocks * 512 for one in found)
