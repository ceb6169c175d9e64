# SPDX-License-Identifier: Apache-2.0
"""What is done to a run: signals, no room, a clock that jumps, a connection cut, a probe pulled out."""

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

from tests.faults.course import Course, number_of
from tests.faults.place import Place
from tests.faults.surroundings import Surroundings

_HOUR = 3600
_QUICK = 0.01  # Seconds.


@dataclass
class Strike:
    """One deed, done to a run at a moment.

    Attributes:
        landed: whether there was still something to strike.
        signals: those that the command itself got.
    """

    course: Course
    chance: random.Random
    around: Surroundings
    landed: bool = False
    signals: list[int] = field(default_factory=list)

    def process(self, role: str, deed: str) -> None:
        """Send signals to a process."""
        found = self.course.find(role)
        if not found:
            return
        victim = self.chance.choice(found)
        if deed == "STOP+CONT":
            self._send(victim, signal.SIGSTOP)
            time.sleep(self.chance.uniform(0.2, 3))
            self._send(victim, signal.SIGCONT)
            return
        first, _, second = deed.partition("+")
        self._send(victim, number_of(first))
        if second:
            time.sleep(self.chance.uniform(0, 0.3))
            self._send(victim, number_of(second))

    def _send(self, victim: psutil.Process, number: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if victim.status() != psutil.STATUS_ZOMBIE:
                victim.send_signal(number)
                self.landed = True
                if victim.pid == self.course.process.pid:
                    self.signals.append(int(number))

    def connection(self) -> None:
        """Cut one of the connections that the command or OpenOCD has to what it drives."""
        ports: set[tuple[int, int]] = set()
        while self.course.running and not (ports := self._ports()):
            time.sleep(_QUICK)
        if ports:
            near, far = self.chance.choice(sorted(ports))
            which = ("sport", "=", str(near), "dport", "=", str(far))
            done = subprocess.run(["ss", "-K", *which], capture_output=True, text=True, check=True)
            self.landed = "ESTAB" in done.stdout

    def _ports(self) -> set[tuple[int, int]]:
        ports = set()
        for process in (*self.course.find("command"), *self.course.find("openocd")):
            with contextlib.suppress(psutil.Error):
                established = process.net_connections("tcp")
                ports |= {(one.laddr.port, one.raddr.port) for one in established if one.status == "ESTABLISHED"}
        return ports

    def run(self, deed: str) -> None:
        """Change what is around the run."""
        deeds: dict[str, Callable[[], None]] = {
            "no growth": lambda: self._limit(resource.RLIMIT_FSIZE, 0),
            "no files": lambda: self._limit(resource.RLIMIT_NOFILE, 3),
            "full reports": self.around.fill,
            "full cache": self.around.fill,
            "clock forward": lambda: self.around.jump(_HOUR),
            "clock back": lambda: self.around.jump(-_HOUR),
        }
        self.landed = self.course.running
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            deeds[deed]()

    def usb(self, deed: str) -> None:
        """Pull the probe out of the bus, and maybe put it back in."""
        self.landed = self.course.running
        self.around.unplug()
        if deed == "replug":
            time.sleep(self.chance.uniform(0, 0.5))
            self.around.plug_in()

    def place(self, there: Place, deed: str) -> None:
        """Do something in the place where the run is."""
        self.landed = self.course.running and there.do(deed)

    def _limit(self, which: int, most: int) -> None:
        resource.prlimit(self.course.process.pid, which, (most, resource.prlimit(self.course.process.pid, which)[1]))


def folder_for(deed: str, folder: Path, small: Path) -> Path:
    """Return where a run puts something: onto the small disk if it is that which fills."""
    return small / folder.name if deed == f"full {folder.name}" else folder
