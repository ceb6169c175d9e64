# SPDX-License-Identifier: Apache-2.0
"""A board's lock: one holder at a time, named to others, and free however the holder ends."""

import fcntl
import os
import pwd
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from utvm.base.storage import lock
from utvm.errors import BoardError, ExitCode

_HOLDER = """
import sys, time
from pathlib import Path
from utvm.base.storage import lock
with lock.hold(sys.argv[1], directory=Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(60)
"""


def _start_holder(name: str, directory: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, name, directory], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_second_process_learns_the_holder(tmp_path: Path) -> None:
    holder = _start_holder("stm32f746 123", tmp_path)
    try:
        with pytest.raises(BoardError) as caught, lock.hold("stm32f746 123", directory=tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert re.search(
        rf"stm32f746 123 is busy, held by {user}: 'stm32f746 123' {tmp_path} "
        rf"\(pid {holder.pid}, since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d",
        caught.value.message,
    )
    assert caught.value.hint
    assert caught.value.exit_code is ExitCode.INFRASTRUCTURE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_lock_of_a_killed_holder_is_free(tmp_path: Path, number: signal.Signals) -> None:
    holder = _start_holder("board", tmp_path)
    os.kill(holder.pid, number)
    holder.wait()
    with lock.hold("board", directory=tmp_path):
        pass


def test_waiting_user_gets_one_message_and_the_lock(tmp_path: Path) -> None:
    holder = _start_holder("board", tmp_path)
    messages = []

    def waiting(text: str) -> None:
        messages.append(text)
        threading.Timer(0.1, holder.kill).start()

    with lock.hold("board", directory=tmp_path, patience=600, waiting=waiting):
        holder.wait()
        assert len(messages) == 1
        assert messages[0].startswith("held by ")
        assert f"(pid {holder.pid}, since" in messages[0]


@pytest.mark.parametrize(("patience", "times"), [(0.0, 0), (0.01, 1)])
def test_wait_ends_with_the_patience(tmp_path: Path, patience: float, times: int) -> None:
    messages: list[str] = []
    with (
        lock.hold("board", directory=tmp_path),
        pytest.raises(BoardError, match=r"board is busy, held by .*pid"),
        lock.hold("board", directory=tmp_path, patience=patience, waiting=messages.append),
    ):
        pass
    assert len(messages) == times


def test_file_names_only_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "utvm-board.lock"
    path.write_text("an earlier holder that was killed " * 200)
    monkeypatch.setattr(sys, "argv", ["inv", "語" * 600])
    monkeypatch.setattr(os, "getuid", lambda: 4_000_123_456)
    with lock.hold("board", directory=tmp_path):
        text = path.read_text()
        assert re.fullmatch(rf"user 4000123456: '語{{499}} \(pid {os.getpid()}, since \S+ \S+\)\n", text)
        with pytest.raises(BoardError) as caught, lock.hold("board", directory=tmp_path):
            pass
        assert caught.value.message == f"board is busy, held by {text.strip()}"
    assert path.read_text() == ""


def test_silent_lock_holder_is_named_by_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "utvm-board.lock"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/inv"])
    with lock.hold("board", directory=tmp_path):
        assert ": inv (pid" in path.read_text()
    with path.open() as silent:
        fcntl.flock(silent, fcntl.LOCK_EX)
        with pytest.raises(BoardError, match="held by another process\n"), lock.hold("board", directory=tmp_path):
            pass


def test_two_boards_have_separate_locks(tmp_path: Path) -> None:
    with lock.hold("stm32f746 1", directory=tmp_path), lock.hold("stm32f746 2", directory=tmp_path):
        pass


def test_process_cannot_hold_a_board_twice(tmp_path: Path) -> None:
    with (
        lock.hold("board", directory=tmp_path),
        pytest.raises(BoardError, match=rf"\(pid {os.getpid()}, since"),
        lock.hold("board", directory=tmp_path),
    ):
        pass


def test_lock_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock.hold("board", directory=tmp_path):
        raise ZeroDivisionError
    with lock.hold("board", directory=tmp_path):
        pass


def test_any_name_stays_in_the_lock_directory(tmp_path: Path) -> None:
    inside = tmp_path / "locks"
    inside.mkdir()
    with lock.hold("../../board /x", directory=inside):
        assert len(list(inside.iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_lock_file_is_writable_for_other_users(tmp_path: Path) -> None:
    with lock.hold("board", directory=tmp_path):
        pass
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o666


def test_unusable_lock_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "utvm-board.lock").mkdir()
    with pytest.raises(BoardError, match=r"utvm-board\.lock"), lock.hold("board", directory=tmp_path):
        pass


def test_no_message_without_a_wait(tmp_path: Path) -> None:
    messages: list[str] = []
    with (
        lock.hold("board", directory=tmp_path),
        pytest.raises(BoardError, match="board is busy"),
        lock.hold("board", directory=tmp_path, waiting=messages.append),
    ):
        pass
    assert messages == []
