# SPDX-License-Identifier: Apache-2.0
"""A cache returns an entry only with the content that was stored; a damaged entry is created again."""

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hil_tests.operator_cases import OPERATOR_CASES
from hil_tests.programs import handwritten
from utvm import boards
from utvm.base.storage.cache import Cache
from utvm.compiler import compile_model
from utvm.environment.image import _cached_layer
from utvm.environment.rootfs import Layer
from utvm.errors import ConfigError
from utvm.firmware import build
from utvm.virtual.cortex_m.core import load_counter

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from tests.cli.running import inv

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
_SAMPLES = 25  # flipped bytes of each real entry; all of them at night


def fill(folder: Path) -> None:
    (folder / "text").write_text("0.5 1.5\n")
    (folder / "empty").write_bytes(b"")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "program").write_bytes(b"\x7fELF" + bytes(12))
    (folder / "deeper" / "program").chmod(0o755)


def fill_otherwise(folder: Path) -> None:
    (folder / "text").write_text("0.5 2.5\n")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes((byte ^ random.Random(position).randrange(1, 256),)))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    things = Cache("things", tmp_path)
    things.fetch("k", fill)
    things.fetch("other", fill_otherwise)
    yield things


def flip_all_bytes(cache: Cache, key: str, samples: int | None = None) -> int:
    """Flip the bytes of an entry one at a time; return the number of flips, all of which were noticed."""
    entry = cache.directory / key
    contents = files(entry)
    positions = [(name, position) for name, content in contents.items() for position in range(len(content))]
    for name, position in random.Random(1).sample(positions, samples) if samples else positions:
        flip(entry / name, position)
        assert cache.find(key) is None, f"{cache.directory.name}: {name}, byte {position}"
        aside = entry.with_name(f"{key}.damaged")
        (aside / name).write_bytes(contents[name])
        aside.rename(entry)
    assert cache.find(key) == entry
    return samples or len(positions)


def test_flip_of_any_byte_is_noticed(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    flipped = flip_all_bytes(cache, "k")
    assert len(caplog.records) == flipped > 250
    assert "k: damaged, not used; set aside as k.damaged and created again" in caplog.messages[0]


def _swap(first: Path, second: Path) -> None:
    first.rename(first.with_name("meanwhile"))
    second.rename(first)
    first.with_name("meanwhile").rename(second)


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def _replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda entry: os.truncate(entry / "text", 3),
    "emptied": lambda entry: os.truncate(entry / "text", 0),
    "grown": lambda entry: os.truncate(entry / "empty", 1),
    "missing": lambda entry: (entry / "empty").unlink(),
    "one too many": lambda entry: (entry / "more.h").write_text(""),
    "a folder too many": lambda entry: (entry / "more").mkdir(),
    "swapped files": lambda entry: _swap(entry / "text", entry / "empty"),
    "another entry's file": lambda entry: _swap(entry / "text", entry.with_name("other") / "text"),
    "another entry": lambda entry: _swap(entry, entry.with_name("other")),
    "no program any more": lambda entry: (entry / "deeper" / "program").chmod(0o644),
    "a folder in a file's place": lambda entry: _replace_by_folder(entry / "text"),
    "a link in a file's place": lambda entry: _replace_by_link(entry / "text"),
    "a pipe in a file's place": lambda entry: ((entry / "text").unlink(), os.mkfifo(entry / "text")),
    "no seal": lambda entry: (entry / "seal").unlink(),
    "a pipe for a seal": lambda entry: ((entry / "seal").unlink(), os.mkfifo(entry / "seal")),
    "a seal without an end": lambda entry: ((entry / "seal").unlink(), (entry / "seal").symlink_to("/dev/zero")),
    "an empty seal": lambda entry: os.truncate(entry / "seal", 0),
    "half a seal": lambda entry: os.truncate(entry / "seal", 70),
    "emptied everywhere": lambda entry: [path.write_bytes(b"") for path in entry.rglob("*") if path.is_file()],
    "an empty folder": lambda entry: (shutil.rmtree(entry), entry.mkdir()),
    "a file in its place": _replace_by_file,
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_any_other_damage_is_noticed(cache: Cache, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    contents = files(cache.directory / "k")
    _DAMAGES[damage](cache.directory / "k")
    assert files(cache.fetch("k", fill)) == contents
    assert len(caplog.records) == 1
    assert files(cache.fetch("other", fill_otherwise))["text"] == b"0.5 2.5\n"
    # An entry may be damaged twice.
    shutil.rmtree(cache.directory / "k" / "deeper")
    assert files(cache.fetch("k", fill)) == contents


def test_intact_entry_is_used_without_a_message(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    assert cache.find("k") == cache.directory / "k"
    assert not caplog.records


def test_entry_completed_by_another_process_stays(cache: Cache, tmp_path: Path) -> None:
    def fill_too_late(folder: Path) -> None:
        fill(folder)
        Cache("things", tmp_path).fetch("k", fill)

    flip(cache.directory / "k" / "text", 0)
    entry = cache.fetch("k", fill_too_late)
    assert files(entry)["text"] == b"0.5 1.5\n"
    assert sorted(path.name for path in cache.directory.iterdir()) == ["k", "k.damaged", "other"]


def test_damaged_entry_that_cannot_move_is_an_error(cache: Cache) -> None:
    # With ".damaged", the name is too long for the file system.
    key = "k" * 250
    flip(cache.fetch(key, fill) / "text", 0)
    with pytest.raises(ConfigError, match="damaged, and cannot be replaced") as caught:
        cache.fetch(key, fill)
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_damaged_layer_is_created_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def make(folder: Path) -> Layer:
        (folder / "made").write_bytes(b"a tar")
        return Layer(folder / "made", "its SHA-256", 5, 3)

    first = _cached_layer(tmp_path, "python-1", make, anew=False)
    entry = tmp_path / "python-1"
    contents = files(entry)
    positions = [("layer.json", position) for position in range(len(contents["layer.json"]))]
    for name, position in (*positions, ("layer.tar", 0), ("seal", 0)):
        flip(entry / name, position)
        assert _cached_layer(tmp_path, "python-1", make, anew=False) == first, f"{name}, byte {position}"
        assert files(entry) == contents
    assert len(caplog.records) == len(positions) + 2


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "utvm"


def _entries(own_cache: Path) -> list[Path]:
    return sorted(path for path in own_cache.glob("*/*") if path.is_dir() and not path.name.endswith(".damaged"))


def _fill_cache(own_cache: Path) -> list[Path]:
    board = boards.load("stm32f746")
    compile_model(OPERATOR_CASES[0].model())
    build(board, [handwritten("doubler", "  for (int i = 0; i < 4; i++) { y[i] = 2 * x[i]; }\n  return 0;")])
    load_counter()
    created = _entries(own_cache)
    assert [entry.parent.name for entry in created] == ["firmware", "libraries", "objects", "virtual"]
    return created


@pytest.mark.slow
@pytest.mark.parametrize("samples", [_SAMPLES, pytest.param(None, marks=pytest.mark.nightly)])
def test_flipped_bytes_are_noticed(own_cache: Path, tmp_path: Path, samples: int | None) -> None:
    # Copies are damaged: this process has loaded the counter, and would crash with a damaged file.
    copies = tmp_path / "copies"
    for entry in _fill_cache(own_cache):
        shutil.copytree(entry, copies / entry.parent.name / entry.name)
        flip_all_bytes(Cache(entry.parent.name, copies), entry.name, samples)


@pytest.mark.slow
def test_damaged_cache_gives_the_same_result(own_cache: Path, tmp_path: Path) -> None:
    samples = tmp_path / "x.npy"
    np.save(samples, np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8) / 4)
    words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", samples)
    first = inv(*words, "--json", tmp_path / "first.json")
    assert first.returncode == 0, first.stdout + first.stderr
    damaged = _entries(own_cache)
    for entry in damaged:
        for path in entry.rglob("*"):
            flip(path, path.stat().st_size // 2)
    second = inv(*words, "--json", tmp_path / "second.json")
    assert second.returncode == 0, second.stdout + second.stderr
    assert json.loads((tmp_path / "second.json").read_text()) == json.loads((tmp_path / "first.json").read_text())
    # Warnings of the virtual board's process are in its own log.
    warnings = [line for line in second.stderr.splitlines() if "damaged" in line]
    assert len(warnings) == len({entry for entry in damaged if entry.parent.name != "virtual"}) == 3
    assert _entries(own_cache) == damaged
