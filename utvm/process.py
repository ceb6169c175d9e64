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
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType, TracebackType

from utvm.errors import UtvmError
from utvm.parent import dying_with_us
from utvm.private import UnsafeFileError, open_regular
from utvm.watch import Watch

_LOG = logging.getLogger("utvm.process")


def end(process: "subprocess.Popen[bytes]", patience: float) -> None:
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


def last_lines(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log; nothing when there is no such file, or none can be opened."""
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


class _Spoken:
    """A command line as one would type it, worked out when it is written."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def __str__(self) -> str:
        return shlex.join(self._words)


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float = 300.0,
    error: type[UtvmError] = UtvmError,
    hint: str = "",
    scratch: Path | None = None,
    meaning: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """Run a tool to its end and return what it printed on standard output.

    Args:
        timeout: seconds; scratch: a folder for the tool's own files meanwhile, in place of the system's.
        error: the error raised when the tool is missing, fails or takes too long.
        meaning: what happened where it ends with one of these exit codes.

    Raises:
        error: with the tool's own last words.
    """
    words = [str(word) for word in command]
    _LOG.debug("running %s", _Spoken(words))
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env={**os.environ, "TMPDIR": str(scratch)} if scratch else None,
        )
    except FileNotFoundError as cause:
        raise error(f"{words[0]} is not installed", "run ./inv doctor to see what is missing") from cause
    except OSError as cause:
        raise error(f"{words[0]} cannot be started: {cause.strerror or cause}", hint) from cause
    except subprocess.TimeoutExpired as cause:
        raise error(f"{words[0]} did not end within {timeout:g} s", hint) from cause
    if done.returncode != 0:
        _LOG.info("%s ended with exit code %d", words[0], done.returncode)
        said = (done.stderr or done.stdout).strip()
        how = meaning.get(done.returncode, f"failed with exit code {done.returncode}")
        raise error(f"{Path(words[0]).name} {how}:\n{said}", hint)
    return done.stdout


def version_of(
    command: Sequence[str | Path], *, error: type[UtvmError], timeout: float = 300.0, pattern: str = ""
) -> str:
    """Return what a tool says of its version: the group that a pattern finds, else the first line.

    Raises:
        error: as :func:`run`; or it says nothing.
    """
    said = run(command, error=error, timeout=timeout).strip()
    if not said:
        raise error(f"{command[0]} says nothing of its version", "is it the program that it should be?")
    found = re.search(pattern, said) if pattern else None
    return found[1] if found else said.splitlines()[0]


def with_nothing_but(variables: Mapping[str, str]) -> Sequence[str]:
    """Return what goes before a command that shall see these environment variables, and none of its caller's.

    For what must come out the same whoever makes it: any package's script may heed any variable.
    """
    return (
        *("env", "--ignore-environment", "HOME=/root"),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        *(f"{name}={value}" for name, value in variables.items()),
    )


def free_port() -> int:
    """Return a TCP port on the loopback interface that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP.

    A class of its own: CPython remembers a plain KeyboardInterrupt that passed through ``exec``, as it does while
    modules are imported, and then ends with the signal whatever exit code was asked for.
    """


# Under nohup, a terminal that is closed is of no concern.
_NOHUP = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
_ENDING = (signal.SIGINT, signal.SIGTERM, *(() if _NOHUP else (signal.SIGHUP,)))
_ONE_WISH = 1.0  # Seconds.
_signals_taken: list[float] = []


def end_in_order_on_signals() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP raise :class:`Interrupted`, so that ``with`` blocks clean up.

    Several within a moment are one: a hurried Ctrl-C, a terminal that is closed. So the second does not interrupt
    what the first has begun. What came before is forgotten: a program may run suites again after it was
    interrupted.
    """
    _signals_taken.clear()
    last = float("-inf")

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        _signals_taken.append(last)
        if last - before > _ONE_WISH:
            raise Interrupted

    for number in _ENDING:
        signal.signal(number, interrupt)


def end_undisturbed() -> None:
    """Ignore Ctrl-C and what else ends us from here on: how the run, or the process, ends is decided.

    Without this, Python gives its handlers back while it ends, and a signal then ends it with an exit code of its
    own; what it does to an ignored signal is nothing. :func:`end_in_order_on_signals` undoes it.
    """
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def only_note_signals() -> None:
    """Let Ctrl-C and what else ends us raise nothing any more: :func:`interrupted` tells of it."""
    for number in _ENDING:
        signal.signal(number, lambda *_: _signals_taken.append(time.monotonic()))


def interrupted() -> bool:
    """Whether such a signal has come since :func:`end_in_order_on_signals`.

    The exception alone does not always tell. While modules are imported it may arrive as another: what comes in a
    ``__set_name__`` Python before 3.12 wraps in RuntimeError. In a callback from C it is lost.
    """
    return bool(_signals_taken)


def stop_if_interrupted() -> None:
    """Go on with an interruption that another exception has taken the place of.

    Raises:
        Interrupted: there has been one.
    """
    if interrupted():
        raise Interrupted


def _descriptor_of(stdin: str | socket.socket | None) -> int:
    if isinstance(stdin, socket.socket):
        return stdin.fileno()
    return subprocess.DEVNULL if stdin is None else subprocess.PIPE


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
        """Process id.

        Raises:
            RuntimeError: it has not been started.
        """
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
            end(self._process, self._stop_timeout)
            how = "had ended" if by_itself else "was ended"
            _LOG.info("%s, process %d, %s: %d", self.name, self.pid, how, self._process.returncode)

    def _start(
        self,
        stdin: str | socket.socket | None = None,
        stdout: socket.socket | None = None,
        inherited: Sequence[socket.socket] = (),
    ) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(self.log, "wb", opener=open_regular) as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._cwd,
                    stdin=_descriptor_of(stdin),
                    stdout=stdout.fileno() if stdout else log,
                    stderr=log,
                    pass_fds=[end.fileno() for end in inherited],
                    # A session of its own: Ctrl-C in the terminal reaches us first, and we end it in order.
                    start_new_session=True,
                    preexec_fn=dying_with_us(),  # noqa: PLW1509  two system calls, no locks
                )
        except FileNotFoundError as cause:
            raise self._error(
                f"{self._command[0]} is not installed", "run ./inv doctor to see what is missing"
            ) from cause
        except UnsafeFileError as cause:
            raise self._error(f"{self.log}: {cause.strerror}", cause.hint) from cause
        except OSError as cause:
            raise self._error(f"{self.name} cannot be started: {cause.strerror or cause}") from cause
        _LOG.info("%s is process %d: %s", self.name, self.pid, _Spoken(self._command))


class Job(_Owned):
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

    def __enter__(self) -> "Job":
        self._start()
        return self

    @property
    def exit_code(self) -> int:
        """What it ended with; negative: the signal that ended it.

        Raises:
            RuntimeError: it has not ended.
        """
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
        log: file that receives its standard output, unless that is a socket, and standard error.
        health: regular expression; the service is ready once a line of the log matches it, without one at once.
        error: the error raised when it does not become ready, or has ended early.
        start_timeout: seconds until the health line must have appeared.
        stop_timeout: seconds between SIGTERM and SIGKILL.
        stdin: text handed to it on standard input, or a socket that becomes that.
        stdout: socket that becomes its standard output.
        inherited: sockets that it has under their numbers. All sockets are closed here once it runs.
        says: the branch of our log that gets its lines as well, whenever it is looked after; by default none.
        restless: it never rests, so that it hangs where it uses no processor time.
        disturbed: it rests, but reads its standard input: an empty line each second shows whether it hangs.

    Raises:
        error: on entering, when the process ends or stays silent instead of becoming ready; with the log's
            last lines. One that hangs is ended: see :class:`utvm.watch.Watch`.
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
        stdin: str | socket.socket | None = None,
        stdout: socket.socket | None = None,
        inherited: Sequence[socket.socket] = (),
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
        self._stdout = stdout
        self._inherited = inherited
        self.health_match: re.Match[str] | None = None

    def __enter__(self) -> "Service":
        with contextlib.ExitStack() as handed_over:
            for end in (self._stdin, self._stdout, *self._inherited):
                if isinstance(end, socket.socket):
                    handed_over.enter_context(end)
            self._start(self._stdin, self._stdout, self._inherited)
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

        Raises:
            error: the process has ended, or says nothing in time.
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
        """Return the log's lines; the last one only once it is complete."""
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
        if not isinstance(self._stdin, str) or self._process is None or self._process.stdin is None:
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
        if not self._health.pattern:
            return
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
