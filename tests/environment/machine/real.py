# SPDX-License-Identifier: Apache-2.0
"""A real machine for tests, with its own records, boxes and state: the developer's machine is not touched."""

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
    """Return the reason why no machine can be started here; an empty string if there is none."""
    for program, packages in _PROGRAMS.items():
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{program}: apt-get install {packages}"
    if os.geteuid() != 0 and libvirt.problem():
        return "root, to start libvirt's daemons"
    return ""


@dataclass(frozen=True)
class Real:
    """The machine, and the variables for commands that use it."""

    records: Records
    machine: Machine
    variables: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables}

    def inv(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return inv(*words, timeout=2400, **self.variables)

    def do(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command that must succeed."""
        completed = self.inv(*words)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed

    def output(self, command: str) -> list[str]:
        """Return the output of a command in the machine, which must succeed."""
        return self.do("vm.run", command).stdout.splitlines()

    def state(self) -> State:
        domain = libvirt.domain(self.records.name)
        assert domain is not None
        return domain.state

    def is_defined(self) -> bool:
        """True if libvirt knows the machine; libvirt may be starting."""
        with contextlib.suppress(libvirt.LibvirtError):
            return libvirt.domain(self.records.name) is not None
        return False

    def leftovers(self) -> list[str]:
        """Return things of the machine that remain."""
        remaining = []
        with libvirt.running_libvirt(lambda _: None):
            remaining += [domain.name for domain in libvirt.domains() if domain.name == self.records.name]
            remaining += [name for name in libvirt.volumes() if self.records.name in name]
            if not libvirt.domains():
                remaining += libvirt.volumes()
                remaining += [libvirt.NETWORK] if libvirt.has_network() else []
        if self.records.folder.exists():
            remaining.append(str(self.records.folder))
        processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        remaining += [line for line in processes.splitlines() if f"guest={self.records.name}" in line]
        return remaining


@contextlib.contextmanager
def real_machine(folder: Path) -> Iterator[Real]:
    """Provide a machine, and destroy it at the end."""
    # vm.up builds the box, once for a lock: it stays in the checkout, as for users.
    variables = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    records = records_of(state=folder / "state" / "utvm")
    real = Real(records, Machine(records), variables)
    try:
        yield real
    finally:
        real.do("vm.destroy")
