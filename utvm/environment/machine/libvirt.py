# SPDX-License-Identifier: Apache-2.0
"""libvirt through virsh: machines, disks, snapshots, networks, removal of ours, and the daemons.

Without systemd the daemons are started on demand and stopped with the last machine. They and the machines are the
only processes that outlive the command that started them.
"""

import contextlib
import fcntl
import json
import os
import pwd
import re
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

import psutil

from utvm.base.process import last_lines, run_tool
from utvm.base.storage.files import create_own_folder, open_regular
from utvm.environment.machine.settings import PREFIX, UsbFilter
from utvm.errors import ProvisionError

INSTALL = "sudo apt-get install libvirt-daemon-system libvirt-clients"
NETWORK = "utvm"
"""The network of all our machines."""
_T = TypeVar("_T")
_URI = "qemu:///system"
_POOL = "default"
"""Vagrant's choice if no other pool exists."""
_BOX_VOLUME = re.compile(r"utvm-VAGRANTSLASH-.*_vagrant_box_image_.*\.img")
_PATIENCE = 120.0
_NETWORKS = tuple(IPv4Network(f"192.168.{third}.0/24") for third in (187, 203, 219, 235, 171, 155))


def qemu_user() -> str:
    """User that libvirt runs QEMU as, on Debian or Fedora; empty if neither exists."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("libvirt-qemu", "qemu") if name in known), "")


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    SUSPENDED = "suspended to the disk"
    OFF = "off"
    BROKEN = "crashed"


@dataclass(frozen=True)
class Domain:
    name: str
    state: State
    description: str
    title: str


class LibvirtError(ProvisionError):
    """libvirt has failed; ``nobody_answers`` if its daemon may not be running."""

    def __init__(self, message: str, hint: str = "", nobody_answers: bool = False) -> None:
        super().__init__(message, hint)
        self.nobody_answers = nobody_answers


def problem() -> LibvirtError | None:
    try:
        virsh("uri")
    except LibvirtError as error:
        return error
    return None


def virsh(*words: str, timeout: float = _PATIENCE) -> str:
    if shutil.which("virsh") is None:
        raise LibvirtError("virsh is not installed: libvirt's own command line", INSTALL)
    try:
        # Explicitly "system": a user's own libvirt, the default for users, cannot create networks.
        return run_tool(
            ["env", "LC_ALL=C", "virsh", "--quiet", "--connect", _URI, *words], timeout=timeout, error=ProvisionError
        )
    except ProvisionError as error:
        raise _translate_error(error.message) from None


def _translate_error(output: str) -> LibvirtError:
    if "ermission denied" in output or "authentication unavailable" in output or "access denied" in output:
        return LibvirtError(
            "libvirt denies you access", "join its group (sudo usermod -aG libvirt $USER, then log in again)"
        )
    if "Failed to connect socket" in output or "Connection refused" in output:
        return LibvirtError("libvirt does not answer: its daemon does not run", nobody_answers=True)
    if "No space left" in output:
        return LibvirtError("the disk that libvirt keeps machines on is full", "df -h /var/lib/libvirt")
    lines = [line.removeprefix("error: ") for line in output.splitlines()[1:] if line.strip()]
    return LibvirtError(f"libvirt: {' '.join(lines) or output}")


def domain(name: str) -> Domain | None:
    return next((machine for machine in domains() if machine.name == name), None)


def domains() -> list[Domain]:
    def names() -> list[str]:
        return virsh("list", "--all", "--name").split()

    machines = (_unless_gone(_inspect, name, names) for name in names() if name.startswith(PREFIX))
    return [machine for machine in machines if machine is not None]


def _unless_gone(look: Callable[[str], _T], name: str, there: Callable[[], list[str]]) -> _T | None:
    """Inspect an object, or return None if another checkout has just removed it."""
    try:
        return look(name)
    except LibvirtError:
        if name in there():
            raise
        return None


def _inspect(name: str) -> Domain:
    description = ElementTree.fromstring(virsh("dumpxml", name))
    facts = dict(re.findall(r"^([^:]+):\s+(.*)$", virsh("dominfo", name), re.M))
    states = {"running": State.RUNNING, "idle": State.RUNNING, "paused": State.PAUSED, "shut off": State.OFF}
    state = states.get(facts["State"], State.BROKEN)
    if state is State.OFF and facts.get("Managed save") == "yes":
        state = State.SUSPENDED
    return Domain(name, state, description.findtext("description") or "", description.findtext("title") or "")


def address(name: str) -> str | None:
    match = re.search(r"ipv4\s+([0-9.]+)/", virsh("domifaddr", name))
    return match[1] if match else None


def wait_for_jobs(name: str) -> None:
    """Wait for libvirt jobs of a killed command, such as a suspension to disk."""
    deadline = time.monotonic() + _PATIENCE
    while _inspect(name).state in (State.RUNNING, State.PAUSED):
        with contextlib.suppress(LibvirtError):  # It may end between the two requests.
            if re.search(r"Job type:\s+None", virsh("domjobinfo", name)):
                return
        if time.monotonic() > deadline:
            raise LibvirtError(f"libvirt is still busy with {name}", f"virsh -c {_URI} domjobabort {name}")
        time.sleep(0.2)


def restore(name: str, snapshot: str) -> None:
    """Restore a snapshot; faster than Vagrant."""
    # Saved memory with an older disk would destroy the file system.
    if _inspect(name).state is State.SUSPENDED:
        virsh("managedsave-remove", name)
    virsh("snapshot-revert", name, snapshot)


@contextlib.contextmanager
def attached_device(name: str, device: UsbFilter) -> Iterator[None]:
    """Attach a USB device of this computer to a running machine, for the length of a ``with`` block."""
    description = (
        "<hostdev mode='subsystem' type='usb' managed='yes'><source startupPolicy='optional'>"
        f"<vendor id='{device.vendor}'/><product id='{device.product}'/>"
        f"<address bus='{device.bus}' device='{device.device}'/></source></hostdev>"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(description)
        file.flush()
        virsh("attach-device", name, file.name, "--live")
        try:
            yield
        finally:
            # It may have been unplugged meanwhile.
            with contextlib.suppress(LibvirtError):
                virsh("detach-device", name, file.name, "--live")


def cut_power(name: str) -> None:
    virsh("destroy", name)


def snapshots(name: str) -> dict[str, str]:
    dates = {}
    for snapshot in virsh("snapshot-list", name, "--topological", "--name").split("\n"):
        if snapshot.strip():
            description = ElementTree.fromstring(virsh("snapshot-dumpxml", name, snapshot.strip()))
            dates[snapshot.strip()] = description.findtext("state") or ""
    return dates


def volumes() -> list[str]:
    if _POOL not in virsh("pool-list", "--all", "--name").split():
        return []
    # The pool may be stopped, and its last changes by Vagrant unknown to libvirt.
    if _POOL not in virsh("pool-list", "--name").split():
        virsh("pool-start", _POOL)
    virsh("pool-refresh", _POOL)
    names = (line.split()[0] for line in virsh("vol-list", _POOL).splitlines() if line.strip())
    return [name for name in names if name.startswith(PREFIX)]


def unused_boxes() -> list[str]:
    def backing_of(volume: str) -> str:
        description = ElementTree.fromstring(virsh("vol-dumpxml", volume, "--pool", _POOL))
        return (description.findtext("backingStore/path") or "").rpartition("/")[2]

    ours = volumes()
    backing = {_unless_gone(backing_of, name, volumes) for name in ours if not _BOX_VOLUME.fullmatch(name)}
    return [name for name in ours if _BOX_VOLUME.fullmatch(name) and name not in backing]


def orphan_disks() -> list[str]:
    names = {machine.name for machine in domains()}
    return [name for name in volumes() if not _BOX_VOLUME.fullmatch(name) and name.removesuffix(".img") not in names]


def remove_volume(name: str) -> None:
    virsh("vol-delete", name, "--pool", _POOL)


def remove_domain(name: str) -> list[str]:
    """Remove a machine in any state with its disk and snapshots; return their names."""
    removed = []
    machine = domain(name)
    if machine is not None:
        if machine.state in (State.RUNNING, State.PAUSED, State.BROKEN):
            # It may end between the two calls.
            with contextlib.suppress(LibvirtError):
                cut_power(name)
        virsh("undefine", name, "--managed-save", "--snapshots-metadata")
        removed.append(f"machine {name}")
    disk = f"{name}.img"
    if disk in volumes():
        remove_volume(disk)
        removed.append(f"disk {disk}")
    return removed


def has_network() -> bool:
    return NETWORK in virsh("net-list", "--all", "--name").split()


def start_network() -> None:
    if has_network() and NETWORK not in virsh("net-list", "--name").split():
        virsh("net-start", NETWORK)


def remove_network() -> bool:
    if not has_network():
        return False
    if NETWORK in virsh("net-list", "--name").split():
        virsh("net-destroy", NETWORK)
    virsh("net-undefine", NETWORK)
    return True


def network_address() -> str:
    if has_network():
        description = ElementTree.fromstring(virsh("net-dumpxml", NETWORK)).find("ip")
        if description is not None:
            own = f"{description.get('address')}/{description.get('netmask')}"
            return str(IPv4Network(own, strict=False))
    output = run_tool(["ip", "-4", "-json", "route", "show", "table", "all"], error=ProvisionError)
    addresses = [
        IPv4Network(row["dst"], strict=False) for row in json.loads(output) if re.match(r"[0-9.]+(/\d+)?$", row["dst"])
    ]
    for network in _NETWORKS:
        if not any(network.overlaps(other) for other in addresses):
            return str(network)
    raise LibvirtError(f"this computer is in every network that {NETWORK} could be: {', '.join(map(str, _NETWORKS))}")


FOLDER = Path("/run/utvm")
"""Process ids, logs and locks of our daemons."""
SYSTEMD = Path("/run/systemd/system")
# In start order.
_DAEMONS = ("virtlogd", "libvirtd")
_DAEMON_SECONDS = 60.0
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
        # While a command holds this lock, no other stops the daemons; the kernel releases it.
        fcntl.flock(users, fcntl.LOCK_SH)
        started = _ensure(say)
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ended = _stop_if_idle()
                if ended and not started:
                    say(f"{' and '.join(ended)} ended: no machine is left")


def running_daemons() -> dict[str, int]:
    pids = {}
    for name in _DAEMONS:
        with contextlib.suppress(OSError, ValueError):
            pid = int((FOLDER / f"{name}.pid").read_text())
            # The process id may have been reused.
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                pids[name] = pid
    return pids


def _ensure(say: Callable[[str], None]) -> bool:
    error = problem()
    if error is None:
        return False
    if not error.nobody_answers:
        raise error
    if SYSTEMD.exists():
        raise ProvisionError(error.message, "start it: sudo systemctl start libvirtd")
    if os.geteuid() != 0:
        raise ProvisionError(error.message, "start it as root: sudo virtlogd --daemon && sudo libvirtd --daemon")
    _check_limits()
    with open(FOLDER / "starter", "w", opener=open_regular) as starter:
        # Only one of two concurrent commands starts them.
        fcntl.flock(starter, fcntl.LOCK_EX)
        started: list[str] = []
        deadline = time.monotonic() + _DAEMON_SECONDS
        while error := problem():
            # Repeatedly: a terminating daemon no longer replies.
            started += [name for name in _DAEMONS if _start(name)]
            if time.monotonic() > deadline:
                log = FOLDER / "libvirtd.log"
                raise ProvisionError(f"{error.message}, although it was started; {log} ends with:\n{last_lines(log)}")
            time.sleep(0.1)
    if started:
        say(f"{' and '.join(started)} started, since there is no systemd to do it; they end with the last machine")
    return bool(started)


def _check_limits() -> None:
    for limit, (least, option, what) in _LIMITS.items():
        allowed = resource.getrlimit(limit)[0]
        if allowed != resource.RLIM_INFINITY and (least == resource.RLIM_INFINITY or allowed < least):
            needed = "unlimited" if least == resource.RLIM_INFINITY else least
            raise ProvisionError(
                f"libvirt's daemon does not run, and could not work with this shell's limit on {what}: {allowed}",
                f"raise it: ulimit {option} {needed}",
            )


def _stop_if_idle() -> list[str]:
    """Stop our daemons unless a machine runs or is ours; return their names.

    A stopped machine counts, since a new libvirt may take a minute to probe QEMU.
    """
    ours = running_daemons()
    if not ours or virsh("list", "--name").split() or domains():
        return []
    # Otherwise bridges and DHCP servers would remain.
    for network in virsh("net-list", "--name").split():
        virsh("net-destroy", network)
    for name, pid in reversed(ours.items()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _DAEMON_SECONDS
        while name in running_daemons() and time.monotonic() < deadline:
            time.sleep(0.05)
    if left := running_daemons():
        pids = " ".join(map(str, left.values()))
        raise ProvisionError(f"{' and '.join(left)} did not end on SIGTERM", f"kill -9 {pids}")
    return list(ours)


def _start(name: str) -> bool:
    processes = (process.info for process in psutil.process_iter(["name", "status"]))
    if any(info["name"] == name and info["status"] != psutil.STATUS_ZOMBIE for info in processes):
        return False
    if shutil.which(name) is None:
        raise ProvisionError(f"{name} is not installed", INSTALL)
    # They detach themselves.
    run_tool(
        [
            *("env", f"LIBVIRT_LOG_OUTPUTS=2:file:{FOLDER / name}.log"),
            *(name, "--daemon", "--pid-file", FOLDER / f"{name}.pid"),
        ],
        timeout=_DAEMON_SECONDS,
        error=ProvisionError,
        hint=f"its log is {FOLDER / name}.log",
    )
    return True
