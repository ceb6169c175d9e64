# SPDX-License-Identifier: Apache-2.0
"""Records and settings of a checkout's machine, and the choice between KVM and emulation.

The records are outside the checkout: removing ``build`` must not lose a machine. The machine's name is a hash of
the checkout and the records' folder. ``vm/Vagrantfile`` reads the settings as JSON.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from utvm import errors, paths
from utvm.base.process.signals import die_with_parent
from utvm.base.storage.files import create_own_folder
from utvm.probe.usb import Probe

_MEMORY_MB = 4096
_CPUS = 4


@dataclass(frozen=True)
class UsbFilter:
    """Identifies a probe on USB.

    Attributes:
        bus: current bus number; None if not plugged in.
        device: number on that bus, which changes at each plug-in.
    """

    vendor: str
    product: str
    serial_number: str = ""
    bus: int | None = None
    device: int | None = None


def usb_filter(probe: Probe) -> UsbFilter:
    return UsbFilter(f"{probe.vendor:#06x}", f"{probe.product:#06x}", probe.serial_number, probe.bus, probe.address)


@dataclass(frozen=True)
class Plug:
    """A USB plug of the machine, connected to the usbredir server at a socket."""

    port: int
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class Acceleration:
    """Driver and CPU model of the guest in libvirt's terms, QEMU's CPU option if needed, and the reason."""

    driver: str
    cpu_mode: str
    qemu_cpu: str = ""
    why: str = ""


@dataclass(frozen=True)
class Settings:
    name: str
    description: str
    box: str
    box_version: str
    acceleration: Acceleration
    network_address: str
    plugs: tuple[Plug, ...]
    usb_filters: tuple[UsbFilter, ...] = ()
    network: str = "utvm"
    cpus: int = dataclasses.field(default_factory=lambda: min(_CPUS, os.cpu_count() or 1))
    memory_mb: int = dataclasses.field(default_factory=lambda: memory_for(psutil.virtual_memory().total))

    def for_vagrant(self) -> str:
        flat: dict[str, Any] = dataclasses.asdict(self)
        return json.dumps(flat | flat.pop("acceleration"), indent=1) + "\n"


def memory_for(total_bytes: int) -> int:
    return min(_MEMORY_MB, total_bytes // 2 // (1 << 20))


QEMU = "qemu-system-x86_64"
DEVICE = Path("/dev/kvm")
_BOOTED = "Unable to mount root fs"
_PATIENCE = 10.0  # seconds; where KVM works it takes two
_EMULATED = ("qemu", "maximum")
# Values of QEMU's -cpu. Some hosts advertise this CPU register but refuse to write it.
_MODELS = ("host", "host,arch-capabilities=off")


def choose_acceleration(kernel: Path, device: Path = DEVICE) -> Acceleration:
    """Choose KVM if a guest kernel starts with it, otherwise emulation.

    An existing ``/dev/kvm`` can refuse a CPU model, hang, or be slower than emulation. So start the box's kernel
    with each CPU model, without a disk: where KVM works, it panics within seconds.
    """
    if shutil.which(QEMU) is None:
        raise errors.ProvisionError(f"{QEMU} is not installed", "sudo apt-get install qemu-system-x86")
    if not device.exists():
        return Acceleration(*_EMULATED, why=f"there is no {device}")
    if not os.access(device, os.R_OK | os.W_OK):
        return Acceleration(*_EMULATED, why=f"you may not use {device}: sudo usermod -aG kvm $USER")
    problems = []
    for model in _MODELS:
        problem = _problem(kernel, model)
        if not problem:
            # libvirt's name for QEMU's "host". vagrant-libvirt takes no features with it.
            own = "" if model == "host" else model
            return Acceleration("kvm", "host-passthrough", own, why=f"a kernel starts with -cpu {model}")
        problems.append(f"with -cpu {model} {problem}")
    return Acceleration(*_EMULATED, why=f"{device} does not work: {'; '.join(problems)}")


def _problem(kernel: Path, model: str) -> str:
    command: list[str | Path] = [
        *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-m", "256"),
        *("-accel", "kvm", "-cpu", model, "-no-reboot", "-serial", "stdio", "-kernel", kernel),
        # panic=-1: the kernel restarts the machine at once when it panics, and QEMU ends.
        *("-append", "console=ttyS0 panic=-1"),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent(),  # noqa: PLW1509  two system calls, no locks
    ) as guest:
        try:
            output = guest.communicate(timeout=_PATIENCE)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            return f"the kernel did not boot within {_PATIENCE:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                guest.kill()
    if _BOOTED in output:
        return ""
    own = [line for line in output.splitlines() if line.startswith("qemu")]
    return f"QEMU ends with code {guest.returncode}" + (f": {own[0]}" if own else "")


PREFIX = "utvm-"
"""Prefix of our machines' names."""


class Records:
    """The records of one machine.

    Attributes:
        description: description in libvirt that identifies the machine as ours.
        known_hosts: the guest's host key, created at its first start.
    """

    def __init__(self, name: str, checkout: Path, folder: Path) -> None:
        self.name, self.checkout, self.folder = name, checkout, folder
        self.description = f"utvm: checkout {checkout}, records {folder}"
        self.settings = folder / "settings.json"
        self.vagrant = folder / "vagrant"
        self.key = self.vagrant / "machines" / name / "libvirt" / "private_key"
        self.known_hosts = folder / "known_hosts"
        self.ssh_config = folder / "ssh_config"
        self.log = folder / "vagrant.log"
        self._facts, self._used_mark = folder / "made.json", folder / "used"

    @property
    def is_used(self) -> bool:
        """True if a command has run since the snapshot ``ready``: the disk may hold a user's work."""
        return self._used_mark.exists()

    @property
    def facts(self) -> dict[str, str] | None:
        """Box and settings of a complete machine; else None."""
        if not self._facts.exists():
            return None
        facts: dict[str, str] = json.loads(self._facts.read_text(encoding="utf-8"))
        return facts

    def create(self) -> None:
        with errors.ProvisionError.on_os_error(f"{self.folder}: cannot be created", "set XDG_STATE_HOME"):
            create_own_folder(self.folder)

    def finish(self, facts: dict[str, str]) -> None:
        """Mark the machine as complete, atomically."""
        temporary = self._facts.with_suffix(".tmp")
        temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        temporary.rename(self._facts)

    def mark_used(self, used: bool = True) -> None:
        if used:
            self._used_mark.touch()
        else:
            self._used_mark.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the records, starting with the mark of a complete machine."""
        self._facts.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def records_of(checkout: Path = paths.ROOT, state: Path | None = None) -> Records:
    parent = (state or paths.user_folder("state")) / "machines"
    name = PREFIX + hashlib.sha256(f"{checkout}\n{parent}".encode()).hexdigest()[:10]
    return Records(name, checkout, parent / name)


def records_of_test() -> Records:
    """Records of the machine that tests a box; it is removed after the test."""
    return records_of(state=paths.user_folder("state") / "test")
