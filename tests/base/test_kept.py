# SPDX-License-Identifier: Apache-2.0
"""Pruning the cache: what is old goes, what is used stays, and nobody ever sees half of an entry."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.environment.lock_maker import deb
from utvm.base.storage.cache import Cache, cache_root, entries, prune
from utvm.environment.locked import Store

_DAY = 86_400


def fill(directory: Path) -> None:
    (directory / "a").write_bytes(b"x" * 10_000)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _kept() -> set[str]:
    return {f"{entry.kind}/{entry.path.name}" for entry in entries()}


def _age(path: Path, days: float) -> None:
    then = time.time() - days * _DAY
    os.utime(path, (then, then))


def test_what_was_not_used_for_long_goes() -> None:
    cache = Cache("libraries")
    _age(cache.fetch("old", fill), 40)
    _age(cache.fetch("read", fill), 40)
    cache.fetch("new", fill)
    cache.find("read")
    assert {entry.path.name for entry in prune(30 * _DAY, dry_run=True)} == {"old"}
    assert _kept() == {"libraries/old", "libraries/read", "libraries/new"}
    (gone,) = prune(30 * _DAY)
    assert (gone.path.name, gone.size >= 10_000) == ("old", True)
    assert _kept() == {"libraries/read", "libraries/new"}
    assert list(cache.directory.glob(".*")) == []
    assert cache.find("old") is None


def test_package_files_are_entries_of_their_own(tmp_path: Path) -> None:
    store, package = Store(), deb("one")
    (tmp_path / "file").write_text("one 1.0-1")
    store.add(tmp_path / "file", package)
    _age(store.path(package.sha256), 40)
    store.verify(package)
    assert list(prune(30 * _DAY)) == []
    (gone,) = prune(0)
    assert (gone.kind, gone.path) == ("packages", store.path(package.sha256))
    assert not store.has(package)


_USE = """
import sys, time
from utvm.base.storage.cache import Cache
Cache("libraries").find("used")
print("used", flush=True)
time.sleep(1000)
"""


def test_entry_in_use_stays_until_its_user_ends() -> None:
    cache = Cache("libraries")
    for name in ("used", "idle"):
        cache.fetch(name, fill)
    with subprocess.Popen([sys.executable, "-c", _USE], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            assert [entry.path.name for entry in prune(0)] == ["idle"]
            assert _kept() == {"libraries/used"}
        finally:
            other.kill()
    assert [entry.path.name for entry in prune(0)] == ["used"]


def test_an_archive_is_no_cache(tmp_path: Path) -> None:
    archive = Store(tmp_path / "archive")
    package = deb("one")
    (tmp_path / "file").write_text("one 1.0-1")
    archive.add(tmp_path / "file", package)
    archive.verify(package)
    assert list(prune(0)) == []
    assert archive.has(package)
    assert not cache_root().exists()


def test_the_commands_say_what_there_is_and_what_goes(tmp_path: Path) -> None:
    folder = tmp_path / "utvm" / "firmware" / "old"
    folder.mkdir(parents=True)
    fill(folder)
    _age(folder, 40)
    own = {"XDG_CACHE_HOME": str(tmp_path)}
    size = inv("cache.size", **own)
    assert (size.returncode, "images for boards" in size.stdout, "40 days" in size.stdout) == (0, True, True)
    would = inv("cache.prune", "--dry-run", **own)
    assert "firmware: 1 entries" in would.stdout
    assert "would be removed" in would.stdout
    told = json.loads(inv("cache.prune", "--dry-run", "--json", **own).stdout)
    assert (told["removed"], told["kinds"]["firmware"]["entries"]) == (False, 1)
    assert 10_000 <= told["kinds"]["firmware"]["bytes"] < 30_000
    assert _kept() == {"firmware/old"}
    assert inv("cache.prune", "--older-than", "50", **own).returncode == 0
    assert _kept() == {"firmware/old"}
    assert inv("cache.prune", **own).returncode == 0
    assert _kept() == set()
    wrong = inv("cache.prune", "--older-than", "-1", **own)
    assert (wrong.returncode, "give days" in wrong.stderr) == (2, True)
