# SPDX-License-Identifier: Apache-2.0
"""The cache: complete entries or none."""

import errno
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from utvm.base.storage import cache as caches
from utvm.base.storage.cache import Cache, content_key, mark_used, tree_digest
from utvm.errors import ConfigError


def fill(directory: Path) -> None:
    (directory / "a").write_text("1")


def test_entry_is_created_once(tmp_path: Path) -> None:
    cache = Cache("things", tmp_path)
    assert cache.find("k") is None
    entry = cache.fetch("k", fill)
    assert (entry / "a").read_text() == "1"

    def never(_directory: Path) -> None:
        raise AssertionError

    assert cache.fetch("k", never) == entry == cache.find("k")


def test_failed_creation_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache("things", tmp_path)

    def fail(directory: Path) -> None:
        fill(directory)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.fetch("k", fail)
    assert cache.find("k") is None
    assert list(cache.directory.iterdir()) == []


def test_first_of_two_writers_wins(tmp_path: Path) -> None:
    cache = Cache("things", tmp_path)

    def fill_too_late(directory: Path) -> None:
        Cache("things", tmp_path).fetch("k", fill)
        (directory / "a").write_text("2")

    assert (cache.fetch("k", fill_too_late) / "a").read_text() == "1"
    assert [path.name for path in cache.directory.iterdir()] == ["k"]


_HALF = """
import sys, time
from collections.abc import Callable
from pathlib import Path
from utvm.base.storage.cache import Cache

def half(folder):
    (folder / "half").write_bytes(b"x")
    print("begun", flush=True)
    time.sleep(1000)

Cache("things", Path(sys.argv[1])).fetch("other", half)
"""


def test_next_writer_removes_the_rest_of_a_killed_one(tmp_path: Path) -> None:
    cache = Cache("things", tmp_path)
    with subprocess.Popen([sys.executable, "-c", _HALF, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            # The folder of a running writer is left alone.
            cache.fetch("k", fill)
            assert len(list(cache.directory.glob("*/half"))) == 1
        finally:
            writer.kill()
    cache.fetch("l", fill)
    assert sorted(path.name for path in cache.directory.iterdir()) == ["k", "l"]


def test_unwritable_cache_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="the cache cannot be written") as caught:
        Cache("things", tmp_path / "file").fetch("k", fill)
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_key_depends_on_the_division_into_parts() -> None:
    assert content_key("ab", "c") != content_key("a", "bc") != content_key("abc")
    assert content_key("a") == content_key(b"a")


def test_tree_digest_covers_names_and_content_but_no_bytecode(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = tree_digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert tree_digest(tmp_path) == first
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    renamed = tree_digest(tmp_path)
    (tmp_path / "b.py").write_text("2")
    assert len({first, renamed, tree_digest(tmp_path)}) == 3


def test_files_are_synced_before_the_entry_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def record_fsync(handle: int, fsync: Callable[[int], None] = os.fsync) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def fill_two_levels(directory: Path) -> None:
        fill(directory)
        (directory / "deeper").mkdir()
        (directory / "deeper" / "b").write_text("2")

    monkeypatch.setattr(os, "fsync", record_fsync)
    Cache("things", tmp_path).fetch("k", fill_two_levels)
    # Files and folders under the temporary name, then the folder with the name of the entry.
    *before, after = (Path(name).relative_to(tmp_path / "things") for name in synced)
    assert {path.parts[0][:7] for path in before} == {".draft-"}
    assert {str(Path(*path.parts[1:])) for path in before} == {"a", "deeper", "deeper/b", "seal", "."}
    assert after == Path()


def test_key_never_changes() -> None:
    # A changed key would lose every entry in the caches of users.
    parts = b"\2" + bytes(7) + b"ab" + b"\1" + bytes(7) + b"c"
    assert content_key("ab", b"c") == hashlib.sha256(parts).hexdigest()


@pytest.mark.slow
def test_damaged_entry_is_set_aside_under_a_lock(tmp_path: Path) -> None:
    cache = Cache("things", tmp_path)
    entry = cache.fetch("a", fill)
    (entry / "a").write_text("bad")
    code = (
        "import sys; from pathlib import Path; from utvm.base.storage.cache import Cache\n"
        "print(Cache('things', Path(sys.argv[1])).find('a'))"
    )
    holder = os.open(cache.directory, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3.0)
        assert entry.is_dir()
        os.close(holder)
        assert process.communicate(timeout=60)[0] == "None\n"
    assert not entry.exists()


def test_entry_that_cannot_be_renamed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_on_full_disk(folder: Path, place: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caches, "rename_durably", fail_on_full_disk)
    with pytest.raises(ConfigError, match="the cache cannot be written: No space left"):
        Cache("things", tmp_path).fetch("k", fill)


def test_first_use_creates_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = caches.cache_root()
    mark_used(root / "things" / "k")
    assert root.stat().st_mode & 0o777 == 0o700
