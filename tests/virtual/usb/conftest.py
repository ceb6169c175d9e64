# SPDX-License-Identifier: Apache-2.0
"""A probe on a socket with a fake board behind it, and a guest to plug it into."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.virtual.fake_board import FakeBoard
from tests.virtual.usb.peer import Peer
from utvm.virtual.console import Backlog
from utvm.virtual.usb.probes import CmsisDapProbe, StLinkProbe
from utvm.virtual.usb.server import UsbServer


class Plug:
    """A probe's socket, the board behind it, and its console's data."""

    def __init__(self, kind: str, path: Path, product: int = 0x374B) -> None:
        self.board = FakeBoard()
        self.printed = Backlog()
        self.typed = bytearray()
        device = (
            StLinkProbe(self.board, serial="S-1", backlog=self.printed, type_in=self.typed.extend, product=product)
            if kind == "st-link"
            else CmsisDapProbe(self.board, serial="S-1")
        )
        self.path = path
        self.server = UsbServer(device, f"unix:{path}")
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(str(self.path))
        return connection

    def close(self) -> None:
        self.server.close()
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()


@pytest.fixture
def plug(tmp_path: Path) -> Iterator[Callable[..., Plug]]:
    """Create plugs of a kind."""
    plugs: list[Plug] = []

    def make(kind: str, product: int = 0x374B) -> Plug:
        plugs.append(Plug(kind, tmp_path / f"socket{len(plugs)}", product))
        return plugs[-1]

    yield make
    for plug_to_close in plugs:
        plug_to_close.close()


@pytest.fixture
def st_link(plug: Callable[[str], Plug]) -> Plug:
    return plug("st-link")


@pytest.fixture
def cmsis_dap(plug: Callable[[str], Plug]) -> Plug:
    return plug("cmsis-dap")


@pytest.fixture
def peer(st_link: Plug) -> Iterator[Peer]:
    with Peer(st_link.connect()) as connected:
        yield connected
