# SPDX-License-Identifier: Apache-2.0
"""Faults to inject: signals, a full disk, a clock that jumps, a cut connection, an unplugged probe."""

import contextlib
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.place import Place
from tests.faults.suite_run import SuiteRun, number_of
from tests.faults.surroundings import Surroundings

_HOUR = 3600
_QUICK = 0.01  # Seconds.


@dataclass
class Strike:
    """One fault, injected into a run.

    Attributes:
        landed: whether the target was still there.
        signals: the signals that the command itself received.
    """

    suite_run: SuiteRun
    chance: random.Random
    around: Surroundings
    landed: bool = False
    signals: list[int] = field(default_factory=list)

    def process(self, role: str, action: str) -> None:
        """Send signals to a process."""
        processes = self.suite_run.find(role)
        if not processes:
            return
        victim = self.chance.choice(processes)
        if action == "STOP+CONT":
            self._send(victim, signal.SIGSTOP)
            time.sleep(self.chance.uniform(0.2, 3))
            self._send(victim, signal.SIGCONT)
            return
        first, _, second = action.partition("+")
        self._send(victim, number_of(first))
        if second:
            time.sleep(self.chance.uniform(0, 0.3))
            self._send(victim, number_of(second))

    def _send(self, victim: psutil.Process, number: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if victim.status() != psutil.STATUS_ZOMBIE:
                victim.send_signal(number)
                self.landed = True
                if victim.pid == self.suite_run.process.pid:
                    self.signals.append(int(number))

    def connection(self) -> None:
        """Cut a connection of the command or OpenOCD to the board."""
        ports: set[tuple[int, int]] = set()
        while self.suite_run.running and not (ports := self._ports()):
            time.sleep(_QUICK)
        if ports:
            near, far = self.chance.choice(sorted(ports))
            filters = ("sport", "=", str(near), "dport", "=", str(far))
            completed = subprocess.run(["ss", "-K", *filters], capture_output=True, text=True, check=True)
            self.landed = "ESTAB" in completed.stdout

    def _ports(self) -> set[tuple[int, int]]:
        ports = set()
        for process in (*self.suite_run.find("command"), *self.suite_run.find("openocd")):
            with contextlib.suppress(psutil.Error):
                established = process.net_connections("tcp")
                ports |= {(end.laddr.port, end.raddr.port) for end in established if end.status == "ESTABLISHED"}
        return ports

    def run(self, action: str) -> None:
        """Change the environment of the run."""
        actions: dict[str, Callable[[], None]] = {
            "no growth": lambda: self._limit(resource.RLIMIT_FSIZE, 0),
            "no files": lambda: self._limit(resource.RLIMIT_NOFILE, 3),
            "full reports": self.around.fill,
            "full cache": self.around.fill,
            "clock forward": lambda: self.around.jump(_HOUR),
            "clock back": lambda: self.around.jump(-_HOUR),
        }
        self.landed = self.suite_run.running
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            actions[action]()

    def usb(self, action: str) -> None:
        """Unplug the probe, and plug it in again for "replug"."""
        self.landed = self.suite_run.running
        self.around.unplug()
        if action == "replug":
            time.sleep(self.chance.uniform(0, 0.5))
            self.around.plug_in()

    def place(self, place: Place, action: str) -> None:
        """Inject a fault in the location of the run."""
        self.landed = self.suite_run.running and place.do(action)

    def _limit(self, which: int, most: int) -> None:
        resource.prlimit(
            self.suite_run.process.pid, which, (most, resource.prlimit(self.suite_run.process.pid, which)[1])
        )


def folder_for(action: str, folder: Path, small: Path) -> Path:
    """Return the folder for a run's files: on the small disk if that is to be full."""
    return small / folder.name if action == f"full {folder.name}" else folder
