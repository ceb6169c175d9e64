# SPDX-License-Identifier: Apache-2.0
"""The user at the other end of a loopback connection, with real sockets and a process of another user."""

import os
import socket
import subprocess
import sys
import time

import pytest

from utvm.base.process import peer
from utvm.base.process.peer import OwnerOnlySocket, peer_uid

_OTHER_UID = 65534
_CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket() as connection:
    connection.connect(("127.0.0.1", int(sys.argv[1])))
    connection.settimeout(5)
    try:
        answered = connection.recv(1) == b"!"
    except ConnectionResetError:
        answered = False
sys.exit(answered)
"""


def _connect_as(port: int, uid: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-I", "-c", _CONNECT, str(port), str(uid)])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("source", ["kernel", "table"])
def test_own_connection_is_recognised(host: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if source == "table":

        def refuse(*_: object) -> int:
            raise OSError

        monkeypatch.setattr(peer, "_ask_kernel", refuse)
    with OwnerOnlySocket.listen_on(host, 0) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        connection, _ = listener.accept()
        with connection:
            assert peer_uid(connection) == os.geteuid()
            client.close()
            time.sleep(0.1)  # The kernel now reports the abandoned socket as root's.
            assert peer_uid(connection) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_receives_no_byte() -> None:
    with OwnerOnlySocket.listen_on("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        for _ in range(3):
            stranger = _connect_as(port, _OTHER_UID)
            time.sleep(0.2)
            owner = _connect_as(port, os.geteuid())
            connection, _ = listener.accept()
            with connection:
                connection.send(b"!")
                assert stranger.wait(10) == 0
                assert owner.wait(10) == 1
