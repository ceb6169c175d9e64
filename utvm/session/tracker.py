# SPDX-License-Identifier: Apache-2.0
"""Registration with a TVM RPC tracker, which assigns servers to clients by key.

The server gives the tracker a random match key. A client that requests the server's key receives it and presents
it to the server. A match key is valid for one client (TVM's ``python/tvm/rpc/server.py`` and ``tracker.py``).
"""

import contextlib
import json
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

from utvm.errors import TransportError

_MAGIC = 0x2F271
_TIMEOUT = 5.0  # Seconds per reply of the tracker.
_ANSWER_LIMIT = 1 << 20
_UNUSED_PERIODS = 3  # An assigned match key that stays unused longer is replaced.


class _Code(IntEnum):
    SUCCESS = 0
    PUT = 3
    UPDATE_INFO = 5
    PENDING_MATCH_KEYS = 7


class Registration:
    """Keeps a server registered with a tracker, with a match key whenever it is free.

    Args:
        address: the tracker's host and TCP port, or the path of its socket.
        port: TCP port of the server.
        period: seconds between two polls of the tracker.
        log: called with a message for each error that is retried.
    """

    def __init__(
        self, address: tuple[str, int] | Path, key: str, port: int, *, period: float, log: Callable[[str], None]
    ) -> None:
        self._address = address
        self._name = f"unix:{address}" if isinstance(address, Path) else f"{address[0]}:{address[1]}"
        self._key = key
        self._port = port
        self._period = period
        self._log = log
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._free = True
        self._match_key = ""
        self._stopping = False
        self._known = False  # It completed the handshake once.
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Register and stay registered until :meth:`stop`, retrying if the tracker is unreachable or lost."""
        trouble = ""
        while not self._stopping:
            try:
                with _connect(self._address) as self._socket:
                    self._register()
                    trouble = ""
                    self._keep_registered()
            except (OSError, ValueError) as error:
                if not self._stopping and str(error) != trouble:
                    trouble = str(error)
                    self._log(f"tracker {self._name}: {trouble}; trying again every {self._period:g} s")
            finally:
                with self._lock:
                    self._match_key = ""
            self._pause()

    def stop(self) -> None:
        """End :meth:`run` from another thread."""
        self._stopping = True
        self._changed.set()
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def take(self, match_key: str) -> bool:
        """Return True if a client's match key is valid, and invalidate it."""
        with self._lock:
            if not self._match_key or not secrets.compare_digest(match_key.encode(), self._match_key.encode()):
                return False
            self._match_key = ""
            self._free = False
            return True

    def offer(self) -> None:
        """Mark the server as free and notify the tracker."""
        with self._lock:
            self._free = True
        self._changed.set()

    def _pause(self) -> None:
        if not self._stopping:
            self._changed.wait(self._period)
            self._changed.clear()

    def _register(self) -> None:
        assert self._socket
        try:
            self._socket.sendall(struct.pack("<i", _MAGIC))
            magic = self._read(4)
        except OSError as error:
            if self._known or self._stopping:
                raise
            raise self._not_a_tracker(f"it does not reply ({error})") from error
        if magic != struct.pack("<i", _MAGIC):
            raise self._not_a_tracker(f"it answers {magic!r}")
        self._known = True
        # With None, the tracker uses the address of the connection.
        self._ask([_Code.UPDATE_INFO, {"key": f"server:{self._key}", "addr": [None, self._port]}])

    def _not_a_tracker(self, why: str) -> TransportError:
        return TransportError(f"the server at {self._name} is not an RPC tracker: {why}", "check the address")

    def _keep_registered(self) -> None:
        unused = 0
        while not self._stopping:
            if self._put_if_free():
                unused = 0
            else:
                pending = self._ask([_Code.PENDING_MATCH_KEYS])
                with self._lock:
                    # Assigned: its client is connecting or has given up.
                    handed_out = bool(self._match_key) and self._match_key not in pending
                    unused = unused + 1 if handed_out else 0
                    if unused > _UNUSED_PERIODS:
                        self._match_key = ""
                        continue
            self._pause()

    def _put_if_free(self) -> bool:
        with self._lock:
            if not self._free or self._match_key:
                return False
            # Set before the request: a waiting client may connect before the tracker's reply arrives.
            self._match_key = match_key = f"{self._key}:{secrets.token_hex(8)}"
        self._ask([_Code.PUT, self._key, [self._port, match_key], None])
        return True

    def _ask(self, request: list[Any]) -> Any:
        assert self._socket
        data = json.dumps(request).encode()
        self._socket.sendall(struct.pack("<i", len(data)) + data)
        (size,) = struct.unpack("<i", self._read(4))
        if not 0 < size <= _ANSWER_LIMIT:
            raise ValueError(f"it announced an answer of {size} bytes")
        answer = json.loads(self._read(size))
        if request[0] == _Code.PENDING_MATCH_KEYS:
            if not isinstance(answer, list):
                raise ValueError(f"it answered {answer!r} when asked for match keys")
        elif answer != _Code.SUCCESS:
            raise ValueError(f"it refused {request[0].name} with {answer!r}")
        return answer

    def _read(self, size: int) -> bytes:
        assert self._socket
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("it closed the connection")
            data += part
        return data


def _connect(address: tuple[str, int] | Path) -> socket.socket:
    if not isinstance(address, Path):
        return socket.create_connection(address, _TIMEOUT)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_TIMEOUT)
        connection.connect(str(address))
    except BaseException:
        connection.close()
        raise
    return connection
