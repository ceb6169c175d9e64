# SPDX-License-Identifier: Apache-2.0
"""Access for one user only: to labgrid's coordinator, and through ssh to a port of another computer.

gRPC accepts every connection, so the coordinator listens on a Unix socket that no other user reaches. It tells
clients apart by their addresses, which Unix sockets only have where they are bound; so each connection to it is.
"""

import asyncio
import contextlib
import itertools
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from utvm.base.process import service
from utvm.base.process.peer import OwnerOnlySocket

_CHUNK = 1 << 16


class CoordinatorProxy:
    """Forwards connections to a Unix socket, for the length of a ``with`` block.

    Args:
        listener: accepts connections.
        path: of the socket, in a folder that only this user can enter.
    """

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="farm door", daemon=True)

    def __enter__(self) -> "CoordinatorProxy":
        self._thread.start()
        starting = asyncio.start_server(self._forward, sock=self._listener)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        self._loop.close()

    def _end(self) -> None:
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_soon(self._loop.stop)

    async def _forward(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        name = self._path.with_name(f"client-{next(self._numbers)}")
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.bind(str(name))
            connection.connect(str(self._path))
            far, there = await asyncio.open_unix_connection(sock=connection)
        except OSError:
            connection.close()
            back.close()
            return
        finally:
            name.unlink(missing_ok=True)
        try:
            await asyncio.gather(_copy(near, there), _copy(far, back))
        finally:
            there.close()
            back.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    target.close()


class SshTunnel:
    """A local port that leads to a port of another computer, for this user only; one ssh for each connection.

    ssh's own ``-L`` serves every user of this computer.

    Args:
        login: the ssh command; its last word is the other computer.
        port: TCP port there.

    Attributes:
        port: TCP port here.
    """

    def __init__(self, login: Sequence[str], port: int) -> None:
        self._command = [*login[:-1], f"-W127.0.0.1:{port}", login[-1]]
        self._running: list[subprocess.Popen[bytes]] = []
        self._listener = OwnerOnlySocket.listen_on("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="ssh forward", daemon=True)

    def __enter__(self) -> "SshTunnel":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone would not wake a thread that waits in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for ssh in self._running:
            service.end_process(ssh, 2.0)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    ssh = subprocess.Popen(
                        self._command,
                        stdin=connection.fileno(),
                        stdout=connection.fileno(),
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                self._running = [*(process for process in self._running if process.poll() is None), ssh]
