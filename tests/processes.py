"""What tests want to know of processes."""

import functools
import subprocess
import time

import psutil


@functools.cache
def may_make_mounts() -> bool:
    """Return whether processes of ours may have mounts of their own: not even root may in every container."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


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
