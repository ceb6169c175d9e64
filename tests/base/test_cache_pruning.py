# SPDX-License-Identifier: Apache-2.0
"""Pruning the cache removes old entries and leaves those in use; no other process sees half an entry."""

import json
import os
import re
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


def _names() -> set[str]:
    return {f"{entry.kind}/{entry.path.name}" for entry in entries()}


def _age(path: Path, days: float) -> None:
    then = time.time() - days * _DAY
    os.utime(path, (then, then))


def test_unused_entry_is_removed() -> None:
    cache = Cache("libraries")
    _age(cache.fetch("old", fill), 40)
    _age(cache.fetch("read", fill), 40)
    cache.fetch("new", fill)
    cache.find("read")
    assert {entry.path.name for entry in prune(30 * _DAY, dry_run=True)} == {"old"}
    assert _names() == {"libraries/old", "libraries/read", "libraries/new"}
    (removed,) = prune(30 * _DAY)
    assert (removed.path.name, removed.size >= 10_000) == ("old", True)
    assert _names() == {"libraries/read", "libraries/new"}
    assert list(cache.directory.glob(".*")) == []
    assert cache.find("old") is None


def test_package_file_is_an_entry(tmp_path: Path) -> None:
    store, package = Store(), deb("one")
    (tmp_path / "file").write_text("one 1.0-1")
    store.add(tmp_path / "file", package)
    _age(store.path(package.sha256), 40)
    store.verify(package)
    assert list(prune(30 * _DAY)) == []
    (removed,) = prune(0)
    assert (removed.kind, removed.path) == ("packages", store.path(package.sha256))
    assert not store.has(package)


_USE = """
import sys, time
from utvm.base.storage.cache import Cache
Cache("libraries").find("used")
print("used", flush=True)
time.sleep(1000)
"""


def test_entry_in_use_stays_until_the_process_ends() -> None:
    cache = Cache("libraries")
    for name in ("used", "idle"):
        cache.fetch(name, fill)
    with subprocess.Popen([sys.executable, "-c", _USE], stdout=subprocess.PIPE) as user:
        try:
            assert user.stdout is not None
            user.stdout.readline()
            assert [entry.path.name for entry in prune(0)] == ["idle"]
            assert _names() == {"libraries/used"}
        finally:
            user.kill()
    assert [entry.path.name for entry in prune(0)] == ["used"]


def test_archive_is_not_pruned(tmp_path: Path) -> None:
    archive = Store(tmp_path / "archive")
    package = deb("one")
    (tmp_path / "file").write_text("one 1.0-1")
    archive.add(tmp_path / "file", package)
    archive.verify(package)
    assert list(prune(0)) == []
    assert archive.has(package)
    assert not cache_root().exists()


def test_commands_report_size_and_removed_entries(tmp_path: Path) -> None:
    folder = tmp_path / "utvm" / "firmware" / "old"
    folder.mkdir(parents=True)
    fill(folder)
    _age(folder, 40)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    dry_run = inv("cache.prune", "--dry-run", **environment)
    assert re.search("firmware +images for boards +1 +0.0 +40 days", dry_run.stdout)
    assert "would be removed" in dry_run.stdout
    report = json.loads(inv("cache.prune", "--dry-run", "--json", **environment).stdout)
    assert (report["removed"], report["kinds"]["firmware"]["entries"]) == (False, 1)
    assert 10_000 <= report["kinds"]["firmware"]["bytes"] < 30_000
    assert _names() == {"firmware/old"}
    assert inv("cache.prune", "--older-than", "50", **environment).returncode == 0
    assert _names() == {"firmware/old"}
    assert inv("cache.prune", **environment).returncode == 0
    assert _names() == set()
    wrong = inv("cache.prune", "--older-than", "-1", **environment)
    assert (wrong.returncode, "give days" in wrong.stderr) == (2, True)
