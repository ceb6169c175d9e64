# SPDX-License-Identifier: Apache-2.0
"""Spike under supervision: the RISC-V ISA simulator, whose JTAG pins OpenOCD drives over TCP (remote_bitbang).

Spike listens on all interfaces, and serves whoever is first. So it has a network of its own, which nothing else
is in but its OpenOCD (user_namespaces(7), network_namespaces(7)).

Its command line and what it prints: spike_main/spike.cc and riscv/remote_bitbang.cc of riscv-isa-sim.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from utvm.base.process.interpreter import python_command
from utvm.base.process.service import Service
from utvm.boards.parts import MemoryRegion, SpikePart
from utvm.errors import ProbeError

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1  # netdevice(7)
_NO_PROGRAM = "none"  # It is loaded through the debug port.
_NEW_NETWORK = ("unshare", "--user", "--map-current-user", "--net", "--keep-caps", "--")


def can_be_private() -> bool:
    """Return whether a process may have a network of its own here. In Docker, usually none may."""
    try:
        return subprocess.run([*_NEW_NETWORK, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def beside(spike: Service) -> Sequence[str]:
    """Command prefix to run a program in a private Spike's network."""
    return ("nsenter", "--user", "--preserve-credentials", "--net", f"--target={spike.pid}", "--")


def start_spike(simulator: SpikePart, memory: Sequence[MemoryRegion], log: Path, *, private: bool) -> Service:
    """Return the process of a board that stands before its first instruction, to be entered with ``with``.

    Its ``health_match`` has the group ``port``: a TCP port of the loopback interface.

    Args:
        private: give it a network of its own.
    """
    regions = ",".join(f"{region.address:#x}:{region.size:#x}" for region in memory)
    network = (*_NEW_NETWORK, *python_command("utvm.probe.spike")) if private else ()
    return Service(
        "Spike",
        [*network, simulator.program, "--rbb-port=0", f"--isa={simulator.isa}", f"-m{regions}", "-H", _NO_PROGRAM],
        log=log,
        health=r"Listening for remote bitbang connection on port (?P<port>\d+)",
        error=ProbeError,
        hint=f"see its log {log}",
    )


if __name__ == "__main__":
    # In a new network namespace: bring up its loopback interface, then become another program.
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])
