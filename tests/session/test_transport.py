# SPDX-License-Identifier: Apache-2.0
"""Transports, child processes and the console: nothing hangs or remains, for any behaviour of the other end."""

import os
import pty
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.processes import has_ended
from utvm.errors import BoardError, TransportError
from utvm.probe.console import Console, FlowControl
from utvm.session.transport import ChildProcess, Transport


def child(tmp_path: Path, *command: str, **options: float) -> ChildProcess:
    return ChildProcess("helper", command, log=tmp_path / "logs" / "helper.log", **options)


def python(tmp_path: Path, code: str, **options: float) -> ChildProcess:
    return child(tmp_path, sys.executable, "-S", "-u", "-c", code, **options)


def read_all(transport: Transport, size: int) -> bytes:
    data = b""
    deadline = time.monotonic() + 60
    while len(data) < size and time.monotonic() < deadline:
        data += transport.read(1.0)
    return data


def check_read_timeout(transport: Transport, send: Callable[[], None]) -> None:
    """Check that a transport keeps its time limit; ``send`` makes the letter a arrive."""
    begin = time.monotonic()
    assert transport.read(0.0) == b""
    assert transport.read(0.3) == b""
    assert 0.3 <= time.monotonic() - begin < 5.0
    send()
    begin = time.monotonic()
    assert transport.read(60.0) == b"a"
    assert time.monotonic() - begin < 30.0


def test_bytes_are_sent_both_ways(tmp_path: Path) -> None:
    with child(tmp_path, "cat") as cat:
        data = bytes(range(256)) * 1000
        for _ in range(3):
            cat.write(data)
            assert read_all(cat, len(data)) == data
        pid = cat.pid
    assert has_ended(pid)


def test_read_keeps_its_time_limit(tmp_path: Path) -> None:
    with child(tmp_path, "cat") as cat:
        check_read_timeout(cat, lambda: cat.write(b"a"))


def test_ended_child_is_an_error_after_its_last_bytes(tmp_path: Path) -> None:
    with child(tmp_path, "sh", "-c", "printf last; echo no such model >&2; exit 7") as helper:
        helper._process.wait(10)  # type: ignore[union-attr]
        assert read_all(helper, 4) == b"last"
        for action in (lambda: helper.read(60.0), lambda: helper.read(0.0), lambda: helper.write(b"x")):
            with pytest.raises(TransportError, match=r"helper ended with exit code 7.*\n.*no such model"):
                action()


def test_killed_child_is_named_with_its_signal(tmp_path: Path) -> None:
    with child(tmp_path, "cat") as cat:
        os.kill(cat.pid, signal.SIGKILL)
        with pytest.raises(TransportError, match="helper was ended by SIGKILL"):
            cat.read(60.0)


def test_child_that_ends_during_a_write_is_an_error(tmp_path: Path) -> None:
    with (
        child(tmp_path, "sh", "-c", "head -c 1000 >/dev/null; exit 3") as helper,
        pytest.raises(TransportError, match="ended with exit code 3"),
    ):
        helper.write(bytes(10_000_000))


def test_end_of_a_child_is_noticed_with_its_pipe_open(tmp_path: Path) -> None:
    with child(tmp_path, "sh", "-c", "sleep 60 & exit 5") as helper:
        helper._process.wait(10)  # type: ignore[union-attr]
        with pytest.raises(TransportError, match="exit code 5"):
            helper.read(0.1)


@pytest.mark.slow
def test_child_that_closes_its_output_is_an_error(tmp_path: Path) -> None:
    with (
        child(tmp_path, "sh", "-c", "exec >&-; sleep 60") as helper,
        pytest.raises(TransportError, match="closed its standard input or output"),
    ):
        helper.read(60.0)


def test_child_that_does_not_read_is_an_error_in_time(tmp_path: Path) -> None:
    with child(tmp_path, "sleep", "60", write_timeout=0.3) as helper:
        begin = time.monotonic()
        with pytest.raises(TransportError, match=r"did not read \d+ of 1000000 bytes within 0\.3 s"):
            helper.write(bytes(1_000_000))
        assert time.monotonic() - begin < 10.0


def test_child_that_writes_before_it_reads_is_no_deadlock(tmp_path: Path) -> None:
    size = 500_000  # More than pipes hold.
    with child(tmp_path, "sh", "-c", f"head -c {size} /dev/zero; exec cat") as helper:
        helper.write(b"x" * size)
        assert read_all(helper, 2 * size) == bytes(size) + b"x" * size


def test_child_ignoring_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if child: print(child)\n"
        "time.sleep(60)"
    )
    with python(tmp_path, code, stop_timeout=0.2) as helper:
        line = b""
        while not line.endswith(b"\n"):
            line += helper.read(60.0)
        pid = helper.pid
    assert has_ended(pid)
    assert has_ended(int(line))


def test_use_of_a_closed_child_is_an_error(tmp_path: Path) -> None:
    with child(tmp_path, "cat") as cat:
        cat.close()
        cat.close()
        with pytest.raises(TransportError, match="closed"):
            cat.read(1.0)
        with pytest.raises(TransportError, match="closed"):
            cat.write(b"x")


def test_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="no-such-program is not installed"), child(tmp_path, "no-such-program"):
        pass


def test_children_leave_no_descriptors(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    for _ in range(5):
        with child(tmp_path, "cat") as cat:
            cat.write(b"x")
    assert psutil.Process().num_fds() == before


@pytest.fixture(params=["pty", "socket"])
def line(request: pytest.FixtureRequest) -> Iterator[tuple[Console, int]]:
    """A console, and the file descriptor of its other end."""
    if request.param == "pty":
        controller, terminal = pty.openpty()
        tty.setraw(terminal)
        with Console(os.ttyname(terminal), 115200) as console:
            os.close(terminal)
            yield console, controller
        os.close(controller)
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            console = Console(f"socket://127.0.0.1:{server.getsockname()[1]}", 115200)
            connected, _address = server.accept()
            with connected, console:
                yield console, connected.fileno()


def test_console_is_a_transport(line: tuple[Console, int]) -> None:
    console, descriptor = line
    transport: Transport = console
    begin = time.monotonic()
    assert transport.read(0.0) == b""
    assert transport.read(0.2) == b""
    assert 0.2 <= time.monotonic() - begin < 5.0
    os.write(descriptor, b"\x00\xff\r\n\x11\x13")
    begin = time.monotonic()
    assert read_all(transport, 6) == b"\x00\xff\r\n\x11\x13"
    assert time.monotonic() - begin < 0.9, "it waits for more than has come"
    transport.write(b"\xff\xfd\r\n")
    assert os.read(descriptor, 100) == b"\xff\xfd\r\n"


def test_console_can_be_read_as_text_and_as_bytes(line: tuple[Console, int]) -> None:
    console, descriptor = line
    os.write(descriptor, b"boot\nready\nmore")
    assert console.read_until(b"ready\n", 60.0) == b"boot\nready\n"
    assert read_all(console, 4) == b"more"
    os.write(descriptor, b"old")
    time.sleep(0.05)
    console.clear()
    assert console.read(0.0) == b""
    with pytest.raises(BoardError, match="did not print b'x' within"):
        console.read_until(b"x", 0.1)


def test_cleared_console_forgets_pending_text(line: tuple[Console, int]) -> None:
    console, descriptor = line
    os.write(descriptor, b"ready\nold")
    assert console.read_until(b"ready\n", 60.0) == b"ready\n"
    while console.received != b"old":  # It may have come in two parts.
        console.received += console.read(60.0)
    console.clear()
    os.write(descriptor, b"new")
    assert read_all(console, 3) == b"new"


@pytest.mark.parametrize(("flow", "flags"), [("none", 0), ("rts-cts", termios.CRTSCTS)])
def test_console_uses_the_selected_flow_control(flow: FlowControl, flags: int) -> None:
    controller, terminal = pty.openpty()
    try:
        with Console(os.ttyname(terminal), 115200, flow):
            assert termios.tcgetattr(terminal)[2] & termios.CRTSCTS == flags
    finally:
        os.close(controller)
        os.close(terminal)


def test_use_of_a_closed_console_is_an_error(line: tuple[Console, int]) -> None:
    console, _other = line
    console.close()
    console.close()
    for action in (lambda: console.read(0.1), lambda: console.write(b"x")):
        with pytest.raises(TransportError):
            action()


def test_console_whose_other_end_closes_is_an_error() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Console(f"socket://127.0.0.1:{server.getsockname()[1]}", 115200) as console,
    ):
        server.accept()[0].close()
        with pytest.raises(TransportError, match="broke"):
            console.read(60.0)
