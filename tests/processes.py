# SPDX-License-Identifier: Apache-2.0
"""Processes and their rights, for tests."""

import contextlib
import functools
import subprocess
import time

import psutil


@functools.cache
def may_make_mounts() -> bool:
    """Return whether processes may have mounts of their own. In some containers, not even root may."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def descendants(pid: int, *arguments: str) -> list[psutil.Process]:
    """Return all descendants of a process whose command line has all these words."""
    result = []
    for process in psutil.Process(pid).children(recursive=True):
        # It may end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            if set(arguments) <= set(process.cmdline()):
                result.append(process)
    return result


def has_ended(pid: int) -> bool:
    """Wait up to 10 s for a process to end, and return whether it has."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False
