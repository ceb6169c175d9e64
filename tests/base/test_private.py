# SPDX-License-Identifier: Apache-2.0
"""Names that another user can guess: a file found there is refused and stays unchanged."""

import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm.base.log import log_folder, log_into
from utvm.base.process import Service
from utvm.base.storage import cache, lock
from utvm.base.storage.cache import Cache
from utvm.base.storage.files import (
    UnsafeFileError,
    check_own_folder,
    create_own_folder,
    open_regular,
    temporary_folder,
    write_whole,
)
from utvm.boards import Board, bitstream
from utvm.errors import BoardError, ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.history.store import open_history
from utvm.paths import project
from utvm.session.transport import ChildProcess

_CONTENT = b"a file of somebody's\n"
_STRANGER = 65534  # nobody


def _socket(name: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(name))


_KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda name, victim: name.symlink_to(victim),
    "dangling link": lambda name, victim: name.symlink_to(victim.with_name("new")),
    "hard link": lambda name, victim: name.hardlink_to(victim),
    "folder": lambda name, _: name.mkdir(),
    "FIFO": lambda name, _: os.mkfifo(name),
    "socket": _socket,
}


def _hold(folder: Path) -> None:
    with lock.hold("board", directory=folder):
        pass


def _log_of_run(folder: Path) -> None:
    with log_into(folder):
        pass


def _start_service(folder: Path) -> None:
    with Service("tool", ["true"], log=folder / "tool.log", health="x", error=ProvisionError):
        pass


def _start_child(folder: Path) -> None:
    with ChildProcess("tool", ["true"], log=folder / "tool.log"):
        pass


def _open_history(folder: Path) -> None:
    with open_history(folder / "history.sqlite", create=True):
        pass


def _prune(folder: Path) -> None:
    (folder / "utvm" / "libraries" / "entry").mkdir(parents=True)
    list(cache.prune(-1))


_NAMES: dict[str, tuple[str, Callable[[Path], object], type[Exception]]] = {
    "lock": ("utvm-board.lock", _hold, BoardError),
    "log of a run": ("utvm.log", _log_of_run, ConfigError),
    "log of a service": ("tool.log", _start_service, ProvisionError),
    "log of a child": ("tool.log", _start_child, UtvmError),
    "history": ("history.sqlite", _open_history, ProvisionError),
    "write-ahead log": ("history.sqlite-wal", _open_history, ProvisionError),
    "journal": ("history.sqlite-journal", _open_history, ProvisionError),
    "shared memory": ("history.sqlite-shm", _open_history, ProvisionError),
    "cache in use": ("utvm/in-use", _prune, UnsafeFileError),
}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("name", _NAMES)
def test_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    victim = tmp_path / "victim"
    victim.write_bytes(_CONTENT)
    victim.chmod(0o640)
    relative, use, error = _NAMES[name]
    path = tmp_path / relative
    path.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(path.parent)
    _KINDS[kind](path, victim)
    with pytest.raises(error) as caught:
        use(tmp_path)
    message = getattr(caught.value, "message", str(caught.value))
    assert str(path) in message or str(path).removesuffix(path.suffix) in message
    assert f"it is a {kind.replace('dangling ', '')}".replace("a link", "a symbolic link") in message
    assert victim.read_bytes() == _CONTENT
    assert stat.S_IMODE(victim.stat().st_mode) == 0o640
    assert not victim.with_name("new").exists()


_FOLDERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "log folder": ("logs", lambda folder: log_folder(folder / "logs")),
    "cache": ("utvm", lambda _: Cache("libraries").fetch("key", lambda _: None)),
}


@pytest.mark.parametrize("kind", ["dangling link", "link", "hard link", "FIFO", "socket"])
@pytest.mark.parametrize("name", _FOLDERS)
def test_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_bytes(_CONTENT)
    relative, use = _FOLDERS[name]
    _KINDS[kind](tmp_path / relative, victim)
    with pytest.raises(ConfigError) as caught:
        use(tmp_path)
    assert str(tmp_path / relative) in caught.value.message
    assert victim.read_bytes() == _CONTENT
    assert not victim.with_name("new").exists()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@needs_root
@pytest.mark.parametrize("kind", ["another user's", "another user's link", "open to all", "open to a group"])
@pytest.mark.parametrize("name", _FOLDERS)
def test_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    relative, use = _FOLDERS[name]
    path = tmp_path / relative
    if kind == "another user's link":
        (tmp_path / "own").mkdir(0o700)
        path.symlink_to(tmp_path / "own")
        os.chown(path, _STRANGER, _STRANGER, follow_symlinks=False)
    else:
        path.mkdir()
        os.chown(path, _STRANGER if kind == "another user's" else 0, _STRANGER)
        path.chmod({"open to all": 0o777, "open to a group": 0o770}.get(kind, 0o755))
    with pytest.raises(ConfigError, match=r"belongs to user nobody|other users may write into it") as caught:
        use(tmp_path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert list(path.iterdir()) == []


def test_own_link_to_an_own_folder_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "disk").mkdir()
    (tmp_path / "utvm").symlink_to(tmp_path / "disk")
    Cache("libraries").fetch("key", lambda _: None)
    assert (tmp_path / "disk" / "libraries" / "key").is_dir()


def test_group_of_this_user_alone_may_write(tmp_path: Path) -> None:
    create_own_folder(tmp_path / "own")
    (tmp_path / "own").chmod(0o775)
    check_own_folder(tmp_path / "own")


@needs_root
def test_lock_of_another_user_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "utvm-board.lock"
    path.touch()
    os.chown(path, _STRANGER, _STRANGER)
    with lock.hold("board", directory=tmp_path):
        assert f"(pid {os.getpid()}, since" in path.read_text()


@needs_root
def test_log_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tool.log"
    path.write_bytes(_CONTENT)
    os.chown(path, _STRANGER, _STRANGER)
    with pytest.raises(UnsafeFileError, match="belongs to user nobody"):
        open_regular(path, os.O_WRONLY | os.O_TRUNC)
    assert path.read_bytes() == _CONTENT


def test_lock_linked_during_creation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other user creates the link between our check and our creation."""
    victim, path = tmp_path / "victim", tmp_path / "utvm-board.lock"
    victim.write_bytes(_CONTENT)
    victim.chmod(0o600)
    real = os.open

    def open_after_the_link(name: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(name) == str(path) and flags & os.O_CREAT and not path.exists():
            path.hardlink_to(victim)
        return real(name, flags, mode)

    monkeypatch.setattr(os, "open", open_after_the_link)
    with pytest.raises(BoardError, match="hard link"):
        _hold(tmp_path)
    assert (victim.read_bytes(), stat.S_IMODE(victim.stat().st_mode)) == (_CONTENT, 0o600)


@pytest.mark.parametrize("kind", ["link", "FIFO", "socket"])
def test_other_temporary_folders_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "somebody's"
    victim.mkdir()
    (victim / "file").write_bytes(_CONTENT)
    _KINDS[kind](tmp_path / ".draft-x", victim)
    with temporary_folder(tmp_path):
        pass
    assert (victim / "file").read_bytes() == _CONTENT
    assert os.path.lexists(tmp_path / ".draft-x")


@pytest.mark.parametrize("kind", ["link", "FIFO", "folder", "hard link", "socket"])
def test_emulated_bitstream_is_not_read_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, board: Board, kind: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    victim = tmp_path / "victim"
    victim.write_bytes(_CONTENT)
    path = tmp_path / "utvm" / "logic" / board.name
    path.parent.mkdir(parents=True)
    monkeypatch.chdir(path.parent)
    _KINDS[kind](path, victim)
    assert bitstream.loaded_bitstream(board) == ""


def test_temporary_name_cannot_be_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    real = os.open

    def record_open(name: str | Path, flags: int, mode: int = 0o777) -> int:
        names.append(str(name))
        assert flags & (os.O_EXCL | os.O_NOFOLLOW) == os.O_EXCL | os.O_NOFOLLOW
        return real(name, flags, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", record_open)
        for _ in range(2):
            write_whole(tmp_path / "file", _CONTENT)
    assert len(set(names)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["link", "FIFO", "hard link"])
def test_command_prints_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(_CONTENT)
    _KINDS[kind](tmp_path / "utvm", victim)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    completed = inv("cache.prune", "--dry-run")
    assert completed.returncode == ExitCode.USAGE, completed.stderr
    assert "Traceback" not in completed.stderr
    assert f"error: {tmp_path / 'utvm'}: is not used as the cache: it is a" in completed.stderr
    assert victim.read_bytes() == _CONTENT


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder like /tmp. pytest closes its own folders to other users, anew in each process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o1777)
        yield folder


@needs_root
def test_lock_behind_a_link_is_refused(shared_folder: Path) -> None:
    """A second user plants the link in a folder with the sticky bit."""
    victim = shared_folder / "victim"
    victim.write_bytes(_CONTENT)
    plant = "import os, sys; os.setgid(65534); os.setuid(65534); os.symlink(sys.argv[1], sys.argv[2])"
    subprocess.run([sys.executable, "-c", plant, victim, shared_folder / "utvm-board.lock"], check=True)
    with pytest.raises(BoardError) as caught:
        _hold(shared_folder)
    assert caught.value.exit_code is ExitCode.INFRASTRUCTURE
    assert caught.value.__cause__.errno == errno.EINVAL  # type: ignore[union-attr]
    assert victim.read_bytes() == _CONTENT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_project_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = tmp_path / "utvm.yaml", tmp_path / "mine" / "deeper"
    folder.mkdir(parents=True)
    file.touch()
    monkeypatch.chdir(folder)
    assert project() == tmp_path
    os.chown(file, _STRANGER, -1)
    assert project() is None
    (tmp_path / "theirs").touch()
    os.chown(tmp_path / "theirs", _STRANGER, -1)
    file.unlink()
    file.symlink_to("theirs")
    assert project() is None
    os.chown(folder, _STRANGER, -1)  # as a checkout in a container of a CI
    os.chown(file, _STRANGER, -1, follow_symlinks=False)
    assert project() == tmp_path
    tmp_path.chmod(0o1777)
    assert project() is None
