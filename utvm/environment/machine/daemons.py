"""libvirt's daemons: found, or started where no systemd does that, and ended with the last machine that they run.

A machine outlives the command that started it, and so do they: they are the only processes of ours that do.
"""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from utvm import process
from utvm.environment.machine import libvirt
from utvm.errors import ProvisionError

FOLDER = Path("/run/utvm")
"""Their process ids and logs."""
_SYSTEMD = Path("/run/systemd/system")
# In the order in which they are started.
_DAEMONS = ("virtlogd", "libvirtd")
_PATIENCE = 60.0


def ensure() -> list[str]:
    """Have libvirt answer; return the daemons that were started for that.

    Raises:
        ProvisionError: it is not installed, does not let us in, or cannot be started.
    """
    problem = libvirt.problem()
    if problem is None:
        return []
    if not problem.nobody_answers:
        raise problem
    if _SYSTEMD.exists():
        raise ProvisionError(problem.message, "start it: sudo systemctl start libvirtd")
    if os.geteuid() != 0:
        raise ProvisionError(problem.message, "start it as root: sudo virtlogd --daemon && sudo libvirtd --daemon")
    started = [name for name in _DAEMONS if _start(name)]
    deadline = time.monotonic() + _PATIENCE
    while problem := libvirt.problem():
        if time.monotonic() > deadline:
            log = FOLDER / "libvirtd.log"
            raise ProvisionError(
                f"{problem.message}, although it was started; {log} ends with:\n{process.last_lines(log)}"
            )
        time.sleep(0.1)
    return started


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


def stop_if_idle() -> list[str]:
    """End the daemons that we started, unless a machine runs, whoever's it is; return those that ended."""
    ours = running()
    if not ours or libvirt.running_domains():
        return []
    # A network of a daemon that has ended would keep its bridge and its DHCP server.
    libvirt.stop_networks()
    for name, pid in reversed(ours.items()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        while name in running() and time.monotonic() < deadline:
            time.sleep(0.05)
    left = running()
    if left:
        raise ProvisionError(
            f"{' and '.join(left)} did not end on SIGTERM", f"kill -9 {' '.join(map(str, left.values()))}"
        )
    shutil.rmtree(FOLDER, ignore_errors=True)
    return list(ours)


def _start(name: str) -> bool:
    if name in running():
        return False
    if shutil.which(name) is None:
        raise ProvisionError(f"{name} is not installed", libvirt.INSTALL)
    FOLDER.mkdir(parents=True, exist_ok=True)
    outputs = f"LIBVIRT_LOG_OUTPUTS=2:file:{FOLDER / name}.log"
    # They go on by themselves, in sessions of their own.
    process.run(
        ["env", outputs, name, "--daemon", "--pid-file", FOLDER / f"{name}.pid"],
        timeout=_PATIENCE,
        error=ProvisionError,
        hint=f"its log is {FOLDER / name}.log",
    )
    return True
