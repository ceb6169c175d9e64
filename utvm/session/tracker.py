# SPDX-License-Identifier: Apache-2.0
"""A server's registration with a TVM RPC tracker, which hands out servers by key.

The server leaves a random match key with the tracker; a client who asks for the key is given it, and shows it to
the server. A match key is good for one client (TVM's ``python/tvm/rpc/server.py`` and ``tracker.py``).
"""

import contextlib
import json
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from utvm.errors import TransportError

_MAGIC = 0x2F271
_TIMEOUT = 5.0  # Seconds that the tracker may take for anything.
_ANSWER_LIMIT = 1 << 20
_UNUSED_PERIODS = 3  # A match key that was handed out and not used for longer is replaced.


class _Code(IntEnum):
    SUCCESS = 0
    PUT = 3
    UPDATE_INFO = 5
    PENDING_MATCH_KEYS = 7


class Registration:
    """Keeps a server known to a tracker, with a match key whenever it is free.

    Args:
        address: the tracker's host and TCP port.
        key: what clients ask for.
        port: the server's own TCP port.
        period: seconds between two looks at the tracker.
        log: receives a line about what goes wrong and is tried again.
    """

    def __init__(
        self, address: tuple[str, int], key: str, port: int, *, period: float, log: Callable[[str], None]
    ) -> None:
        self._address = address
        self._name = f"{address[0]}:{address[1]}"
        self._key = key
        self._port = port
        self._period = period
        self._log = log
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._free = True
        self._match_key = ""
        self._stopping = False
        self._known = False  # It has spoken to us as a tracker does.
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Register, and stay registered until :meth:`stop`.

        A tracker that cannot be reached, or is lost, is tried again.
        """
        trouble = ""
        while not self._stopping:
            try:
                with socket.create_connection(self._address, _TIMEOUT) as self._socket:
                    self._introduce()
                    trouble = ""
                    self._stay()
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
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def take(self, match_key: str) -> bool:
        """Return whether a client may come in with this match key; it is used up then."""
        with self._lock:
            if not self._match_key or not secrets.compare_digest(match_key.encode(), self._match_key.encode()):
                return False
            self._match_key = ""
            self._free = False
            return True

    def offer(self) -> None:
        """Tell the tracker that the server is free again."""
        with self._lock:
            self._free = True
        self._changed.set()

    def _pause(self) -> None:
        if not self._stopping:
            self._changed.wait(self._period)
            self._changed.clear()

    def _introduce(self) -> None:
        assert self._socket
        try:
            self._socket.sendall(struct.pack("<i", _MAGIC))
            found = self._read(4)
        except OSError as error:
            if self._known or self._stopping:
                raise
            raise self._not_a_tracker(f"it says nothing ({error})") from error
        if found != struct.pack("<i", _MAGIC):
            raise self._not_a_tracker(f"it answers {found!r}")
        self._known = True
        # None: the tracker takes the address that it sees us come from.
        self._ask([_Code.UPDATE_INFO, {"key": f"server:{self._key}", "addr": [None, self._port]}])

    def _not_a_tracker(self, why: str) -> TransportError:
        return TransportError(f"what listens on {self._name} is not an RPC tracker: {why}", "check the address")

    def _stay(self) -> None:
        unused = 0
        while not self._stopping:
            if self._put_if_free():
                unused = 0
            else:
                pending = self._ask([_Code.PENDING_MATCH_KEYS])
                with self._lock:
                    # Handed out: its client is on the way, or has thought better of it.
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
            # Before the tracker knows it: a client that waits there may be here sooner than the tracker's answer.
            self._match_key = match_key = f"{self._key}:{secrets.token_hex(8)}"
        self._ask([_Code.PUT, self._key, [self._port, match_key], None])
        return True

    def _ask(self, question: list[Any]) -> Any:
        assert self._socket
        data = json.dumps(question).encode()
        self._socket.sendall(struct.pack("<i", len(data)) + data)
        (size,) = struct.unpack("<i", self._read(4))
        if not 0 < size <= _ANSWER_LIMIT:
            raise ValueError(f"it announced an answer of {size} bytes")
        answer = json.loads(self._read(size))
        if question[0] == _Code.PENDING_MATCH_KEYS:
            if not isinstance(answer, list):
                raise ValueError(f"it answered {answer!r} when asked for match keys")
        elif answer != _Code.SUCCESS:
            raise ValueError(f"it refused {question[0].name} with {answer!r}")
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
