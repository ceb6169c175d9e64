# SPDX-License-Identifier: Apache-2.0
"""A real machine for tests, with records, boxes and a state of its own: the developer's machine is not touched."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cli.running import inv
from utvm.environment.machine import libvirt
from utvm.environment.machine.libvirt import State
from utvm.environment.machine.machine import Machine
from utvm.environment.machine.settings import Records, records_of

_PROGRAMS = {
    "vagrant": "vagrant vagrant-libvirt",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "rsync": "rsync",
    "dnsmasq": "dnsmasq-base",
}


def missing() -> str:
    """Return why there can be no machine here; nothing when there can."""
    for program, packages in _PROGRAMS.items():
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{program}: apt-get install {packages}"
    if os.geteuid() != 0 and libvirt.problem():
        return "root, to start libvirt's daemons"
    return ""


@dataclass(frozen=True)
class Real:
    """The machine, and how commands are called that are to find it."""

    records: Records
    machine: Machine
    own: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.own}

    def inv(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return inv(*words, timeout=2400, **self.own)

    def do(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command that must work."""
        done = self.inv(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def said(self, command: str) -> list[str]:
        """Return what a command in the machine prints, which must work."""
        return self.do("vm.run", command).stdout.splitlines()

    def state(self) -> State:
        found = libvirt.domain(self.records.name)
        assert found is not None
        return found.state

    def defined(self) -> bool:
        """Return whether libvirt has the machine; it may just be starting itself."""
        with contextlib.suppress(libvirt.LibvirtError):
            return libvirt.domain(self.records.name) is not None
        return False

    def left(self) -> list[str]:
        """Return what is left of the machine."""
        found = []
        with libvirt.running_libvirt(lambda _: None):
            found += [one.name for one in libvirt.domains() if one.name == self.records.name]
            found += [name for name in libvirt.volumes() if self.records.name in name]
            if not libvirt.domains():
                found += libvirt.volumes()
                found += [libvirt.NETWORK] if libvirt.has_network() else []
        if self.records.folder.exists():
            found.append(str(self.records.folder))
        processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        found += [line for line in processes.splitlines() if f"guest={self.records.name}" in line]
        return found


@contextlib.contextmanager
def real_machine(folder: Path) -> Iterator[Real]:
    """Have what is needed for a machine; it is gone in the end."""
    # vm.up makes the box, once for a lock: it is kept in the checkout as it is for users.
    own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    records = records_of(state=folder / "state" / "utvm")
    real = Real(records, Machine(records), own)
    try:
        yield real
    finally:
        real.do("vm.destroy")
