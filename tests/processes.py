# SPDX-License-Identifier: Apache-2.0
"""What tests want to know of processes."""

import contextlib
import functools
import subprocess
import time

import psutil


@functools.cache
def may_make_mounts() -> bool:
    """Return whether processes of ours may have mounts of their own: not even root may in every container."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def below(pid: int, *words: str) -> list[psutil.Process]:
    """Return those that a process has started, and they in turn, whose command line has all these words."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        # It may end while we look at it.
        with contextlib.suppress(psutil.NoSuchProcess):
            if set(words) <= set(each.cmdline()):
                found.append(each)
    return found


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
