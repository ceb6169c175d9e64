# SPDX-License-Identifier: Apache-2.0
"""Byte streams to a board: a process, a TCP connection, FIFOs; see also :class:`utvm.probe.console.Console`."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from utvm.base.process import Closing, OwnedProcess, Watchdog
from utvm.errors import TransportError, UtvmError

_CHUNK = 1 << 16
_INBOX_LIMIT = 1 << 20  # Bytes read ahead while a child does not read.
_LAST_MOMENTS = 1.0  # Maximum seconds between a child's last byte and its exit.


class Transport(Protocol):
    """A bidirectional byte stream."""

    def read(self, timeout: float) -> bytes:
        """Return received bytes as soon as there are any; empty after ``timeout`` seconds."""

    def write(self, data: bytes) -> None:
        """Send all bytes, in bounded time."""

    def close(self) -> None:
        """Close the pipe. Safe to call again."""


@dataclass(frozen=True)
class Wire:
    """A connected board: its byte stream, and a function that resets the board and lets it run."""

    transport: Transport
    restart: Callable[[], None]


@dataclass(eq=False)
class ChildProcess(OwnedProcess):
    """A program's standard input and output as a transport, with standard error in a log file.

    Entering starts it; leaving or :meth:`close` ends it: SIGTERM first, after ``stop_timeout`` seconds SIGKILL to
    all its processes. The kernel ends it with the thread that started it, so enter it from one that lives on. It
    must read written bytes within ``write_timeout`` seconds.
    """

    error: type[UtvmError] = field(default=TransportError, kw_only=True)
    write_timeout: float = field(default=10.0, kw_only=True)
    _watch: Watchdog | None = field(default=None, init=False)
    _stdin: int = field(default=-1, init=False)
    _stdout: int = field(default=-1, init=False)
    _inbox: bytearray = field(default_factory=bytearray, init=False)
    _ended: bool = field(default=False, init=False)

    def __enter__(self) -> "ChildProcess":
        process = self._start(stdin="", stdout=subprocess.PIPE)
        assert process.stdin and process.stdout
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._watch = Watchdog(process)
        return self

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.close()
        super().stop()
        self._stdin = self._stdout = -1

    def close(self) -> None:
        self.stop()

    def read(self, timeout: float) -> bytes:
        if not self._inbox:
            # Check first if it runs: output printed just before its exit may still arrive. End of file alone is
            # not sufficient, since a process that it left behind may hold the pipe open.
            running = self._is_running()
            if not self._wait(max(0.0, timeout), write=False) and not running:
                raise self._exit_error()
            self._read_available()
        data = bytes(self._inbox)
        self._inbox.clear()
        if not data and self._ended:
            raise self._exit_error()
        return data

    def write(self, data: bytes) -> None:
        if not self._is_running():
            raise self._exit_error()
        rest = memoryview(data)
        deadline = time.monotonic() + self.write_timeout
        while rest:
            left = deadline - time.monotonic()
            if left <= 0 or not self._wait(left, write=True):
                raise TransportError(
                    f"{self.name} did not read {len(rest)} of {len(data)} bytes within {self.write_timeout:g} s",
                    f"its log is {self.log}",
                )
            # It may block until its own output is read.
            self._read_available()
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._exit_error() from error

    def _is_running(self) -> bool:
        if self._stdin < 0:
            raise TransportError(f"{self.name} is not running: it is closed or has not been started")
        return self.running

    def _wait(self, timeout: float, *, write: bool) -> bool:
        """Wait until output can be read, or with ``write`` also until input can be written; False on timeout."""
        ready = select.poll()
        if not self._ended and len(self._inbox) < _INBOX_LIMIT:
            ready.register(self._stdout, select.POLLIN)
        if write:
            ready.register(self._stdin, select.POLLOUT)
        elif self._ended:
            return True
        return bool(ready.poll(timeout * 1000))

    def _read_available(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self._ended and len(self._inbox) < _INBOX_LIMIT:
                data = os.read(self._stdout, _CHUNK)
                self._ended = not data
                self._inbox += data

    def _exit_error(self) -> TransportError:
        assert self._process and self._watch
        try:
            code = self._process.wait(_LAST_MOMENTS)
        except subprocess.TimeoutExpired:
            event = "closed its standard input or output"
        else:
            ended = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
            event = f"was ended: {self._watch.reason}" if self._watch.reason else ended
        lines = self.log_tail()
        return TransportError(f"{self.name} {event}" + (f"; its log ends with:\n{lines}" if lines else ""))


class _Descriptors(Closing):
    """A transport over two non-blocking file descriptors, which may be the same."""

    peer: str
    _timeout = 10.0  # Seconds for the peer to read written bytes.
    _input = _output = -1

    def read(self, timeout: float) -> bytes:
        if not self._wait(self._input, select.POLLIN, timeout):
            return b""
        with self._translate_errors(), contextlib.suppress(BlockingIOError):
            data = os.read(self._input, _CHUNK)
            if not data:
                raise TransportError(f"{self.peer} closed the connection")
            return data
        return b""

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        deadline = time.monotonic() + self._timeout
        while rest:
            if not self._wait(self._output, select.POLLOUT, deadline - time.monotonic()):
                raise TransportError(
                    f"{self.peer} did not take {len(rest)} of {len(data)} bytes within {self._timeout:g} s"
                )
            with self._translate_errors(), contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._output, rest) :]

    def _wait(self, descriptor: int, event: int, timeout: float) -> bool:
        if descriptor < 0:
            raise TransportError(f"the connection to {self.peer} is closed")
        ready = select.poll()
        ready.register(descriptor, event)
        if self._output not in {descriptor, -1}:
            # If the peer dies before it opens the input, only writing to it fails.
            ready.register(self._output, 0)
        return bool(ready.poll(max(0.0, timeout) * 1000))

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            raise TransportError(f"the connection to {self.peer} broke: {error}") from error


class TcpConnection(_Descriptors):
    """A connected TCP socket as a transport; the peer has ``timeout`` seconds to read written bytes."""

    def __init__(self, connection: socket.socket, *, timeout: float = 10.0) -> None:
        self.peer = "{}:{}".format(*connection.getpeername())
        self._timeout = timeout
        self._socket = connection
        self._socket.setblocking(False)
        self._input = self._output = connection.fileno()

    def close(self) -> None:
        self._input = self._output = -1
        self._socket.close()


class Fifos(_Descriptors):
    """Two FIFOs as a transport, for an OpenOCD service with a path in place of a TCP port.

    Only this user can open them. OpenOCD 0.12 reads from the path once its service is started, and writes to the
    path with an ``o`` appended. ``path`` is the service's name for OpenOCD.
    """

    peer = "OpenOCD"

    def __init__(self) -> None:
        with TransportError.on(OSError, "cannot create FIFOs:", "set TMPDIR to a folder on a disk"):
            self._folder = tempfile.TemporaryDirectory(prefix="utvm-")
            self.path = Path(self._folder.name, "channel")
            replies = Path(f"{self.path}o")
            for path in (self.path, replies):
                os.mkfifo(path, 0o600)
            # Opening without O_NONBLOCK would wait for a writer.
            self._input = os.open(replies, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def connect(self) -> None:
        """Connect to the started service: OpenOCD waits for a first byte and forwards it."""
        with TransportError.on_os_error(f"OpenOCD does not serve {self.path}"):
            self._output = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.write(b"\0")

    def close(self) -> None:
        for descriptor in {self._input, self._output} - {-1}:
            os.close(descriptor)
        self._input = self._output = -1
        self._folder.cleanup()
