# SPDX-License-Identifier: Apache-2.0
"""Runs Spike, the RISC-V ISA simulator; OpenOCD drives its JTAG pins over TCP (remote_bitbang).

Spike listens on all interfaces and accepts the first client. So it gets a network namespace shared only with its
OpenOCD (user_namespaces(7), network_namespaces(7)). Command line and messages: spike_main/spike.cc and
riscv/remote_bitbang.cc of riscv-isa-sim.
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
_NO_PROGRAM = "none"  # The program is loaded through the debug port.
_NEW_NETWORK = ("unshare", "--user", "--map-current-user", "--net", "--keep-caps", "--")


def can_be_private() -> bool:
    """Return True if network namespaces can be created here; in Docker, usually not."""
    try:
        return subprocess.run([*_NEW_NETWORK, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def beside(spike: Service) -> Sequence[str]:
    """Return the command prefix that runs a program in a private Spike's network."""
    return ("nsenter", "--user", "--preserve-credentials", "--net", f"--target={spike.pid}", "--")


def start_spike(simulator: SpikePart, memory: Sequence[MemoryRegion], log: Path, *, private: bool) -> Service:
    """Return the process of a board halted before its first instruction, to be entered with ``with``.

    Its ``health_match`` has the group ``port``: a TCP port of the loopback interface. With ``private``, it gets
    its own network namespace.
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
    # In a new network namespace: bring up the loopback interface, then execute another program.
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])
