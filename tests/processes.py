"""What tests want to know of processes."""

import time

import psutil


def gone(pid: int) -> bool:
    """Return whether a process has ended; wait for that for some seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False
