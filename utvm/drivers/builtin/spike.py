# SPDX-License-Identifier: Apache-2.0
"""Spike, the RISC-V ISA simulator, if installed; OpenOCD drives its JTAG pins over TCP (remote_bitbang).

Spike listens on all interfaces and accepts the first client. So it gets a network namespace shared only with its
OpenOCD (user_namespaces(7), network_namespaces(7)). Command line and messages: spike_main/spike.cc and
riscv/remote_bitbang.cc of riscv-isa-sim.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from utvm import drivers, errors
from utvm.base.process import Service, interpreter
from utvm.base.text.quoting import tcl
from utvm.boards import Board
from utvm.boards.parts import MemoryRegion, SpikePart
from utvm.probe.debug_port import OpenOcdPort
from utvm.selection import BoardSelection

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1  # netdevice(7)
_NO_PROGRAM = "none"  # The program is loaded through the debug port.
_NEW_NETWORK = ("unshare", "--user", "--map-current-user", "--net", "--keep-caps", "--")


def _simulator(board: Board) -> SpikePart:
    assert board.virtual.simulator
    return board.virtual.simulator


def _is_installed(board: Board) -> bool:
    return shutil.which(_simulator(board).program) is not None


def _find(board: Board, selection: BoardSelection) -> drivers.ReachableBoard | None:
    if selection.kind == "physical" or selection.serial or not _is_installed(board):
        return None
    simulator = _simulator(board)
    caps = board.capabilities_with(simulator.lacks, "OpenOCD")

    def start(setup: drivers.Setup) -> drivers.Connection:
        private = can_be_private()
        if not private:
            setup.say("other users of this computer can reach Spike's port: network namespaces are not available here")
        spike = setup.stack.enter_context(
            start_spike(simulator, board.memory, setup.logs / "spike.log", private=private)
        )
        assert spike.health_match
        select = simulator.probe.format(port=tcl(spike.health_match["port"]))
        openocd, gdb = drivers.start_openocd(setup, board, [select], within=beside(spike) if private else ())
        # Its serial line would be on its terminal, which is not available here.
        return drivers.Connection(
            board,
            "virtual",
            "VIRTUAL board, simulated by Spike",
            caps,
            setup.logs,
            probe="JTAG over TCP",
            port=OpenOcdPort(gdb, live="memory while running" in caps),
            services=(spike, openocd),
            emulated=True,
            worth_moving=drivers.WORTH_MOVING_BY_BITBANG,
        )

    return drivers.ReachableBoard(board, drivers.BoardIdentity(board.full_name, "virtual"), caps, "openocd", start)


def _describe(board: Board) -> tuple[str, str]:
    simulator = _simulator(board)
    state = "through OpenOCD" if _is_installed(board) else "not installed"
    return "simulated", f"by Spike: {simulator.program} --isa={simulator.isa}, {state}"


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
    network = (*_NEW_NETWORK, *interpreter.python_command("utvm.drivers.builtin.spike")) if private else ()
    return Service(
        "Spike",
        [*network, simulator.program, "--rbb-port=0", f"--isa={simulator.isa}", f"-m{regions}", "-H", _NO_PROGRAM],
        log=log,
        health=r"Listening for remote bitbang connection on port (?P<port>\d+)",
        error=errors.ProbeError,
        hint=f"see its log {log}",
    )


if __name__ == "__main__":
    # In a new network namespace: bring up the loopback interface, then execute another program.
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])


DRIVER = drivers.Driver(
    name="spike",
    rank=30,
    supports=lambda board: board.virtual.simulator is not None,
    find=_find,
    describe=_describe,
    refusal="is emulated: there is no physical one here",
)
