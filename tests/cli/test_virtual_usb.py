# SPDX-License-Identifier: Apache-2.0
"""``board.virtual --usb`` from the command line."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.virtual.usb.peer import SUCCESS, Peer


@pytest.mark.slow
@pytest.mark.parametrize("kind, product", [("st-link", 0x374B), ("cmsis-dap", 0x0204)])
def test_probe_is_available_until_ctrl_c(kind: str, product: int, tmp_path: Path) -> None:
    path = tmp_path / "probe"
    words = ["board.virtual", "--board", "stm32f746", "--usb", kind, "--listen", f"unix:{path}", "--serial", "MINE"]
    command = [sys.executable, "-m", "utvm", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            output = ""
            while "power off and on" not in output:
                line = process.stdout.readline()
                assert line, output
                output += line
            assert f"{kind} MINE, usbredir on unix:{path}" in " ".join(output.split())
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(path))
            with Peer(connection) as peer:
                assert peer.device[5] == product
                assert (peer.descriptor(3, 3) or b"")[2:].decode("utf-16-le") == "MINE"
                assert peer.put(0x01, b"\xf1" if kind == "st-link" else b"\x02\x01") == SUCCESS
                assert len(peer.get(0x81, 64)) == (6 if kind == "st-link" else 2)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
            assert not path.exists()
        finally:
            process.kill()
