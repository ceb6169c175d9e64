# SPDX-License-Identifier: Apache-2.0
"""libvirt's daemons: started if there is no systemd, and stopped with the last machine.

With the machines, they are the only processes that outlive the command that started them.
"""

import contextlib
import fcntl
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from utvm.base.process.run import last_lines, run_tool
from utvm.base.storage.files import create_own_folder, open_regular
from utvm.environment.machine import libvirt
from utvm.errors import ProvisionError

FOLDER = Path("/run/utvm")
"""Their process ids, logs and locks."""
_SYSTEMD = Path("/run/systemd/system")
# In the order of their start.
_DAEMONS = ("virtlogd", "libvirtd")
_PATIENCE = 60.0
# They and their machines inherit the shell's limits. Limit: minimum, option of ulimit, description.
_LIMITS = {
    resource.RLIMIT_NOFILE: (1024, "-n", "the number of open files"),
    resource.RLIMIT_FSIZE: (resource.RLIM_INFINITY, "-f", "the size of files"),
    resource.RLIMIT_AS: (resource.RLIM_INFINITY, "-v", "memory"),
}


@contextlib.contextmanager
def running_libvirt(say: Callable[[str], None]) -> Iterator[None]:
    """Keep libvirt running in a ``with`` block; then stop our daemons, unless a machine needs them."""
    if os.geteuid() != 0:
        _ensure(say)
        yield
        return
    create_own_folder(FOLDER)
    with open(FOLDER / "users", "w", opener=open_regular) as users:
        # While a command holds this lock, no other one stops the daemons; the kernel releases it.
        fcntl.flock(users, fcntl.LOCK_SH)
        started = _ensure(say)
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ended = _stop_if_idle()
                if ended and not started:
                    say(f"{' and '.join(ended)} ended: there is no machine any more")


def running() -> dict[str, int]:
    pids = {}
    for name in _DAEMONS:
        with contextlib.suppress(OSError, ValueError):
            pid = int((FOLDER / f"{name}.pid").read_text())
            # The number may have been reused.
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                pids[name] = pid
    return pids


def _ensure(say: Callable[[str], None]) -> bool:
    problem = libvirt.problem()
    if problem is None:
        return False
    if not problem.nobody_answers:
        raise problem
    if _SYSTEMD.exists():
        raise ProvisionError(problem.message, "start it: sudo systemctl start libvirtd")
    if os.geteuid() != 0:
        raise ProvisionError(problem.message, "start it as root: sudo virtlogd --daemon && sudo libvirtd --daemon")
    _check_limits()
    with open(FOLDER / "starter", "w", opener=open_regular) as starter:
        # Only one of two concurrent commands starts them.
        fcntl.flock(starter, fcntl.LOCK_EX)
        started: list[str] = []
        deadline = time.monotonic() + _PATIENCE
        while problem := libvirt.problem():
            # Repeatedly: a daemon that is ending no longer answers.
            started += [name for name in _DAEMONS if _start(name)]
            if time.monotonic() > deadline:
                log = FOLDER / "libvirtd.log"
                raise ProvisionError(
                    f"{problem.message}, although it was started; {log} ends with:\n{last_lines(log)}"
                )
            time.sleep(0.1)
    if started:
        say(f"{' and '.join(started)} started, since there is no systemd to do it; they end with the last machine")
    return bool(started)


def _check_limits() -> None:
    for limit, (least, option, what) in _LIMITS.items():
        allowed = resource.getrlimit(limit)[0]
        if allowed != resource.RLIM_INFINITY and (least == resource.RLIM_INFINITY or allowed < least):
            wanted = "unlimited" if least == resource.RLIM_INFINITY else least
            raise ProvisionError(
                f"libvirt's daemon does not run, and could not work with this shell's limit on {what}: {allowed}",
                f"raise it: ulimit {option} {wanted}",
            )


def _stop_if_idle() -> list[str]:
    """Stop our daemons, unless there is a running machine or one of ours; return their names.

    A stopped machine counts, since a new libvirt may take a minute to probe QEMU.
    """
    ours = running()
    if not ours or libvirt.running_domains() or libvirt.domains():
        return []
    # Otherwise bridges and DHCP servers would stay.
    libvirt.stop_networks()
    for name, pid in reversed(ours.items()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        while name in running() and time.monotonic() < deadline:
            time.sleep(0.05)
    if left := running():
        pids = " ".join(map(str, left.values()))
        raise ProvisionError(f"{' and '.join(left)} did not end on SIGTERM", f"kill -9 {pids}")
    return list(ours)


def _start(name: str) -> bool:
    running = (process.info for process in psutil.process_iter(["name", "status"]))
    if any(info["name"] == name and info["status"] != psutil.STATUS_ZOMBIE for info in running):
        return False
    if shutil.which(name) is None:
        raise ProvisionError(f"{name} is not installed", libvirt.INSTALL)
    # They detach themselves.
    run_tool(
        [
            *("env", f"LIBVIRT_LOG_OUTPUTS=2:file:{FOLDER / name}.log"),
            *(name, "--daemon", "--pid-file", FOLDER / f"{name}.pid"),
        ],
        timeout=_PATIENCE,
        error=ProvisionError,
        hint=f"its log is {FOLDER / name}.log",
    )
    return True
