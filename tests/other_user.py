# SPDX-License-Identifier: Apache-2.0
"""Another user of this computer, who connects to every address on which a command listens."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import psutil
import pytest

UID = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Greetings for HTTP, gRPC, TVM's RPC server and tracker, and a virtual ST-Link; a console sends by itself.
_KNOCK = """
import json, os, socket, struct, sys
addresses, tries, uid = json.load(sys.stdin), int(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
greetings = [
    b"GET / HTTP/1.0\\r\\n\\r\\n",
    b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
    struct.pack("<ii", 0xFF271, 8) + b"client:x",
    struct.pack("<i", 0x2F271),
    bytes([0]) * 16,
    b"",
]
answered = []
for number in range(tries):
    address = addresses[number % len(addresses)]
    path, host, port = address
    family = socket.AF_UNIX if path else socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as connection:
        connection.settimeout(0.5)
        try:
            connection.connect(path or (host, port))
            connection.sendall(greetings[number // len(addresses) % len(greetings)])
            if connection.recv(64):
                answered.append(address)
        except OSError:
            pass
json.dump(answered, sys.stdout)
"""


@dataclass(frozen=True, order=True)
class Address:
    """An address to connect to: the path of a Unix socket, or a host and a TCP port."""

    path: str
    host: str = ""
    port: int = 0


def listening_addresses(pid: int) -> list[Address]:
    """Return the addresses on which a process and its descendants listen, and named Unix sockets in use."""
    addresses = set()
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            connections = process.net_connections("all")
        except psutil.NoSuchProcess:
            continue
        for connection in connections:
            if isinstance(connection.laddr, str):
                addresses.add(Address(connection.laddr))
            elif connection.status == psutil.CONN_LISTEN:
                addresses.add(Address("", connection.laddr.ip, connection.laddr.port))
    return sorted(address for address in addresses if address.path.startswith("/") or address.port)


def connect_as_other_user(addresses: list[Address], tries: int, uid: int = UID) -> set[Address]:
    """Connect ``tries`` times as another user, to the addresses in turn, and return those that answered."""
    data = json.dumps([[address.path, address.host, address.port] for address in addresses])
    command = [sys.executable, "-I", "-c", _KNOCK, str(tries), str(uid)]
    completed = subprocess.run(command, input=data, capture_output=True, text=True, check=True, timeout=300)
    return {Address(*address) for address in json.loads(completed.stdout)}
