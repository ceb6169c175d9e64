# SPDX-License-Identifier: Apache-2.0
"""Processes: tools that run to completion and return their output, and long-running services.

A service is started and supervised. Leaving its ``with`` block sends SIGTERM, then SIGKILL to the whole process
group. If utvm itself is killed, the kernel ends the process (``PR_SET_PDEATHSIG``).
"""

import contextlib
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from utvm.base.process import signals
from utvm.base.storage.files import UnsafeFileError, open_regular
from utvm.errors import UtvmError

_LOG = logging.getLogger("utvm.process")


def last_lines(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log; empty if it cannot be read."""
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def run_tool(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float = 300.0,
    error: type[UtvmError] = UtvmError,
    hint: str = "",
    temporary: Path | None = None,
    exit_meanings: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """Run a tool to completion, for at most ``timeout`` seconds, and return its standard output.

    Args:
        error: raised if the tool is missing, fails or times out.
        temporary: folder for the tool's temporary files, instead of the system's.
        exit_meanings: error messages by exit code.
    """
    words = [str(word) for word in command]
    _LOG.debug("running %s", shlex.join(words))
    try:
        process = subprocess.run(
            words,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env={**os.environ, "TMPDIR": str(temporary)} if temporary else None,
        )
    except FileNotFoundError as cause:
        raise error(f"{words[0]} is not installed", "run ./inv doctor to see what is missing") from cause
    except OSError as cause:
        raise error(f"{words[0]} cannot be started: {cause.strerror or cause}", hint) from cause
    except subprocess.TimeoutExpired as cause:
        raise error(f"{words[0]} did not end within {timeout:g} s", hint) from cause
    if process.returncode != 0:
        _LOG.info("%s ended with exit code %d", words[0], process.returncode)
        output = (process.stderr or process.stdout).strip()
        failure = exit_meanings.get(process.returncode, f"failed with exit code {process.returncode}")
        raise error(f"{Path(words[0]).name} {failure}:\n{output}", hint)
    return process.stdout


def version_of(
    command: Sequence[str | Path], *, error: type[UtvmError], timeout: float = 300.0, pattern: str = ""
) -> str:
    """Return the version of a tool: the group of a pattern, or the first line of its output."""
    output = run_tool(command, error=error, timeout=timeout).strip()
    if not output:
        raise error(f"{command[0]} does not report its version", "is it the right program?")
    match = re.search(pattern, output) if pattern else None
    return match[1] if match else output.splitlines()[0]


def clean_environment(variables: Mapping[str, str]) -> Sequence[str]:
    """Return a command prefix that passes only these environment variables.

    For reproducible builds: a package's script may depend on any variable.
    """
    return (
        *("env", "--ignore-environment", "HOME=/root"),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        *(f"{name}={value}" for name, value in variables.items()),
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_ClosingT = TypeVar("_ClosingT", bound="Closing")
_ServiceT = TypeVar("_ServiceT", bound="Service")


class Closing:
    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _ClosingT) -> _ClosingT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_INTERVAL = 1.0  # Seconds. Checks are counted, since a sleeping or busy computer makes fewer.
STOPPED_LOOKS = 5
"""A process that is stopped in this many checks, a second apart, counts as hung."""
_IDLE_CHECKS = 12


class Watchdog:
    """Kills a hung process: stopped by a signal for 5 s, or idle for 12 s although it should be busy.

    It checks the process state, so a busy computer makes no difference.
    Args:
        always_busy: the process always uses processor time; OpenOCD polls its target ten times a second.
            With ``poke``, which is called each second and gives it work, this is implied.

    Attributes:
        reason: why the process was killed, or empty.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", *, always_busy: bool = False, poke: Callable[[], None] | None = None
    ) -> None:
        self.reason = ""
        self._process = process
        self._always_busy = always_busy or poke is not None
        self._poke = poke or (lambda: None)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watch-{process.pid}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        stopped = idle = 0
        spent = None
        while not self._over.wait(_INTERVAL) and self._process.returncode is None:
            stopped = stopped + 1 if is_stopped(self._process.pid) else 0
            before, spent = spent, _processor_time(self._process.pid)
            self._poke()
            idle = idle + 1 if spent is not None and spent == before else 0
            if stopped >= STOPPED_LOOKS:
                self._kill("it was stopped by a signal and did not go on")
            elif self._always_busy and idle >= _IDLE_CHECKS:
                self._kill("it used no processor time")

    def _kill(self, reason: str) -> None:
        self.reason = f"it hung: {reason}"
        self._process.send_signal(signal.SIGKILL)
        self._over.set()


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _processor_time(pid: int) -> int | None:
    try:
        return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    except (OSError, ValueError, IndexError):
        return None


_STDIN = (subprocess.PIPE, subprocess.DEVNULL)


def end_process(process: "subprocess.Popen[bytes]", patience: float) -> None:
    """End a session leader, by force after ``patience`` seconds, and all it started. Safe to call again."""
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


@dataclass(eq=False)
class OwnedProcess:
    """A process with its output in a log; it ends with its ``with`` block."""

    name: str
    command: Sequence[str | Path]
    _: KW_ONLY
    log: Path
    error: type[UtvmError]
    cwd: Path | None = None
    stop_timeout: float = 2.0
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = 12) -> str:
        return last_lines(self.log, lines)

    def stop(self) -> None:
        """End the process and everything it started. Safe to call again."""
        if self._process is not None:
            by_itself = not self.running
            end_process(self._process, self.stop_timeout)
            how = "had ended" if by_itself else "was ended"
            _LOG.info("%s, process %d, %s: %d", self.name, self.pid, how, self._process.returncode)

    def _start(
        self,
        stdin: str | socket.socket | None = None,
        stdout: int | None = None,
        inherited: Sequence[socket.socket] = (),
    ) -> "subprocess.Popen[bytes]":
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [str(word) for word in self.command]
        try:
            with open(self.log, "wb", opener=open_regular) as log:
                self._process = subprocess.Popen(
                    command,
                    cwd=self.cwd,
                    stdin=stdin.fileno() if isinstance(stdin, socket.socket) else _STDIN[stdin is None],
                    stdout=log if stdout is None else stdout,
                    stderr=log,
                    pass_fds=[end.fileno() for end in inherited],
                    # Its own session: Ctrl-C reaches only us, and we end it in order.
                    start_new_session=True,
                    preexec_fn=signals.die_with_parent(),  # noqa: PLW1509  two system calls, no locks
                )
        except FileNotFoundError as cause:
            raise self.error(f"{command[0]} is not installed", "run ./inv doctor to see what is missing") from cause
        except UnsafeFileError as cause:
            raise self.error(f"{self.log}: {cause.strerror}", cause.hint) from cause
        except OSError as cause:
            raise self.error(f"{self.name} cannot be started: {cause.strerror or cause}") from cause
        _LOG.info("%s is process %d: %s", self.name, self.pid, shlex.join(command))
        return self._process


class Subprocess(OwnedProcess):
    """A process that exits by itself; the end of its ``with`` block ends it if it still runs."""

    def __enter__(self) -> "Subprocess":
        self._start()
        return self

    @property
    def exit_code(self) -> int:
        """Exit status; negative: the signal that ended it."""
        if self._process is None or self._process.poll() is None:
            raise RuntimeError(f"{self.name} has not ended")
        return self._process.returncode

    def ask_to_end(self) -> None:
        """Send SIGTERM and do not wait."""
        if self._process is not None:
            self._process.terminate()


@dataclass(eq=False)
class Service(OwnedProcess):
    """A process that runs until its ``with`` block ends.

    Attributes:
        health: regular expression; the service is ready once a log line matches it, or at once if empty.
        hints: hint of an error by a pattern of the log; the first match applies, else ``hint``.
        stdin: text for its standard input, or a socket that becomes it.
        inherited: sockets inherited under their numbers; all are closed here once it runs.
        log_branch: logger that also gets its lines.
        always_busy: it never sleeps: no processor time means that it hangs.
        poke_stdin: send an empty line to its standard input each second, which keeps it busy.
    """

    _: KW_ONLY
    health: str
    hint: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 60.0
    stdin: str | socket.socket | None = None
    stdout: socket.socket | None = None
    inherited: Sequence[socket.socket] = ()
    log_branch: str = ""
    always_busy: bool = False
    poke_stdin: bool = False
    health_match: re.Match[str] | None = field(default=None, init=False)
    _lines_copied: int = field(default=0, init=False)
    _watch: Watchdog | None = field(default=None, init=False)

    def __enter__(self: _ServiceT) -> _ServiceT:
        with contextlib.ExitStack() as sockets:
            for end in (self.stdin, self.stdout, *self.inherited):
                if isinstance(end, socket.socket):
                    sockets.enter_context(end)
            process = self._start(self.stdin, self.stdout.fileno() if self.stdout else None, self.inherited)
        try:
            self._hand_over_stdin()
            poke = self._write_empty_line if self.poke_stdin else None
            self._watch = Watchdog(process, always_busy=self.always_busy, poke=poke)
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        self._copy_lines()
        return self

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.close()
        super().stop()
        self._copy_lines()

    def send_and_wait(self, number: signal.Signals, answer: str, timeout: float = 60.0) -> None:
        """Send a signal and wait for a new log line that matches ``answer``."""
        lines_before = len(self._lines())
        self.check()
        os.kill(self.pid, number)
        deadline = time.monotonic() + timeout
        while not any(re.search(answer, line) for line in self._lines()[lines_before:]):
            self.check()
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer {number.name} in {timeout:g} s")
            time.sleep(0.005)

    def check(self) -> None:
        """Raise the service's error if the process has ended."""
        self._copy_lines()
        if not self.running:
            code = self._process.returncode if self._process else None
            hung = self._watch.reason if self._watch else ""
            raise self._failure(f"ended unexpectedly ({hung or f'exit code {code}'})")

    def _failure(self, event: str) -> UtvmError:
        log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        hint = next((hint for pattern, hint in self.hints.items() if re.search(pattern, log)), self.hint)
        return self.error(f"{self.name} {event}; its log {self.log} ends with:\n{self.log_tail()}", hint)

    def _lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]

    def _copy_lines(self) -> None:
        branch = logging.getLogger(self.log_branch)
        if not self.log_branch or not branch.isEnabledFor(logging.DEBUG):
            return
        # The log may not exist yet, or too many files may be open; neither means that the process ended.
        with contextlib.suppress(OSError):
            lines = self._lines()
            for line in lines[self._lines_copied :]:
                branch.debug("%s", line)
            self._lines_copied = len(lines)

    def _hand_over_stdin(self) -> None:
        if not isinstance(self.stdin, str) or self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(self.stdin.encode())
            self._process.stdin.flush()
            if not self.poke_stdin:
                self._process.stdin.close()

    def _write_empty_line(self) -> None:
        # The process may have closed it, or just ended.
        assert self._process and self._process.stdin
        with contextlib.suppress(OSError, ValueError):
            os.write(self._process.stdin.fileno(), b"\n")

    def _wait_until_healthy(self) -> None:
        if not self.health:
            return
        deadline = time.monotonic() + self.start_timeout
        while True:
            # Read the state before the log: a process that ends after its health line was still healthy.
            running = self.running
            for line in self._lines():
                self.health_match = re.search(self.health, line)
                if self.health_match:
                    return
            if not running:
                self.check()
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready after {self.start_timeout:g} s")
            time.sleep(0.01)
