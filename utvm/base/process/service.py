# SPDX-License-Identifier: Apache-2.0
"""Every process the project starts is born here, watched here, and ended here.

:func:`run` is for tools that end by themselves. :class:`Service` is for what stays: OpenOCD, a virtual board.
:class:`Job` is for what ends by itself while others run beside it: a run of suites on one board of many.
A service keeps its log, is ready once its health line has appeared, and is certainly gone when its ``with`` block
ends: SIGTERM, then SIGKILL to its whole process group; the kernel ends it (``PR_SET_PDEATHSIG``) if we are killed.
"""

import contextlib
import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from utvm.base.process.parent_death import die_with_parent
from utvm.base.process.run import _Spoken, last_lines
from utvm.base.process.watchdog import Watch
from utvm.errors import UtvmError

_LOG = logging.getLogger("utvm.process")


def end_process(process: "subprocess.Popen[bytes]", patience: float) -> None:
    """End a process that leads its own session, and everything it started. Safe to call again.

    Args:
        patience: seconds between SIGTERM and SIGKILL.
    """
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class _Owned:
    """A process that is ours: its output goes to a log, and it is certainly gone when its ``with`` block ends."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        error: type[UtvmError],
        stop_timeout: float,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(word) for word in command]
        self._error = error
        self._stop_timeout = stop_timeout
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id."""
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = 12) -> str:
        """Return the last lines of the log."""
        return last_lines(self.log, lines)

    def stop(self) -> None:
        """End the process and everything it started. Safe to call again."""
        if self._process is not None:
            by_itself = not self.running
            end_process(self._process, self._stop_timeout)
            how = "had ended" if by_itself else "was ended"
            _LOG.info("%s, process %d, %s: %d", self.name, self.pid, how, self._process.returncode)

    def _start(self, stdin: int) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._cwd,
                    stdin=stdin,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # A session of its own: Ctrl-C in the terminal reaches us first, and we end it in order.
                    start_new_session=True,
                    preexec_fn=die_with_parent(),  # noqa: PLW1509  two system calls, no locks
                )
        except FileNotFoundError as cause:
            raise self._error(
                f"{self._command[0]} is not installed", "run ./inv doctor to see what is missing"
            ) from cause
        except OSError as cause:
            raise self._error(f"{self.name} cannot be started: {cause.strerror or cause}") from cause
        _LOG.info("%s is process %d: %s", self.name, self.pid, _Spoken(self._command))


class Subprocess(_Owned):
    """A process that ends by itself; where it has not, the end of its ``with`` block ends it.

    Args:
        name: what it is called in messages.
        command: its command line.
        log: file that receives its standard output and standard error.
        error: the error raised when it cannot be started.
        cwd: its working directory.
        stop_timeout: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        error: type[UtvmError],
        cwd: Path | None = None,
        stop_timeout: float = 2.0,
    ) -> None:
        super().__init__(name, command, log, error, stop_timeout, cwd)

    def __enter__(self) -> "Subprocess":
        self._start(subprocess.DEVNULL)
        return self

    @property
    def exit_code(self) -> int:
        """What it ended with; negative: the signal that ended it."""
        if self._process is None or self._process.poll() is None:
            raise RuntimeError(f"{self.name} has not ended")
        return self._process.returncode

    def ask_to_end(self) -> None:
        """Send SIGTERM and do not wait."""
        if self._process is not None:
            self._process.terminate()


class Service(_Owned):
    """A process that stays until its ``with`` block ends.

    Args:
        name: what it is called in messages.
        command: its command line.
        log: file that receives its standard output and standard error.
        health: regular expression; the service is ready once a line of the log matches it.
        error: the error raised when it does not become ready, or has ended early.
        start_timeout: seconds until the health line must have appeared.
        stop_timeout: seconds between SIGTERM and SIGKILL.
        stdin: text handed to it on standard input.
        says: the branch of our log that gets its lines as well, whenever it is looked after; by default none.
        restless: it never rests, so that it hangs where it uses no processor time.
        disturbed: it rests, but reads its standard input: an empty line each second shows whether it hangs.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        health: str,
        error: type[UtvmError],
        hint: str = "",
        start_timeout: float = 60.0,
        stop_timeout: float = 2.0,
        stdin: str | None = None,
        says: str = "",
        restless: bool = False,
        disturbed: bool = False,
    ) -> None:
        super().__init__(name, command, log, error, stop_timeout)
        self._says = logging.getLogger(says) if says else None
        self._lines_told = 0
        self._restless = restless
        self._disturbed = disturbed
        self._watch: Watch | None = None
        self._health = re.compile(health)
        self._hint = hint
        self._start_timeout = start_timeout
        self._stdin = stdin
        self.health_match: re.Match[str] | None = None

    def __enter__(self) -> "Service":
        self._start(subprocess.PIPE if self._stdin is not None else subprocess.DEVNULL)
        assert self._process
        try:
            self._hand_over_stdin()
            disturb = self._disturb if self._disturbed else None
            self._watch = Watch(self._process, restless=self._restless, disturb=disturb)
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        self._tell()
        return self

    def stop(self) -> None:
        """End the process and everything it started. Safe to call again."""
        if self._watch is not None:
            self._watch.close()
        super().stop()
        self._tell()

    def ask(self, number: signal.Signals, answer: str, timeout: float = 60.0) -> None:
        """Send a signal and wait for what the process says to it.

        Args:
            answer: regular expression; a line of the log that was not there before must match it.
            timeout: seconds.
        """
        seen = len(self._lines())
        self.check()
        os.kill(self.pid, number)
        deadline = time.monotonic() + timeout
        while not any(re.search(answer, line) for line in self._lines()[seen:]):
            self.check()
            if time.monotonic() > deadline:
                raise self._error(
                    f"{self.name} did not answer {number.name} in {timeout:g} s; its log {self.log} ends with:\n"
                    + self.log_tail(),
                    self._hint,
                )
            time.sleep(0.005)

    def check(self) -> None:
        """Raise the service's error if it has ended."""
        self._tell()
        if not self.running:
            code = self._process.returncode if self._process else None
            hung = self._watch.found if self._watch else ""
            raise self._error(
                f"{self.name} ended unexpectedly ({hung or f'exit code {code}'}); its log {self.log} ends with:\n"
                + self.log_tail(),
                self._hint,
            )

    def _lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]

    def _tell(self) -> None:
        """Hand on to our log what the process has said meanwhile."""
        if self._says is None or not self._says.isEnabledFor(logging.DEBUG):
            return
        # It may not be there yet, or too many files may be open: no reason to take the process for dead.
        with contextlib.suppress(OSError):
            lines = self._lines()
            for line in lines[self._lines_told :]:
                self._says.debug("%s", line)
            self._lines_told = len(lines)

    def _hand_over_stdin(self) -> None:
        if self._stdin is None or self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(self._stdin.encode())
            self._process.stdin.flush()
            if not self._disturbed:
                self._process.stdin.close()

    def _disturb(self) -> None:
        # It may have closed it, or just have ended.
        assert self._process and self._process.stdin
        with contextlib.suppress(OSError, ValueError):
            os.write(self._process.stdin.fileno(), b"\n")

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            # Read the state before the log: a process that ends after its health line was still healthy.
            running = self.running
            for line in self._lines():
                self.health_match = self._health.search(line)
                if self.health_match:
                    return
            if not running:
                self.check()
            if time.monotonic() > deadline:
                raise self._error(
                    f"{self.name} was not ready after {self._start_timeout:g} s; its log {self.log} ends with:\n"
                    + self.log_tail(),
                    self._hint,
                )
            time.sleep(0.01)
