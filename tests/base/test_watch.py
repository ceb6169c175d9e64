# SPDX-License-Identifier: Apache-2.0
"""A process that hangs is noticed, whatever is waited for, and however long that would be waited for."""

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
from tests.processes import gone
from utvm import boards, firmware
from utvm.base.process.service import Service
from utvm.boards.parts import Emulator
from utvm.drivers import Connection, attach
from utvm.drivers.builtin.qemu import Qemu
from utvm.errors import BoardError, ProbeError, TransportError
from utvm.session import HostDriven
from utvm.session.transport import ChildProcess

_FOR_EVER = 100_000.0


def _service(tmp_path: Path, code: str, *, restless: bool = False, stdin: str | None = None) -> Service:
    words = [sys.executable, "-u", "-c", f"import os, signal, time; {code}"]
    return Service(
        "helper",
        words,
        log=tmp_path / "log",
        health="ready",
        error=ProbeError,
        always_busy=restless,
        stdin=stdin,
        poke_stdin=stdin is not None,
        start_timeout=_FOR_EVER,
    )


def _dies(needed: Service | Connection | Qemu) -> str:
    """Wait until something has ended, and return what is said of that."""
    while True:
        try:
            needed.check()
        except ProbeError as error:
            return error.message
        time.sleep(0.05)


@pytest.mark.slow
def test_one_that_hangs_before_it_is_ready_is_noticed(tmp_path: Path) -> None:
    with (
        pytest.raises(ProbeError, match=r"helper ended unexpectedly \(it hung: it was stopped by a signal"),
        _service(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)"),
    ):
        pass


@pytest.mark.slow
def test_late_stop_is_ended_and_named(tmp_path: Path) -> None:
    with _service(tmp_path, "print('ready'); time.sleep(1000)") as service:
        os.kill(service.pid, signal.SIGSTOP)
        assert "helper ended unexpectedly (it hung: it was stopped by a signal" in _dies(service)


@pytest.mark.slow
def test_one_that_goes_on_soon_is_left_alone(tmp_path: Path) -> None:
    with _service(tmp_path, "print('ready'); time.sleep(1000)") as service:
        for _ in range(2):
            os.kill(service.pid, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(service.pid, signal.SIGCONT)
            time.sleep(1.5)
        service.check()


@pytest.mark.slow
def test_restless_process_hangs_only_while_idle(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with (
        _service(tmp_path, "print('ready'); time.sleep(1000)") as calm,
        _service(tmp_path / "a", "print('ready'); time.sleep(1000)", restless=True) as restless,
    ):
        assert "it hung: it used no processor time" in _dies(restless)
        calm.check()


@pytest.mark.slow
def test_resting_process_hangs_where_disturbed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    reads = "print('ready'); [None for _ in open(0)]"
    with (
        _service(tmp_path, reads, stdin="") as well,
        _service(tmp_path / "a", "print('ready'); time.sleep(1000)", stdin="") as hanging,
        Qemu(_emulated(), log=tmp_path / "b" / "log") as waiting_for_its_debugger,
    ):
        assert "it hung: it used no processor time" in _dies(hanging)
        time.sleep(3)
        well.check()
        waiting_for_its_debugger.check()


# Stops every thread of a process without a signal, as a deadlock would; and sees to their end.
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
def test_a_qemu_that_is_locked_dead_is_noticed(tmp_path: Path) -> None:
    with Qemu(_emulated(), log=tmp_path / "log") as qemu:
        words = [sys.executable, "-c", _TRACER, str(qemu.pid)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as tracer:
            assert tracer.stdout
            assert tracer.stdout.readline() == "stopped\n"
            assert "QEMU ended unexpectedly (it hung: it used no processor time" in _dies(qemu)


def _emulated() -> Emulator:
    emulator = boards.load("mps2-an500").virtual.emulator
    assert emulator
    return emulator


@pytest.mark.slow
def test_a_program_in_place_of_a_board_that_hangs_is_noticed(tmp_path: Path) -> None:
    with ChildProcess("the board", ["sleep", "1000"], log=tmp_path / "log") as child:
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(TransportError, match="the board was ended: it hung"):
            child.read(_FOR_EVER)


def _started(word: str) -> int:
    """Return the process that we have started with this word on its command line."""
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            if word in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                return int(pid)
    raise AssertionError(f"no {word} is running")


@pytest.fixture(params=["openocd", "utvm.virtual", "qemu"])
def stopped_soon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Connection, int, threading.Timer]]:
    """A board, what of it hangs, and what makes it hang in a moment."""
    board = boards.load("mps2-an500" if request.param == "qemu" else "stm32f746")
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        pid = _started(request.param)
        yield connection, pid, threading.Timer(0.5, os.kill, (pid, signal.SIGSTOP))


@pytest.mark.slow
def test_what_hangs_under_a_run_without_end_is_noticed(
    stopped_soon: tuple[Connection, int, threading.Timer], tmp_path: Path
) -> None:
    connection, pid, soon = stopped_soon
    image = firmware.build(connection.board, [handwritten("sleeper", "  for (;;) { }")])
    with pytest.raises((ProbeError, BoardError)), HostDriven(connection, image, timeout=_FOR_EVER) as session:
        soon.start()
        session.run("sleeper", [np.ones(4, dtype=np.int32)])
    assert "ended unexpectedly" in _dies(connection)
    assert gone(pid)


@pytest.mark.nightly  # what hangs under a run is noticed by the same watch
def test_what_hangs_while_memory_is_read_is_noticed(stopped_soon: tuple[Connection, int, threading.Timer]) -> None:
    connection, pid, _ = stopped_soon
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises((ProbeError, BoardError)):
        connection.read_memory(connection.board.region(connection.board.layout.code).address, 4)
    assert "ended unexpectedly" in _dies(connection)
    assert gone(pid)
