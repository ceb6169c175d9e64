# SPDX-License-Identifier: Apache-2.0
"""QEMU, which is board and debug port in one."""

from utvm.bench.bench import Bench
from utvm.bench.openocd import open_console
from utvm.bench.way import Asked, Found, Setup, Way
from utvm.boards import Board, Emulator
from utvm.probe.debug_port import QemuPort
from utvm.probe.gdb import GdbClient
from utvm.probe.qemu import Qemu


def _emulator(board: Board) -> Emulator:
    assert board.virtual.emulator
    return board.virtual.emulator


def _find(board: Board, asked: Asked) -> Found | None:
    if asked.wish == "physical" or asked.serial:
        return None
    emulator = _emulator(board)
    able = board.capabilities_of("virtual")

    def start(setup: Setup) -> Bench:
        instead = ", for want of Spike" if board.virtual.simulator else ""
        qemu = setup.stack.enter_context(Qemu(emulator, log=setup.logs / "qemu.log"))
        kind = board.cpu_row.breakpoint_kind
        gdb = setup.stack.enter_context(
            GdbClient("127.0.0.1", qemu.gdb_port, advice=qemu.advice, breakpoint_kind=kind)
        )
        return Bench(
            board,
            "virtual",
            f"VIRTUAL board, emulated by QEMU ({emulator.machine}{instead})",
            able,
            setup.logs,
            probe="QEMU's GDB stub without OpenOCD",
            port=QemuPort(gdb, live="memory while running" in able),
            console=open_console(setup, board, f"socket://127.0.0.1:{qemu.console_port}"),
            services=(qemu,),
            emulated=True,
        )

    return Found(board, "virtual", able, "qemu", start)


def _tell(board: Board) -> tuple[str, str]:
    emulator = _emulator(board)
    return "emulated", f"by QEMU: {emulator.program} -M {emulator.machine}; no OpenOCD"


WAY = Way(
    name="qemu",
    rank=40,
    serves=lambda board: board.virtual.emulator is not None,
    find=_find,
    tell=_tell,
    refusal="is emulated: there is no physical one here",
)
