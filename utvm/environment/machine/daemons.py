# SPDX-License-Identifier: Apache-2.0
"""libvirt's daemons: found, or started where no systemd does that, and ended with the last machine.

A machine outlives the command that started it, and so do they: they are the only processes of ours that do.
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
"""Their process ids and logs, and who uses them."""
_SYSTEMD = Path("/run/systemd/system")
# In the order in which they are started.
_DAEMONS = ("virtlogd", "libvirtd")
_PATIENCE = 60.0
# They, and machines, would keep what the shell that starts them sets: with less they fail later, in words of
# their own. Limit: how much, ulimit's option, what is limited.
_LIMITS = {
    resource.RLIMIT_NOFILE: (1024, "-n", "the number of open files"),
    resource.RLIMIT_FSIZE: (resource.RLIM_INFINITY, "-f", "the size of files"),
    resource.RLIMIT_AS: (resource.RLIM_INFINITY, "-v", "memory"),
}


@contextlib.contextmanager
def running_libvirt(say: Callable[[str], None]) -> Iterator[None]:
    """Have libvirt answer in a ``with`` block. Daemons of ours end with it, unless something still needs them.

    Args:
        say: is told what is started and ended.
    """
    if os.geteuid() != 0:
        _ensure(say)
        yield
        return
    create_own_folder(FOLDER)
    with open(FOLDER / "users", "w", opener=open_regular) as users:
        # As long as one command holds it, none takes the daemons away. The kernel knows when a command is gone.
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
    """Return the daemons that we started and that run, with their process ids."""
    found = {}
    for name in _DAEMONS:
        with contextlib.suppress(OSError, ValueError):
            pid = int((FOLDER / f"{name}.pid").read_text())
            # The number may be another program's by now.
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found[name] = pid
    return found


def _ensure(say: Callable[[str], None]) -> bool:
    """Have libvirt answer; return whether something was started for that."""
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
        # Of two commands that find none, one starts them.
        fcntl.flock(starter, fcntl.LOCK_EX)
        started: list[str] = []
        deadline = time.monotonic() + _PATIENCE
        while problem := libvirt.problem():
            # Again and again: one that answers no more may take a while to be gone.
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
    """Refuse to start daemons that could not work with the limits of this command."""
    for limit, (least, option, what) in _LIMITS.items():
        allowed = resource.getrlimit(limit)[0]
        if allowed != resource.RLIM_INFINITY and (least == resource.RLIM_INFINITY or allowed < least):
            wanted = "unlimited" if least == resource.RLIM_INFINITY else least
            raise ProvisionError(
                f"libvirt's daemon does not run, and could not work with this shell's limit on {what}: {allowed}",
                f"raise it: ulimit {option} {wanted}",
            )


def _stop_if_idle() -> list[str]:
    """End the daemons that we started, unless a machine needs them; return those that ended.

    One that runs does, whoever's it is. So does one of ours that is off or suspended: a libvirt that has just been
    started can take a minute to find out what each QEMU can do.
    """
    ours = running()
    if not ours or libvirt.running_domains() or libvirt.domains():
        return []
    # A network of a daemon that has ended would keep its bridge and its DHCP server.
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
    there = (one.info for one in psutil.process_iter(["name", "status"]))
    if any(one["name"] == name and one["status"] != psutil.STATUS_ZOMBIE for one in there):
        return False
    if shutil.which(name) is None:
        raise ProvisionError(f"{name} is not installed", libvirt.INSTALL)
    # They go on by themselves, in sessions of their own.
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
