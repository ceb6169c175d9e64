# SPDX-License-Identifier: Apache-2.0
"""Notices that a process hangs, and ends it: whoever waits for it, for whatever, then sees it dead.

A wait of its own for each thing that may not come takes minutes to tell a slow board from a dead one. A process
that hangs is seen by what the kernel says of it, however long its task may take and however busy the computer is.
"""

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

_LOOK = (
    1.0  # Seconds. Looks are counted, not seconds: while the computer sleeps or we are not served, none is made.
)
STOPPED_LOOKS = 5
"""How often, a second apart, a process is seen stopped before it is taken for one that hangs."""
_IDLE_LOOKS = 12


class Watch:
    """Looks at a process until :meth:`close`.

    A process that has been stopped by a signal and does not go on is ended. So is a restless one that has used no
    processor time between many looks.

    Args:
        restless: it never rests: OpenOCD looks at its target ten times a second, asked or not.
        disturb: is called at each look, and what it does wakes the process, which so is restless.

    Attributes:
        found: why the process was ended, or an empty string.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        *,
        restless: bool = False,
        disturb: Callable[[], None] | None = None,
    ) -> None:
        self.found = ""
        self._process = process
        self._restless = restless or disturb is not None
        self._disturb = disturb or (lambda: None)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name=f"watch-{process.pid}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more. Safe to call again."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        stopped = idle = 0
        spent = None
        while not self._over.wait(_LOOK) and self._process.returncode is None:
            stopped = stopped + 1 if is_stopped(self._process.pid) else 0
            before, spent = spent, _processor_time(self._process.pid)
            self._disturb()
            idle = idle + 1 if spent is not None and spent == before else 0
            if stopped >= STOPPED_LOOKS:
                self._end("it was stopped by a signal and did not go on")
            elif self._restless and idle >= _IDLE_LOOKS:
                self._end("it did nothing at all any more")

    def _end(self, found: str) -> None:
        self.found = f"it hung: {found}"
        self._process.send_signal(signal.SIGKILL)
        self._over.set()


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _processor_time(pid: int) -> int | None:
    """Return the nanoseconds that a process has run on all processors; None where the kernel does not tell."""
    try:
        return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    except (OSError, ValueError, IndexError):
        return None
