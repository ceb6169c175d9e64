# SPDX-License-Identifier: Apache-2.0
"""A process that hangs is noticed, for any wait and any time limit."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hil_tests.programs import handwritten
from tests.processes import has_ended
from utvm import boards, firmware
from utvm.base.process import Service
from utvm.boards.parts import Emulator
from utvm.drivers import Connection, attach
from utvm.drivers.builtin.qemu import Qemu
from utvm.errors import BoardError, ProbeError, TransportError
from utvm.session import HostDriven
from utvm.session.transport import ChildProcess

_FOR_EVER = 100_000.0


def _service(tmp_path: Path, code: str, *, always_busy: bool = False, stdin: str | None = None) -> Service:
    command = [sys.executable, "-u", "-c", f"import os, signal, time; {code}"]
    return Service(
        "helper",
        command,
        log=tmp_path / "log",
        health="ready",
        error=ProbeError,
        always_busy=always_busy,
        stdin=stdin,
        poke_stdin=stdin is not None,
        start_timeout=_FOR_EVER,
    )


def _wait_for_end(process: Service | Connection | Qemu) -> str:
    """Wait until the process has ended; return the message of the error."""
    while True:
        try:
            process.check()
        except ProbeError as error:
            return error.message
        time.sleep(0.05)


@pytest.mark.slow
def test_hang_before_readiness_is_noticed(tmp_path: Path) -> None:
    with (
        pytest.raises(ProbeError, match=r"helper ended unexpectedly \(it hung: it was stopped by a signal"),
        _service(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)"),
    ):
        pass


@pytest.mark.slow
def test_stopped_process_is_ended_and_named(tmp_path: Path) -> None:
    with _service(tmp_path, "print('ready'); time.sleep(1000)") as service:
        os.kill(service.pid, signal.SIGSTOP)
        assert "helper ended unexpectedly (it hung: it was stopped by a signal" in _wait_for_end(service)


@pytest.mark.slow
def test_short_stop_is_tolerated(tmp_path: Path) -> None:
    with _service(tmp_path, "print('ready'); time.sleep(1000)") as service:
        for _ in range(2):
            os.kill(service.pid, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(service.pid, signal.SIGCONT)
            time.sleep(1.5)
        service.check()


@pytest.mark.slow
def test_busy_process_hangs_when_idle(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with (
        _service(tmp_path, "print('ready'); time.sleep(1000)") as may_rest,
        _service(tmp_path / "a", "print('ready'); time.sleep(1000)", always_busy=True) as always_busy,
    ):
        assert "it hung: it used no processor time" in _wait_for_end(always_busy)
        may_rest.check()


@pytest.mark.slow
def test_resting_process_hangs_when_poked(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    reads = "print('ready'); [None for _ in open(0)]"
    with (
        _service(tmp_path, reads, stdin="") as responding,
        _service(tmp_path / "a", "print('ready'); time.sleep(1000)", stdin="") as hanging,
        Qemu(_emulator(), log=tmp_path / "b" / "log") as halted,
    ):
        assert "it hung: it used no processor time" in _wait_for_end(hanging)
        time.sleep(3)
        responding.check()
        halted.check()


# Stops every thread of a process without a signal, as a deadlock would, and waits for their end.
_TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for task in os.listdir(f"/proc/{sys.argv[1]}/task"):
    for request in (0x4206, 0x4207):  # PTRACE_SEIZE, PTRACE_INTERRUPT
        assert libc.ptrace(request, int(task), None, None) == 0, os.strerror(ctypes.get_errno())
print("stopped", flush=True)
while True:
    try:
        os.waitpid(-1, 0x40000000)  # __WALL
    except ChildProcessError:
        break
"""


@pytest.mark.slow
def test_deadlocked_qemu_is_noticed(tmp_path: Path) -> None:
    with Qemu(_emulator(), log=tmp_path / "log") as qemu:
        command = [sys.executable, "-c", _TRACER, str(qemu.pid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tracer:
            assert tracer.stdout
            assert tracer.stdout.readline() == "stopped\n"
            assert "QEMU ended unexpectedly (it hung: it used no processor time" in _wait_for_end(qemu)


def _emulator() -> Emulator:
    emulator = boards.load("mps2-an500").virtual.emulator
    assert emulator
    return emulator


@pytest.mark.slow
def test_hanging_program_as_a_board_is_noticed(tmp_path: Path) -> None:
    with ChildProcess("the board", ["sleep", "1000"], log=tmp_path / "log") as child:
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(TransportError, match="the board was ended: it hung"):
            child.read(_FOR_EVER)


def _find_child(word: str) -> int:
    """Return our child process with this word on its command line."""
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            if word in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                return int(pid)
    raise AssertionError(f"no {word} is running")


@pytest.fixture(params=["openocd", "utvm.virtual", "qemu"])
def stop_timer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Connection, int, threading.Timer]]:
    """A board, one of its processes, and a timer that stops this process."""
    board = boards.load("mps2-an500" if request.param == "qemu" else "stm32f746")
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        pid = _find_child(request.param)
        yield connection, pid, threading.Timer(0.5, os.kill, (pid, signal.SIGSTOP))


@pytest.mark.slow
def test_hang_during_an_endless_run_is_noticed(
    stop_timer: tuple[Connection, int, threading.Timer], tmp_path: Path
) -> None:
    connection, pid, timer = stop_timer
    image = firmware.build(connection.board, [handwritten("sleeper", "  for (;;) { }")])
    with pytest.raises((ProbeError, BoardError)), HostDriven(connection, image, timeout=_FOR_EVER) as session:
        timer.start()
        session.run("sleeper", [np.ones(4, dtype=np.int32)])
    assert "ended unexpectedly" in _wait_for_end(connection)
    assert has_ended(pid)


@pytest.mark.nightly  # the same code notices a hang during a run
def test_hang_during_a_memory_read_is_noticed(stop_timer: tuple[Connection, int, threading.Timer]) -> None:
    connection, pid, _ = stop_timer
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises((ProbeError, BoardError)):
        connection.read_memory(connection.board.region(connection.board.layout.code).address, 4)
    assert "ended unexpectedly" in _wait_for_end(connection)
    assert has_ended(pid)
