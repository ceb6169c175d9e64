"""``python -m utvm.virtual`` as a process: its one line, its end, what it says to bad input."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from utvm.boards import Board

READY = re.compile(r"virtual board stm32f746 ready: st-link tcp (\d+), console tcp (\d+)\n")


@contextlib.contextmanager
def start(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "utvm.virtual", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def feed(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin
    process.stdin.write(text)
    process.stdin.close()
    process.stdin = None


def finish(*arguments: str, stdin: str) -> tuple[int, str]:
    with start(*arguments) as process:
        _, said = process.communicate(stdin, timeout=30)
        return process.returncode, said


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_when_told(board: Board, number: int) -> None:
    with start("--serial=ME") as process:
        feed(process, board.machine_spec().model_dump_json())
        assert process.stdout
        match = READY.fullmatch(process.stdout.readline())
        assert match
        clients = [socket.create_connection(("127.0.0.1", int(port)), timeout=5.0) for port in match.groups()]
        process.send_signal(number)
        assert process.wait(timeout=5.0) == 0
        assert all(is_closed(client) for client in clients)
        assert "Traceback" not in process.communicate()[1]


def test_a_signal_switches_its_power_off_and_on(board: Board) -> None:
    with start() as process:
        feed(process, board.machine_spec().model_dump_json())
        assert process.stdout
        assert READY.fullmatch(process.stdout.readline())
        for number in (1, 2):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == f"power cycle {number} done\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5.0) == 0


def test_a_specification_that_is_none() -> None:
    code, said = finish(stdin='{"name": "x"}')
    assert code == 2
    assert "not a machine specification" in said
    assert "Traceback" not in said


def test_a_port_that_is_taken(board: Board) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = finish(
            f"--stlink-port={taken.getsockname()[1]}", stdin=board.machine_spec().model_dump_json()
        )
    assert code == 2
    assert "in use" in said
    assert "Traceback" not in said
