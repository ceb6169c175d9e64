# SPDX-License-Identifier: Apache-2.0
"""What one machine is made of, as plain data; ``vm/Vagrantfile`` reads it as JSON."""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any

import psutil

from utvm.environment.usb import UsbFilter

_MEMORY_MB = 4096
_CPUS = 4


@dataclass(frozen=True)
class Plug:
    """A USB plug at the end of a socket: whoever listens there and speaks usbredir is plugged in."""

    port: int
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class Acceleration:
    """How the guest's CPU is run: in libvirt's words; where they do not suffice, also in QEMU's; and why so."""

    driver: str
    cpu_mode: str
    qemu_cpu: str = ""
    why: str = ""


@dataclass(frozen=True)
class Settings:
    """All that a machine is made of."""

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
        """Return the JSON that ``vm/Vagrantfile`` reads."""
        flat: dict[str, Any] = dataclasses.asdict(self)
        return json.dumps(flat | flat.pop("acceleration"), indent=1) + "\n"


def memory_for(total_bytes: int) -> int:
    """Return the megabytes for a machine: not more than half of the computer's."""
    return min(_MEMORY_MB, total_bytes // 2 // (1 << 20))
