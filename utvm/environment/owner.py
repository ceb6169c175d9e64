# SPDX-License-Identifier: Apache-2.0
"""Who started a container, so that the next one can tell whether that one is still there.

A container has it as a label. A process is known by its number, and by when it started, since numbers are used
again. The two say something only where they come from: in the same boot of a machine, and the same PID namespace.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """A process of some user, somewhere."""

    host: str
    user: int
    boot: str
    namespace: str
    process: int
    started: str

    @classmethod
    def of(cls, label: str) -> "Owner | None":
        """Read a label; None if it is none of ours."""
        words = label.split()
        if len(words) != len(cls.__dataclass_fields__) or not (words[1] + words[4]).isdecimal():
            return None
        return cls(words[0], int(words[1]), words[2], words[3], int(words[4]), words[5])

    @property
    def label(self) -> str:
        """It as a line of text."""
        words = (self.host, self.user, self.boot, self.namespace, self.process, self.started)
        return " ".join(map(str, words))

    def is_gone(self, running: bool) -> bool:
        """Return whether it has certainly ended without removing its container.

        Args:
            running: whether that container runs. After a restart of the machine it does not, and who started it
                cannot be there.
        """
        us = ourselves()
        if (self.host, self.user) != (us.host, us.user):
            return False
        if self.boot != us.boot:
            return not running
        return self.namespace == us.namespace and self.started != _started(self.process)


def ourselves() -> Owner:
    """Return this process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = str(Path("/proc/self/ns/pid").readlink())
    pid = os.getpid()
    return Owner(socket.gethostname(), os.getuid(), boot, namespace, pid, _started(pid))


def _started(pid: int) -> str:
    """Return when a process started, as the kernel counts; an empty string if there is none."""
    try:
        # The second field is a name in parentheses, which may have spaces and parentheses in it (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
