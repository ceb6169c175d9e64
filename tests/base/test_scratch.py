# SPDX-License-Identifier: Apache-2.0
"""Drafts: gone in the end, whoever else sweeps meanwhile."""

import errno
import fcntl
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from utvm.base.storage import temporary
from utvm.base.storage.temporary import private_folder, temporary_folder


def test_one_that_is_renamed_stays(tmp_path: Path) -> None:
    with temporary_folder(tmp_path / "new") as folder:
        (folder / "a").write_text("1")
        folder.rename(tmp_path / "done")
    assert (tmp_path / "done" / "a").read_text() == "1"
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked"])
def test_one_that_is_swept_at_birth_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    make, lock = tempfile.mkdtemp, fcntl.flock
    made: list[str] = []
    swept: list[bool] = []

    def another_sweeps() -> None:
        if not swept:
            swept.append(True)
            with temporary_folder(tmp_path):
                pass

    def overtaken_make(**options: Any) -> str:
        made.append(make(**options))
        if moment == "before it is opened":
            another_sweeps()
        return made[-1]

    def overtaken_lock(handle: int, operation: int) -> None:
        another_sweeps()
        lock(handle, operation)

    monkeypatch.setattr(tempfile, "mkdtemp", overtaken_make)
    monkeypatch.setattr(fcntl, "flock", overtaken_lock)
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert str(folder) != made[0]
    assert list(tmp_path.iterdir()) == []


def test_without_locks_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems lock no folders."""

    def refuse(_handle: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with temporary_folder(tmp_path) as first, temporary_folder(tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_another_user_s_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Path(tempfile.mkdtemp(prefix=temporary._PREFIX, dir=tmp_path))
    opened = os.open

    def refuse(path: Path, flags: int, **options: Any) -> int:
        if path == theirs:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with temporary_folder(tmp_path) as folder:
            assert folder.is_dir()
    assert list(tmp_path.iterdir()) == [theirs]


@pytest.mark.parametrize("tmpdir", ["short", "long", "a file", "missing", "relative", "read-only"])
def test_a_socket_fits_into_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmpdir: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        places = {
            "short": Path(short),
            "long": tmp_path / ("x" * 180),
            "a file": tmp_path / "file",
            "missing": tmp_path / "missing",
            "relative": Path("relative"),
            "read-only": Path("/proc"),
        }
        places["long"].mkdir()
        places["a file"].touch()
        monkeypatch.setenv("TMPDIR", str(places[tmpdir]))
        with private_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
            assert folder.parent == (places["short"] if tmpdir == "short" else Path("/tmp"))
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            listener.bind(str(folder / ("s" * 32)))
        assert not folder.exists()


def test_another_user_s_fifo_does_not_hold_up_the_sweep(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{temporary._PREFIX}fifo")
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
