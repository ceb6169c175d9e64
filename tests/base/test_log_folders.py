# SPDX-License-Identifier: Apache-2.0
"""Folders of logs: the newest ones and those in use stay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from utvm.base.log import log_folder
from utvm.errors import ConfigError


def _create_runs(root: Path, count: int) -> None:
    for number in range(count):
        folder = root / f"run-{number:02}"
        folder.mkdir(parents=True)
        (folder / "openocd.log").write_text("x")
        os.utime(folder, (number, number))


def _names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_newest_fifty_stay(tmp_path: Path) -> None:
    _create_runs(tmp_path, 60)
    (tmp_path / "a file").write_text("not ours")
    folder = log_folder(tmp_path / "new")
    assert folder.is_dir()
    assert _names(tmp_path) == ["a file", "new", *(f"run-{number}" for number in range(11, 60))]


def test_variable_sets_the_number_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _create_runs(tmp_path, 5)
    monkeypatch.setenv("UTVM_KEEP_LOGS", "2")
    log_folder(tmp_path / "new")
    assert _names(tmp_path) == ["new", "run-04"]
    monkeypatch.setenv("UTVM_KEEP_LOGS", "some")
    with pytest.raises(ConfigError, match="UTVM_KEEP_LOGS=some"):
        log_folder(tmp_path / "other")


_USER = (
    "import sys, pathlib, utvm.base.log; utvm.base.log.log_folder(pathlib.Path(sys.argv[1]))\n"
    "print(flush=True); sys.stdin.read()"
)


def test_folder_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_KEEP_LOGS", "1")
    command = [sys.executable, "-c", _USER, str(tmp_path / "run-00")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout
        user.stdout.readline()
        os.utime(tmp_path / "run-00", (0, 0))
        log_folder(tmp_path / "new")
        assert _names(tmp_path) == ["new", "run-00"]
        user.communicate()
    log_folder(tmp_path / "newer")
    # Our own folder is in use, too.
    assert _names(tmp_path) == ["new", "newer"]


def test_unwritable_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(ConfigError, match="logs cannot be written"):
        log_folder(tmp_path / "logs" / "run")
