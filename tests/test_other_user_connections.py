# SPDX-License-Identifier: Apache-2.0
"""Another user of this computer connects to every socket of a run: none replies, and the verdict is right."""

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from utvm import boards
from utvm.base.process import free_port
from utvm.cli.board_run import READY
from utvm.drivers import attach
from utvm.paths import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

Address = tuple[str, int] | str

_OTHER_UID = 65534
# Greetings of GDB's protocol, remote_bitbang, and an ST-Link server; a console sends without a greeting.
_GREETINGS = ("+$qSupported#37", "R", "\x01", "")
_OTHER_USER = """
import json, os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
for line in sys.stdin:
    address, greeting = json.loads(line)
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as connection:
        connection.settimeout(0.3)
        try:
            connection.connect(address if isinstance(address, str) else tuple(address))
            connection.sendall(greeting.encode())
            print(len(connection.recv(1)), flush=True)
        except OSError:
            print(0, flush=True)
"""


class OtherUser:
    """A process of another user, which connects to sockets."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _OTHER_USER, str(_OTHER_UID)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tries = 0
        self.replies: list[Address] = []

    def close(self) -> None:
        self._process.communicate()

    def connect_to_all(self, process: psutil.Process) -> None:
        """Connect to each socket of a process and its children, with every greeting."""
        for address, greeting in itertools.product(addresses_of(process), _GREETINGS):
            assert self._process.stdin and self._process.stdout
            print(json.dumps([address, greeting]), file=self._process.stdin, flush=True)
            self.tries += 1
            if self._process.stdout.readline() != "0\n":
                self.replies.append(address)


@pytest.fixture
def other_user() -> Iterator[OtherUser]:
    other_user = OtherUser()
    yield other_user
    other_user.close()


def addresses_of(process: psutil.Process) -> set[Address]:
    """Return the TCP ports and Unix sockets that a process and its children listen on."""
    addresses: set[Address] = set()
    for member in (process, *process.children(recursive=True)):
        try:
            connections = member.net_connections("all")
        except psutil.Error:
            continue  # it has ended
        for connection in connections:
            if connection.family == socket.AF_UNIX and connection.laddr:
                name = str(connection.laddr)
                addresses.add(f"\0{name[1:]}" if name.startswith("@") else name)
            elif connection.status == psutil.CONN_LISTEN:
                addresses.add(("127.0.0.1", connection.laddr.port))
    return addresses


def test_open_board_does_not_answer_another_user(other_user: OtherUser, tmp_path: Path) -> None:
    with attach(boards.load("stm32f746"), "virtual", log_directory=tmp_path) as connection:
        connection.reset(halt=False)
        for _ in range(2):
            other_user.connect_to_all(psutil.Process())
        assert connection.read_memory(0x20000000, 4) is not None
    assert other_user.tries >= 16
    assert other_user.replies == []


def _run(arguments: tuple[str, ...], other_user: OtherUser, folder: Path) -> str:
    """Run a command to its end while another user connects to its sockets; return its output."""
    with (folder / "output").open("w+b") as output:
        command = [sys.executable, "-m", "utvm", *arguments]
        with subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) as run:
            process = psutil.Process(run.pid)
            while run.poll() is None:
                other_user.connect_to_all(process)
                time.sleep(0.01)
        text = (folder / "output").read_text()
    assert run.returncode == 0, text
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "suite", "only", "least"),
    [
        pytest.param("stm32f746", "debug", "halt or breakpoint", 50, marks=pytest.mark.nightly),
        ("stm32f746", "rpc", "rtt", 50),
        ("nrf52840dk:driver=pyocd", "debug", "halt or breakpoint", 50),
        ("riscv-spike", "debug", "halt or breakpoint", 50),
        # OpenOCD and QEMU again.
        pytest.param("pynq-z1", "debug", "halt or breakpoint", 50, marks=pytest.mark.nightly),
        pytest.param("pynq-z1:driver=qemu", "debug", "halt or breakpoint", 0, marks=pytest.mark.nightly),
        ("mps2-an500", "health", "", 0),
        ("host", "rpc", "tcp", 0),
    ],
)
def test_run_does_not_answer_another_user(
    board: str, suite: str, only: str, least: int, other_user: OtherUser, tmp_path: Path
) -> None:
    arguments = ("hil", "--board", board, "--suite", suite, "--report-dir", str(tmp_path / "reports"))
    output = _run((*arguments, *(("-k", only) if only else ())), other_user, tmp_path)
    assert "PASSED" in output
    assert other_user.tries >= least
    assert other_user.replies == []


@pytest.mark.slow
def test_debuggers_port_is_for_its_user_only(other_user: OtherUser) -> None:
    options = ("--model", str(ROOT / "models" / "digits" / "digits_int8.tflite"), "--board", "mps2-an500")
    command = [sys.executable, "-m", "utvm", "board.gdb", *options, "--port", str(port := free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert any(line.startswith(READY) for line in server.stdout)
        for _ in range(20):
            other_user.connect_to_all(psutil.Process(server.pid))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"+$qSupported#37")
            assert client.recv(1) == b"+"
        other_user.connect_to_all(psutil.Process(server.pid))
        server.terminate()
        server.wait(60)  # a refused connection does not delay the end
    assert ("127.0.0.1", port) not in other_user.replies
    assert other_user.tries >= 20
    assert other_user.replies == []
