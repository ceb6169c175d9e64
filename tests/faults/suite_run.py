# SPDX-License-Identifier: Apache-2.0
"""A run of the campaign: its processes, its output, and the files and processes that remain."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.faults.prepared import Copy, PreparedProcess
from tests.signals import reset_signals
from utvm.paths import ROOT

_MARK = "UTVM_FAULTS_RUN"
_COMPILER = re.compile(r"(.*-)?(gcc|cc1|as|ld|collect2)(-[\d.]+)?$")
_QUICK, _SLOWER = 0.005, 0.02  # Seconds between checks: some processes live for hundredths of a second.
_BRIEF = ("tool", "compiler")
_GONE = 15.0  # Seconds that a process may live without its parent, on a busy computer.


def start_of_inv() -> str:
    """Return the Python code that ./inv starts with."""
    match = re.search(r"^start='(.*?)'$", (ROOT / "inv").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert match
    return match[1]


def _descendants(pid: int) -> list[int]:
    """Return the descendants of a process. The kernel's own list: a search of all processes would slow the run."""
    pids = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    pids += [child, *_descendants(child)]
    return pids


_Test = Callable[[Sequence[str], str], bool]
_ROLES: Mapping[str, _Test] = {
    "tool": lambda words, name: "--version" in " ".join(words) or name in ("git", "dpkg-query", "sh"),
    "lease holder": lambda words, _: any(word.endswith("/farm/helper.py") for word in words),
    "guard": lambda words, _: "utvm.environment.engine" in words,
    "virtual board": lambda words, _: "utvm.virtual" in words,
    "openocd": lambda _, name: name.startswith("openocd"),
    "qemu": lambda _, name: name.startswith("qemu-system-arm"),
    "compiler": lambda _, name: bool(_COMPILER.match(name)),
    "machine": lambda _, name: name.startswith("qemu-system-x86"),
    "program": lambda words, _: "/firmware/" in words[0],
    "connection to the machine": lambda _, name: name in ("ssh", "rsync"),
}
INSIDE = "command inside"
ROLES = (*_ROLES, INSIDE)
"""Roles of processes in a run, beside the command itself."""


def role_of(process: psutil.Process) -> str:
    """Return the role of a process, or an empty string if the table has none."""
    words, name = process.cmdline(), process.name()
    return next((role for role, matches in _ROLES.items() if matches(words, name)), "") if words else ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. A signal is a negative exit code; None is a run that had to be ended."""

    exit_code: int | None
    output: str
    report: Mapping[str, Any] | None
    orphans: Sequence[str]
    seconds: float


class SuiteRun:
    """A run; at the end of its ``with`` block all of its processes are ended.

    Args:
        words: of ``hil``.
        reports: the folder of its report.
        environment: further variables.
        prepared: the process to copy; by default the run starts like ./inv.
        inside: returns those of its processes that are not its descendants.
    """

    def __init__(
        self,
        words: Sequence[str],
        reports: Path,
        environment: Mapping[str, str],
        prepared: PreparedProcess | None = None,
        inside: Callable[[], Sequence[int]] = list,
    ) -> None:
        self._inside = inside
        self.reports = reports
        self._name = f"{os.getpid()}-{time.monotonic_ns()}"
        self._before = self._last_report()
        self._started = time.monotonic()
        self._output: list[bytes] = []
        environment = {**os.environ, **environment, _MARK: self._name, "COLUMNS": "200"}
        start, words = start_of_inv(), (str(ROOT), "hil", *words, "--report-dir", str(reports))
        # A thread reads the pipe: printing may neither fail on a full disk nor wait for a reader.
        reading, writing = os.pipe()
        self.process: psutil.Popen | Copy
        if prepared:
            self.process = prepared.start(start, words, environment, writing)
        else:
            self.process = psutil.Popen(
                [sys.executable, "-S", "-c", start, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                # A session of its own: Ctrl-C in the campaign's terminal does not reach the run.
                start_new_session=True,
                preexec_fn=reset_signals,
            )
        os.close(writing)
        self._reader = threading.Thread(target=self._drain, args=(reading,), daemon=True)
        self._reader.start()

    def __enter__(self) -> "SuiteRun":
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self.process, *self._marked_processes()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def age(self) -> float:
        return time.monotonic() - self._started

    @property
    def has_started(self) -> bool:
        """True if it has printed its run id; from then on it owes a report."""
        return re.search(rb", run \d{8}T", b"".join(self._output)) is not None

    def find(self, role: str) -> list[psutil.Process]:
        """Return the current processes with a role."""
        return [self.process] if role == "command" else self.roles().get(role, [])

    def roles(self) -> Mapping[str, list[psutil.Process]]:
        """Return all current processes, by role."""
        processes: dict[str, list[psutil.Process]] = {}
        inside = self._inside()
        for pid in (*_descendants(self.process.pid), *inside):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                process = psutil.Process(pid)
                role = role_of(process) or (INSIDE if pid in inside and "hil" in process.cmdline() else "")
                processes.setdefault(role, []).append(process)
        return processes

    def wait_for(self, role: str) -> list[psutil.Process]:
        """Wait for a process with this role; return an empty list if the run ends before."""
        while self.running:
            if found := self.find(role):
                return found
            time.sleep(_QUICK if role in _BRIEF else _SLOWER)
        return []

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def finish(self, patience: float) -> Outcome:
        """Wait for the end of the run, at most ``patience`` seconds; then end it and return its outcome."""
        code: int | None = None
        with contextlib.suppress(psutil.TimeoutExpired):
            code = self.process.wait(patience)
        if code is None:
            self.process.kill()
            self.process.wait()
        seconds = self.age
        orphans = self._orphans()
        self._reader.join(5)
        return Outcome(code, b"".join(self._output).decode(errors="replace"), self._report(), orphans, seconds)

    def _orphans(self) -> list[str]:
        """Return the processes that remain; the kernel takes a moment to end children without a parent."""
        deadline = time.monotonic() + _GONE
        while alive := self._marked_processes():
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        commands = []
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                commands.append(" ".join(process.cmdline())[:100])
                process.kill()
        return commands

    def _marked_processes(self) -> list[psutil.Process]:
        processes = []
        mark = f"{_MARK}={self._name}".encode()
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if pid != self.process.pid and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        processes.append(process)
        return processes

    def _drain(self, pipe: int) -> None:
        while piece := os.read(pipe, 1 << 16):
            self._output.append(piece)
        os.close(pipe)

    def _last_report(self) -> str:
        latest = self.reports / "latest"
        return str(latest.resolve()) if latest.exists() else ""

    def _report(self) -> Mapping[str, Any] | None:
        """Return the report of this run, if it has written one."""
        latest = self._last_report()
        if latest in ("", self._before):
            return None
        content: dict[str, Any] = json.loads((Path(latest) / "report.json").read_text(encoding="utf-8"))
        return content


def number_of(name: str) -> int:
    """Return the number of a signal."""
    return int(signal.Signals[f"SIG{name}"])
