# SPDX-License-Identifier: Apache-2.0
"""Two FIFOs as a transport: OpenOCD serves them in place of a TCP port where a service's name is a path."""

import os
import select
import tempfile
import time
from pathlib import Path

from utvm.base.process.service import Closing
from utvm.errors import TransportError

_CHUNK = 1 << 16
_TIMEOUT = 10.0  # Seconds in which the other end must take what is written.


class Fifos(Closing):
    """A :class:`utvm.session.transport.Transport`; nobody else of this computer reaches it.

    OpenOCD 0.12 reads from the path, once its service is started, and writes to the path with an ``o`` behind it.

    Attributes:
        path: name of the service for OpenOCD.
    """

    def __init__(self) -> None:
        self._output = -1
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="utvm-")
            self.path = Path(self._folder.name, "channel")
            answers = Path(f"{self.path}o")
            for path in (self.path, answers):
                os.mkfifo(path, 0o600)
            # A writer would wait for its reader.
            self._input = os.open(answers, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise TransportError(f"no FIFOs can be made: {error}", "set TMPDIR to a folder on a disk") from error

    def connect(self) -> None:
        """Connect to the service, which has been started: OpenOCD waits for a first byte, and hands it on."""
        try:
            self._output = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise TransportError(f"OpenOCD does not serve {self.path}: {error.strerror}") from error
        self.write(b"\0")

    def close(self) -> None:
        """Close both and remove them. Safe to call again."""
        for end in (self._input, self._output):
            if end >= 0:
                os.close(end)
        self._input = self._output = -1
        self._folder.cleanup()

    def read(self, timeout: float) -> bytes:
        """Return what has arrived, as soon as anything has; nothing when nothing came in time.

        Args:
            timeout: seconds, at most.
        """
        if not self._wait(self._input, select.POLLIN, timeout):
            return b""
        data = os.read(self._input, _CHUNK)
        if not data:
            raise TransportError("OpenOCD closed the connection")
        return data

    def write(self, data: bytes) -> None:
        """Send all bytes."""
        rest = memoryview(data)
        deadline = time.monotonic() + _TIMEOUT
        while rest:
            if not self._wait(self._output, select.POLLOUT, deadline - time.monotonic()):
                raise TransportError(
                    f"OpenOCD did not take {len(rest)} of {len(data)} bytes within {_TIMEOUT:g} s"
                )
            try:
                rest = rest[os.write(self._output, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise TransportError(f"the connection to OpenOCD broke: {error.strerror}") from error

    def _wait(self, end: int, event: int, timeout: float) -> bool:
        if end < 0:
            raise TransportError("the connection to OpenOCD is closed")
        ready = select.poll()
        ready.register(end, event)
        return bool(ready.poll(max(0.0, timeout) * 1000))
