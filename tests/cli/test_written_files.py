# SPDX-License-Identifier: Apache-2.0
"""Output files of commands: checked before the work, and written completely or not at all."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

import tasks
from tests.cli.running import inv
from utvm import compiler
from utvm.base.storage.files import check_folder, check_writable, write_whole
from utvm.cli import env
from utvm.compiler.package.archive import write_archive
from utvm.errors import ConfigError
from utvm.hil import suites
from utvm.paths import ROOT

_MODEL = {"model": str(ROOT / "models" / "digits" / "digits.onnx"), "board": "stm32f746"}
_FILES = [("model.run", _MODEL, "output"), ("model.package", _MODEL, "output"), ("firmware.build", _MODEL, "output")]
_FOLDERS = [
    ("model.report", _MODEL, "output"),
    ("model.profile", _MODEL, "output"),
    ("env.archive", {}, "output"),
    ("hil", {"board": "host"}, "report_dir"),
]


@pytest.fixture(autouse=True)
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if any work begins."""

    def work(*_: object, **__: object) -> NoReturn:
        raise AssertionError("work has begun")

    for module, name in ((compiler, "load"), (env, "temporary_root"), (env, "load_lock_files"), (suites, "run")):
        monkeypatch.setattr(module, name, work)


def _refusal(command: str, options: dict[str, str]) -> str:
    with pytest.raises(Exit) as caught:
        tasks.namespace[command](Context(), **options)
    assert caught.value.code == 2
    return str(caught.value.message)


@pytest.mark.parametrize(("command", "options", "name"), _FILES)
def test_unwritable_file_is_refused_at_once(command: str, options: dict[str, str], name: str, tmp_path: Path) -> None:
    missing, forbidden = tmp_path / "nowhere" / "x.elf", Path("/proc/x.elf")
    assert f"{missing}: its folder does not exist" in _refusal(command, {**options, name: str(missing)})
    assert f"{forbidden}: cannot be written" in _refusal(command, {**options, name: str(forbidden)})


@pytest.mark.parametrize("command", ["docker.build", "env.lock", "board.list"])
def test_unwritable_json_file_is_refused_at_once(command: str, tmp_path: Path) -> None:
    missing, forbidden = tmp_path / "nowhere" / "x.json", Path("/proc/x.json")
    for path, problem in ((missing, "its folder does not exist"), (forbidden, "cannot be written")):
        completed = inv(command, "--json", path)
        assert (completed.returncode, completed.stdout) == (2, "")
        assert f"{path}: {problem}" in completed.stderr


@pytest.mark.parametrize(("command", "options", "name"), _FOLDERS)
def test_unwritable_folder_is_refused_at_once(command: str, options: dict[str, str], name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    within = str(tmp_path / "file" / "folder")
    assert f"{within}: {tmp_path / 'file'} is a file" in _refusal(command, {**options, name: within})
    assert "/proc/x: cannot be written" in _refusal(command, {**options, name: "/proc/x"})


def test_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "file", "")
    check_folder(tmp_path / "one" / "two")
    assert list(tmp_path.iterdir()) == []


def test_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(ConfigError, match="/dev/null: is not a regular file"):
        check_writable("/dev/null")


@contextmanager
def _full_disk() -> Iterator[None]:
    """Limit files to 4 KiB, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_keeps_the_last_archive_only(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    for before in (None, b"the last one"):
        if before is not None:
            path.write_bytes(before)
        with _full_disk(), pytest.raises(ConfigError, match="cannot be written: File too large"):
            write_archive(path, {"weights.c": bytes(100_000)}, 0)
        assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if before is None else [before])


def test_file_is_written_completely(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", bytes(10_000))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [bytes(10_000)]


def test_folder_is_not_a_model(tmp_path: Path) -> None:
    from utvm.compiler.read.model_file import load

    with pytest.raises(ConfigError, match="is a folder"):
        load(tmp_path)
