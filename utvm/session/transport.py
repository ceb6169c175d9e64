# SPDX-License-Identifier: Apache-2.0
"""Pipes of bytes between this computer and a board, or what stands for one.

A serial line is a :class:`utvm.probe.console.Console`; :class:`ChildProcess` is a program on this computer that
talks
on its standard input and output.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from utvm.base.process.parent_death import die_with_parent
from utvm.base.process.run import last_lines
from utvm.base.process.service import end_process
from utvm.base.process.watchdog import Watch
from utvm.errors import TransportError

_CHUNK = 1 << 16
_INBOX_LIMIT = 1 << 20  # Bytes read ahead while a child takes none.
_LAST_MOMENTS = 1.0  # Seconds between a child's last byte and its exit.


class Transport(Protocol):
    """A pipe of bytes, both ways."""

    def read(self, timeout: float) -> bytes:
        """Return what has arrived, as soon as anything has; nothing when nothing came in ``timeout`` seconds."""

    def write(self, data: bytes) -> None:
        """Send all bytes, in bounded time."""

    def close(self) -> None:
        """Close the pipe. Safe to call again."""


class ChildProcess:
    """A program's standard input and output as a transport.

    Entering starts it; leaving, or :meth:`close`, ends it for certain: SIGTERM first, SIGKILL to all that it
    started when that is ignored. The kernel ends it when the thread that started it ends, so enter it from one
    that stays.

    Args:
        name: what it is called in messages.
        command: its command line.
        log: file that receives its standard error.
        stop_timeout: seconds between SIGTERM and SIGKILL.
        write_timeout: seconds in which it must read what is written to it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        stop_timeout: float = 2.0,
        write_timeout: float = 10.0,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(word) for word in command]
        self._stop_timeout = stop_timeout
        self._write_timeout = write_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: Watch | None = None
        self._stdin = self._stdout = -1
        self._inbox = bytearray()
        self._ended = False

    def __enter__(self) -> "ChildProcess":
        """Begin."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    # A session of its own: Ctrl-C in the terminal reaches us first, and we end it in order.
                    start_new_session=True,
                    preexec_fn=die_with_parent(),  # noqa: PLW1509  two system calls, no locks
                )
        except OSError as error:
            raise TransportError(f"{self.name}: {self._command[0]} cannot be started: {error.strerror}") from error
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._watch = Watch(self._process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it started. Safe to call again."""
        if self._watch is not None:
            self._watch.close()
        if self._process is not None:
            end_process(self._process, self._stop_timeout)
            self._stdin = self._stdout = -1

    @property
    def pid(self) -> int:
        """Process id."""
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process.pid

    def read(self, timeout: float) -> bytes:
        """Return what it has printed, as soon as there is anything; nothing when nothing came in time.

        Args:
            timeout: seconds, at most.
        """
        if not self._inbox:
            # Its state first: what a process printed just before its end is still to come. The end of its output
            # alone is not enough to go by, since a process that it left behind may hold the pipe open.
            running = self._running()
            if not self._wait(max(0.0, timeout), write=False) and not running:
                raise self._broken()
            self._read_available()
        data = bytes(self._inbox)
        self._inbox.clear()
        if not data and self._ended:
            raise self._broken()
        return data

    def write(self, data: bytes) -> None:
        """Hand bytes to its standard input."""
        if not self._running():
            raise self._broken()
        rest = memoryview(data)
        deadline = time.monotonic() + self._write_timeout
        while rest:
            left = deadline - time.monotonic()
            if left <= 0 or not self._wait(left, write=True):
                raise TransportError(
                    f"{self.name} did not read {len(rest)} of {len(data)} bytes within {self._write_timeout:g} s",
                    f"its log is {self.log}",
                )
            # It may wait for us to read before it reads on.
            self._read_available()
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._broken() from error

    def _running(self) -> bool:
        if self._stdin < 0 or self._process is None:
            raise TransportError(f"{self.name} is not running: it is closed or has not been started")
        return self._process.poll() is None

    def _wait(self, timeout: float, *, write: bool) -> bool:
        """Wait until there is something to read, or also room to write, and return whether there is."""
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

    def _broken(self) -> TransportError:
        assert self._process and self._watch
        try:
            code = self._process.wait(_LAST_MOMENTS)
        except subprocess.TimeoutExpired:
            what = "closed its standard input or output"
        else:
            ended = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
            what = f"was ended: {self._watch.found}" if self._watch.found else ended
        words = last_lines(self.log)
        return TransportError(f"{self.name} {what}" + (f"; its log ends with:\n{words}" if words else ""))
