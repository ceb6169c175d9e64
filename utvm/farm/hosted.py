# SPDX-License-Identifier: Apache-2.0
"""Programs of a farm's host: labgrid's exporter, which offers its boards, and on one host the coordinator.

gRPC accepts every connection, so the coordinator listens on a Unix socket that no other user reaches. It tells
clients apart by address; Unix sockets only have one if bound, so each connection is bound.
"""

import asyncio
import contextlib
import getpass
import itertools
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from utvm.base.process import Service, end_process, run_tool
from utvm.base.process.interpreter import python_command
from utvm.base.process.peer import Acceptor, OwnerOnlySocket, listen
from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import private_folder
from utvm.drivers import BoardIdentity
from utvm.errors import ProvisionError
from utvm.farm.client import FarmClient, labgrid_python, no_proxy_variables
from utvm.paths import ROOT

_CHUNK = 1 << 16


class CoordinatorProxy:
    """Forwards connections to a Unix socket, as a context manager."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="farm proxy", daemon=True)

    def __enter__(self) -> "CoordinatorProxy":
        self._thread.start()
        starting = asyncio.start_server(self._forward, sock=self._listener)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        self._loop.close()

    def _end(self) -> None:
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_soon(self._loop.stop)

    async def _forward(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        name = self._path.with_name(f"client-{next(self._numbers)}")
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.bind(str(name))
            connection.connect(str(self._path))
            server_reader, server_writer = await asyncio.open_unix_connection(sock=connection)
        except OSError:
            connection.close()
            client_writer.close()
            return
        finally:
            name.unlink(missing_ok=True)
        try:
            await asyncio.gather(_copy(client_reader, server_writer), _copy(server_reader, client_writer))
        finally:
            server_writer.close()
            client_writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    target.close()


class SshTunnel(Acceptor):
    """A local port that leads to a port of another computer, for this user only; one ssh per connection.

    ssh's own ``-L`` serves every user of this computer.
    """

    def __init__(self, login: Sequence[str], port: int) -> None:
        self._command = [*login[:-1], f"-W127.0.0.1:{port}", login[-1]]
        self._running: list[subprocess.Popen[bytes]] = []
        super().__init__(OwnerOnlySocket.listen_on("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="ssh forward", daemon=True)

    def __enter__(self) -> "SshTunnel":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._thread.join()
        for ssh in self._running:
            end_process(ssh, 2.0)

    def _accept(self) -> None:
        for connection in self.clients():
            with connection, contextlib.suppress(OSError):
                ssh = subprocess.Popen(
                    self._command,
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                self._running = [*(process for process in self._running if process.poll() is None), ssh]


_POLL = 0.5
_RESTART_DELAY = 2.0


@dataclass(frozen=True)
class OfferedBoard:
    place: str
    board: BoardIdentity
    cpu: str


@dataclass(frozen=True)
class Host:
    name: str
    address: str
    port: int
    bad_after: int
    well_after: int


@contextlib.contextmanager
def coordinator(port: int, state: Path, log: Path, say: Callable[[str], None], *, anyone: bool) -> Iterator[Service]:
    """Run labgrid's coordinator, as a context manager.

    Args:
        anyone: also serve other users, who may take every board: labgrid has no access control.
    """
    state.mkdir(parents=True, exist_ok=True)
    python = labgrid_python(say)
    with contextlib.ExitStack() as stack:
        with ProvisionError.on(OSError, f"cannot listen on 127.0.0.1:{port}:", "choose another one with --port"):
            listener = stack.enter_context(listen(port, anyone=anyone))
            socket_path = stack.enter_context(private_folder()) / f"coordinator-{port}"
        # The umask sets the socket's mode; its folder is this user's, too.
        command = ["sh", "-c", 'umask 077; cd "$0" && exec "$@"', str(state)]
        command += python_command(
            "labgrid.remote.coordinator", "--listen", f"unix:{socket_path}", interpreter=(str(python),)
        )
        service = Service("the coordinator", command, log=log, health=r"^listening on ", error=ProvisionError)
        stack.enter_context(service)
        stack.enter_context(CoordinatorProxy(listener, socket_path))
        yield service


@contextlib.contextmanager
def coordinator_tunnel(host: str, port: int) -> Iterator[str]:
    """Tunnel to a coordinator on another computer, for this user only; yields its local HOST:PORT."""
    login = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", host]
    run_tool([*login, "true"], error=ProvisionError, hint=f"ssh {host} must work without a password")
    with SshTunnel(login, port) as tunnel:
        yield f"127.0.0.1:{tunnel.port}"


def export(
    address: str,
    host: Host,
    offers: Sequence[OfferedBoard],
    logs: Path,
    say: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Offer boards until interrupted; restart an exporter that exits."""
    logs.mkdir(parents=True, exist_ok=True)
    config = logs / "exporter.yaml"
    config.write_text(yaml.safe_dump({offer.place: _resources(host, offer) for offer in offers}), encoding="utf-8")
    command = ["env", *(f"{name}={value}" for name, value in no_proxy_variables().items())]
    options = ("--coordinator", address, "--name", host.name, str(config))
    command += python_command("labgrid.remote.exporter", *options, interpreter=(str(labgrid_python(say)),))
    started = False
    while True:
        try:
            with Service(
                "the exporter", command, log=logs / "exporter.log", health="^Exporter ready", error=ProvisionError
            ) as exporter:
                _create_places(address, host, offers, logs, say)
                started = True
                say(f"{len(offers)} boards are offered to {address} as {host.name}; Ctrl-C ends it")
                while exporter.running:
                    check()
                    time.sleep(_POLL)
            reason = "the exporter has exited"
        except ProvisionError as error:
            check()
            if not started:
                raise
            reason = error.message.partition(";")[0]
        say(f"{reason}; restarting it")
        time.sleep(_RESTART_DELAY)


def _create_places(
    address: str, host: Host, offers: Sequence[OfferedBoard], logs: Path, say: Callable[[str], None]
) -> None:
    with FarmClient(address, logs / "labgrid.log", say) as farm:
        for offer in offers:
            tags = {"board": offer.board.name, "kind": offer.board.kind, "host": host.name, "cpu": offer.cpu}
            tags |= {"utvm_bad_after": str(host.bad_after), "utvm_well_after": str(host.well_after)}
            # With the host's name: */PLACE/* would match other hosts' resources.
            match = f"{host.name}/{offer.place}/*"
            farm.call("offer", place=offer.place, match=match, tags={**tags, "serial": offer.board.serial})


def _resources(host: Host, offer: OfferedBoard) -> dict[str, dict[str, object]]:
    board = {"board": offer.board.name, "kind": offer.board.kind, "serial": offer.board.serial}
    folders = {"checkout": str(ROOT), "work": str(cache_root() / "checkouts")}
    ssh = {"address": host.address, "username": getpass.getuser(), "port": host.port}
    return {"board": {"cls": "UtvmBoard", **board, **folders}, "ssh": {"cls": "NetworkService", **ssh}}
