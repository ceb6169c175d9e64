# SPDX-License-Identifier: Apache-2.0
"""Spike under supervision: the RISC-V ISA simulator, whose JTAG pins OpenOCD drives over TCP (remote_bitbang).

Its command line and what it prints: spike_main/spike.cc and riscv/remote_bitbang.cc of riscv-isa-sim.
"""

from collections.abc import Sequence
from pathlib import Path

from utvm.base.process.service import Service
from utvm.boards import MemoryRegion, SpikePart
from utvm.errors import ProbeError

_NO_PROGRAM = "none"  # It is loaded through the debug port.


def start_spike(simulator: SpikePart, memory: Sequence[MemoryRegion], log: Path) -> Service:
    """Return the process of a board that stands before its first instruction, to be entered with ``with``.

    Its ``health_match`` has the group ``port``: a TCP port of the loopback interface.
    """
    regions = ",".join(f"{region.address:#x}:{region.size:#x}" for region in memory)
    return Service(
        "Spike",
        [simulator.program, "--rbb-port=0", f"--isa={simulator.isa}", f"-m{regions}", "-H", _NO_PROGRAM],
        log=log,
        health=r"Listening for remote bitbang connection on port (?P<port>\d+)",
        error=ProbeError,
        hint=f"see its log {log}",
    )
