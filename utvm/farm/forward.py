# SPDX-License-Identifier: Apache-2.0
"""A port of this computer that leads to one of another computer by ssh, and is for this process's user only.

ssh's own ``-L`` serves every user of this computer, and the other one takes them for the user who is logged in.
"""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType

from utvm.base.process import service
from utvm.base.process.peer import OwnerOnlySocket


class Forward:
    """Such a port, for the length of a ``with`` block: each connection is an ssh of its own.

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

    def __enter__(self) -> "Forward":
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
                self._running = [*(each for each in self._running if each.poll() is None), ssh]
