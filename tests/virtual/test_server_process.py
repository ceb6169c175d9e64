# SPDX-License-Identifier: Apache-2.0
"""``python -m utvm.virtual`` as a process: its ready line, its end, and bad input."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.virtual.usb.peer import SUCCESS, Peer
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
        _, errors = process.communicate(stdin, timeout=30)
        return process.returncode, errors


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_prints_its_ports_and_ends_at_a_signal(board: Board, number: int) -> None:
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


def test_signal_cycles_the_power(board: Board) -> None:
    with start() as process:
        feed(process, board.machine_spec().model_dump_json())
        assert process.stdout
        assert READY.fullmatch(process.stdout.readline())
        for number in (1, 2):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == f"power cycle {number} done\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5.0) == 0


def test_signal_unplugs_the_usb_probe(board: Board) -> None:
    with start("--usb=cmsis-dap", "--serial=ME") as process:
        feed(process, board.machine_spec().model_dump_json())
        assert process.stdout
        match = re.fullmatch(READY.pattern[:-2] + r", cmsis-dap usb (\d+)\n", process.stdout.readline())
        assert match
        address = ("127.0.0.1", int(match[3]))
        for _ in range(2):
            with Peer(socket.create_connection(address, timeout=5.0)) as peer:
                assert (peer.descriptor(3, 3) or b"")[2:].decode("utf-16-le") == "ME"
                assert peer.put(0x01, b"\x02\x01") == SUCCESS
                assert peer.get(0x81, 64) == b"\x02\x01"
                process.send_signal(signal.SIGUSR2)
                with pytest.raises(AssertionError, match="the device is gone"):
                    peer.wait(lambda: False)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "power cycle 1 done\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5.0) == 0
        assert "Traceback" not in process.communicate()[1]


@pytest.mark.parametrize("address", ["nowhere", "70000", "unix:/nowhere/at/all", "unix:/" + 200 * "long"])
def test_invalid_usb_address_is_refused(board: Board, address: str) -> None:
    code, errors = finish("--usb=st-link", f"--usb-listen={address}", stdin=board.machine_spec().model_dump_json())
    assert code == 2
    assert "cannot listen" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("serial", ["", "two words", "é", 33 * "x"])
def test_invalid_serial_number_is_refused(board: Board, serial: str) -> None:
    code, errors = finish(f"--serial={serial}", stdin=board.machine_spec().model_dump_json())
    assert code == 2
    assert "1 to 32" in errors


def test_invalid_specification_is_refused() -> None:
    code, errors = finish(stdin='{"name": "x"}')
    assert code == 2
    assert "not a machine specification" in errors
    assert "Traceback" not in errors


def test_port_in_use_is_refused(board: Board) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        code, errors = finish(f"--stlink-port={used.getsockname()[1]}", stdin=board.machine_spec().model_dump_json())
    assert code == 2
    assert "in use" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_ctrl_c_during_imports_has_no_traceback() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "utvm.virtual"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = ""
        # Some of its modules are imported, and some are not.
        while "utvm.errors" not in line:
            line = process.stderr.readline()
            assert line, "it ended by itself"
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait() == -signal.SIGINT
    assert "Traceback" not in rest
