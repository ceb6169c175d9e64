# SPDX-License-Identifier: Apache-2.0
"""Another user of this computer connects to whatever a run listens on: none answers, the verdict is right."""

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
from utvm.base.process.run import free_port
from utvm.cli.board_gdb import READY
from utvm.drivers import attach
from utvm.paths import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

Address = tuple[str, int] | str

_OTHER_UID = 65534
# GDB's protocol, remote_bitbang's, an ST-Link server's; to whom says nothing, a console and the like talk.
_GREETINGS = ("+$qSupported#37", "R", "\x01", "")
_STRANGER = """
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


class Stranger:
    """A process of another user."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _STRANGER, str(_OTHER_UID)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tries = 0
        self.answered: list[Address] = []

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def try_all_of(self, process: psutil.Process) -> None:
        """Connect to each socket of a process and its children, with every greeting."""
        for address, greeting in itertools.product(addresses_of(process), _GREETINGS):
            assert self._process.stdin and self._process.stdout
            print(json.dumps([address, greeting]), file=self._process.stdin, flush=True)
            self.tries += 1
            if self._process.stdout.readline() != "0\n":
                self.answered.append(address)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    stranger = Stranger()
    yield stranger
    stranger.close()


def addresses_of(process: psutil.Process) -> set[Address]:
    """Return the TCP ports and Unix sockets that a process and its children listen on."""
    found: set[Address] = set()
    for one in (process, *process.children(recursive=True)):
        try:
            connections = one.net_connections("all")
        except psutil.Error:
            continue  # it has ended
        for connection in connections:
            if connection.family == socket.AF_UNIX and connection.laddr:
                name = str(connection.laddr)
                found.add(f"\0{name[1:]}" if name.startswith("@") else name)
            elif connection.status == psutil.CONN_LISTEN:
                found.add(("127.0.0.1", connection.laddr.port))
    return found


def test_nobody_answers_another_user_while_a_board_is_open(stranger: Stranger, tmp_path: Path) -> None:
    with attach(boards.load("stm32f746"), "virtual", log_directory=tmp_path) as bench:
        bench.reset(halt=False)
        for _ in range(2):
            stranger.try_all_of(psutil.Process())
        assert bench.read_memory(0x20000000, 4) is not None
    assert stranger.tries >= 16
    assert stranger.answered == []


def _run(words: tuple[str, ...], stranger: Stranger, folder: Path) -> str:
    """Run a command to its end while another user connects to its sockets; return what it printed."""
    with (folder / "output").open("w+b") as output:
        command = [sys.executable, "-m", "utvm", *words]
        with subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) as run:
            process = psutil.Process(run.pid)
            while run.poll() is None:
                stranger.try_all_of(process)
                time.sleep(0.01)
        said = (folder / "output").read_text()
    assert run.returncode == 0, said
    return said


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
def test_nobody_answers_another_user_during_a_run(
    board: str, suite: str, only: str, least: int, stranger: Stranger, tmp_path: Path
) -> None:
    words = ("hil", "--board", board, "--suite", suite, "--report-dir", str(tmp_path / "reports"))
    said = _run((*words, *(("-k", only) if only else ())), stranger, tmp_path)
    assert "PASSED" in said
    assert stranger.tries >= least
    assert stranger.answered == []


@pytest.mark.slow
def test_a_debugger_s_port_is_its_user_s_alone(stranger: Stranger) -> None:
    elf_of = ("--model", str(ROOT / "models" / "digits" / "digits_int8.tflite"), "--board", "mps2-an500")
    command = [sys.executable, "-m", "utvm", "board.gdb", *elf_of, "--port", str(port := free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert any(line.startswith(READY) for line in server.stdout)
        for _ in range(20):
            stranger.try_all_of(psutil.Process(server.pid))
        with socket.create_connection(("127.0.0.1", port)) as ours:
            ours.sendall(b"+$qSupported#37")
            assert ours.recv(1) == b"+"
        stranger.try_all_of(psutil.Process(server.pid))
        server.terminate()
        server.wait(60)  # whoever was refused last holds nothing up
    assert ("127.0.0.1", port) not in stranger.answered
    assert stranger.tries >= 20
    assert stranger.answered == []
