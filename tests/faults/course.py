# SPDX-License-Identifier: Apache-2.0
"""One run under the campaign's eyes: its processes, what it prints, what it leaves."""

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

from tests.faults.prepared import Copy, Prepared
from tests.signals import with_usual_signals
from utvm.paths import ROOT

_MARK = "UTVM_FAULTS_RUN"
_COMPILER = re.compile(r"(.*-)?(gcc|cc1|as|ld|collect2)(-[\d.]+)?$")
_QUICK, _SLOWER = 0.005, 0.02  # Seconds between looks: some processes are there for hundredths of one.
_BRIEF = ("tool", "compiler")
_GONE = 15.0  # Seconds that what has lost its parent may take to end, on whatever busy computer.


def start_of_inv() -> str:
    """Return the Python that ./inv begins with."""
    found = re.search(r"^start='(.*?)'$", (ROOT / "inv").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def _below(pid: int) -> list[int]:
    """Return the processes below one. The kernel's own list: to look through all processes would slow the run."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *_below(child)]
    return found


_Test = Callable[[Sequence[str], str], bool]
_ROLES: Mapping[str, _Test] = {
    "tool": lambda words, name: "--version" in " ".join(words) or name in ("git", "dpkg-query", "sh"),
    "keeper": lambda words, _: any(word.endswith("/farm/helper.py") for word in words),
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
"""What a process of a run can be, beside the command itself."""


def role_of(process: psutil.Process) -> str:
    """Say what a process of a run is; nothing of what is none that the table names."""
    words, name = process.cmdline(), process.name()
    return next((role for role, it_is in _ROLES.items() if it_is(words, name)), "") if words else ""


@dataclass(frozen=True)
class Left:
    """What a run has left when it is over; a signal is a negative exit code, None one that had to be ended."""

    exit_code: int | None
    output: str
    report: Mapping[str, Any] | None
    orphans: Sequence[str]
    seconds: float


class Course:
    """A run; at the end of its ``with`` block nothing of it is left.

    Args:
        words: of ``hil``.
        reports: where its report goes.
        environment: variables that it has beside ours.
        prepared: what it is begun by; by default it begins as everything does.
        inside: returns those of its processes that are not below it.
    """

    def __init__(
        self,
        words: Sequence[str],
        reports: Path,
        environment: Mapping[str, str],
        prepared: Prepared | None = None,
        inside: Callable[[], Sequence[int]] = list,
    ) -> None:
        self._inside = inside
        self.reports = reports
        self._name = f"{os.getpid()}-{time.monotonic_ns()}"
        self._before = self._last_report()
        self._started = time.monotonic()
        self._pieces: list[bytes] = []
        environment = {**os.environ, **environment, _MARK: self._name, "COLUMNS": "200"}
        start, words = start_of_inv(), (str(ROOT), "hil", *words, "--report-dir", str(reports))
        # A pipe, and drained: what is printed may neither fail for want of room nor wait for a reader.
        reading, writing = os.pipe()
        self.process: psutil.Popen | Copy
        if prepared:
            self.process = prepared.begin(start, words, environment, writing)
        else:
            self.process = psutil.Popen(
                [sys.executable, "-S", "-c", start, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                # As from a terminal: Ctrl-C of whoever runs the campaign is not the run's.
                start_new_session=True,
                preexec_fn=with_usual_signals,
            )
        os.close(writing)
        self._reader = threading.Thread(target=self._drain, args=(reading,), daemon=True)
        self._reader.start()

    def __enter__(self) -> "Course":
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self.process, *self._marked()]:
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
    def begun(self) -> bool:
        """Whether it has said its name, after which it owes a report."""
        return re.search(rb", run \d{8}T", b"".join(self._pieces)) is not None

    def find(self, role: str) -> list[psutil.Process]:
        """Return the processes that have a role now."""
        return [self.process] if role == "command" else self.roles().get(role, [])

    def roles(self) -> Mapping[str, list[psutil.Process]]:
        """Return all processes that have a role now."""
        found: dict[str, list[psutil.Process]] = {}
        inside = self._inside()
        for pid in (*_below(self.process.pid), *inside):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                process = psutil.Process(pid)
                role = role_of(process) or (INSIDE if pid in inside and "hil" in process.cmdline() else "")
                found.setdefault(role, []).append(process)
        return found

    def wait_for(self, role: str) -> list[psutil.Process]:
        """Wait until there is such a process; return none if the run has ended before."""
        while self.running:
            if found := self.find(role):
                return found
            time.sleep(_QUICK if role in _BRIEF else _SLOWER)
        return []

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def finish(self, patience: float) -> Left:
        """Wait for its end and look at what is left of it; after so many seconds it is ended."""
        code: int | None = None
        with contextlib.suppress(psutil.TimeoutExpired):
            code = self.process.wait(patience)
        if code is None:
            self.process.kill()
            self.process.wait()
        seconds = self.age
        orphans = self._orphans()
        self._reader.join(5)
        return Left(code, b"".join(self._pieces).decode(errors="replace"), self._report(), orphans, seconds)

    def _orphans(self) -> list[str]:
        """Return what is still alive of it; the kernel takes a moment to end who has lost its parent."""
        deadline = time.monotonic() + _GONE
        while alive := self._marked():
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        told = []
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                told.append(" ".join(process.cmdline())[:100])
                process.kill()
        return told

    def _marked(self) -> list[psutil.Process]:
        found = []
        mark = f"{_MARK}={self._name}".encode()
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if pid != self.process.pid and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def _drain(self, pipe: int) -> None:
        while piece := os.read(pipe, 1 << 16):
            self._pieces.append(piece)
        os.close(pipe)

    def _last_report(self) -> str:
        latest = self.reports / "latest"
        return str(latest.resolve()) if latest.exists() else ""

    def _report(self) -> Mapping[str, Any] | None:
        """Return the report that this run has written, if it has."""
        latest = self._last_report()
        if latest in ("", self._before):
            return None
        content: dict[str, Any] = json.loads((Path(latest) / "report.json").read_text(encoding="utf-8"))
        return content


def number_of(name: str) -> int:
    """Return a signal's number."""
    return int(signal.Signals[f"SIG{name}"])
