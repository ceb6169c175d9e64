# SPDX-License-Identifier: Apache-2.0
"""Temporary folders are removed, also while another process removes old ones."""

import errno
import fcntl
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from utvm.base.storage import files
from utvm.base.storage.files import private_folder, temporary_folder


def test_renamed_folder_stays(tmp_path: Path) -> None:
    with temporary_folder(tmp_path / "new") as folder:
        (folder / "a").write_text("1")
        folder.rename(tmp_path / "done")
    assert (tmp_path / "done" / "a").read_text() == "1"
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked"])
def test_folder_removed_during_creation_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    create, lock = tempfile.mkdtemp, fcntl.flock
    created: list[str] = []
    sweeps: list[bool] = []

    def sweep_once() -> None:
        if not sweeps:
            sweeps.append(True)
            with temporary_folder(tmp_path):
                pass

    def create_then_sweep(**options: Any) -> str:
        created.append(create(**options))
        if moment == "before it is opened":
            sweep_once()
        return created[-1]

    def sweep_then_lock(handle: int, operation: int) -> None:
        sweep_once()
        lock(handle, operation)

    monkeypatch.setattr(tempfile, "mkdtemp", create_then_sweep)
    monkeypatch.setattr(fcntl, "flock", sweep_then_lock)
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert str(folder) != created[0]
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_removed_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems cannot lock folders."""

    def refuse(_handle: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with temporary_folder(tmp_path) as first, temporary_folder(tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = Path(tempfile.mkdtemp(prefix=files._PREFIX, dir=tmp_path))
    real = os.open

    def refuse(path: Path, flags: int, **options: Any) -> int:
        if path == foreign:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with temporary_folder(tmp_path) as folder:
            assert folder.is_dir()
    assert list(tmp_path.iterdir()) == [foreign]


@pytest.mark.parametrize("tmpdir", ["short", "long", "a file", "missing", "relative", "read-only"])
def test_private_folder_has_room_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmpdir: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folders = {
            "short": Path(short),
            "long": tmp_path / ("x" * 180),
            "a file": tmp_path / "file",
            "missing": tmp_path / "missing",
            "relative": Path("relative"),
            "read-only": Path("/proc"),
        }
        folders["long"].mkdir()
        folders["a file"].touch()
        monkeypatch.setenv("TMPDIR", str(folders[tmpdir]))
        with private_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
            assert folder.parent == (folders["short"] if tmpdir == "short" else Path("/tmp"))
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            listener.bind(str(folder / ("s" * 32)))
        assert not folder.exists()


def test_fifo_of_another_user_does_not_block_the_sweep(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{files._PREFIX}fifo")
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
