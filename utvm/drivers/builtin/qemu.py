# SPDX-License-Identifier: Apache-2.0
"""QEMU: a board with a debug port."""

import contextlib
import re
import socket
from pathlib import Path

from utvm import drivers, errors
from utvm.base.process import Service, last_lines
from utvm.boards import Board, bitstream, parts
from utvm.boards.parts import Emulator
from utvm.probe import debug_port, relay
from utvm.probe.gdb import GdbClient
from utvm.selection import BoardSelection
from utvm.virtual.cortex_m.cycles import qemu_plugin
from utvm.virtual.wiring import ExternalModel

# QEMU's control channel (QMP) is its standard input; its reply shows that it is up.
_REQUESTS = """{"execute": "qmp_capabilities"}
{"execute": "query-chardev"}
"""
_UP = '"label": "gdb"'
# Prevent monitor commands of the stub's client from starting programs.
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_LOCKUP = re.compile(r"^qemu: fatal: Lockup: (.*)$[^~]*\bR15=([0-9a-f]{8})", re.MULTILINE)
_LOG_LINES = 100  # Includes the dump of all registers.


class QemuClient(GdbClient):
    """A connection to QEMU's GDB stub; otherwise as :class:`GdbClient`.

    On a multi-core machine, only the first core runs: images are for that one. If the others ran, QEMU with
    ``-icount`` would give each a whole time slice per single step of the first.
    """

    go, one = b"vCont;c:1", b"vCont;s:1"


class Qemu:
    """A QEMU process, for the length of a ``with`` block: a board halted before its first instruction.

    It inherits socket pairs for the GDB stub (``gdb``) and the serial line (``console``), and listens on no port.
    """

    def __init__(self, emulator: Emulator, *, log: Path, plugin: str = "") -> None:
        backend = ",memory-backend=ram" if plugin else ""
        words = [emulator.program, "-M", emulator.machine + backend, "-icount", f"shift={emulator.icount_shift}"]
        if plugin:
            words += ["-object", f"memory-backend-memfd,id=ram,share=on,size={emulator.memory}", "-plugin", plugin]
        if emulator.memory is not None:
            words += ["-m", f"size={emulator.memory // 1024}K"]
        words += emulator.options
        words += ["-S", "-nodefaults", "-display", "none", "-qmp", "stdio"]
        words += ["-sandbox", _SANDBOX, "-serial", "chardev:console", "-gdb", "chardev:gdb"]
        self._words = words
        self._log = log
        self.advice = f"QEMU has ended or hangs: see its log {log}"
        self._running = contextlib.ExitStack()

    def __enter__(self) -> "Qemu":
        with contextlib.ExitStack() as stack:
            self.gdb, stub = map(stack.enter_context, socket.socketpair())
            self.console, line = map(stack.enter_context, socket.socketpair())
            words = list(self._words)
            for label, end in (("console", line), ("gdb", stub)):
                words += ["-chardev", f"socket,id={label},fd={end.fileno()}"]
            self._service = stack.enter_context(
                Service(
                    "QEMU",
                    words,
                    log=self._log,
                    health=_UP,
                    error=errors.ProbeError,
                    hint=self.advice,
                    stdin=_REQUESTS,
                    inherited=(stub, line),
                    # An idle process is not hung: the CPU may be halted. QEMU ignores empty lines.
                    poke_stdin=True,
                )
            )
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def pid(self) -> int:
        return self._service.pid

    def check(self) -> None:
        """Raise ProbeError if QEMU has ended, with its last lines; BoardError if it ended because of a lockup."""
        if not self._service.running and (lockup := _LOCKUP.search(last_lines(self._service.log, _LOG_LINES))):
            raise errors.BoardError(
                f"the program does not run: the core has locked up at 0x{lockup[2]}: {lockup[1]}",
                "QEMU then ends; ./inv board.gdb --elf FILE stops the program before",
            )
        self._service.check()


def _emulator(board: Board) -> parts.Emulator:
    assert board.virtual.emulator
    return board.virtual.emulator


def _neighbour_of(board: Board) -> ExternalModel | None:
    """The model of a board's accelerator, which QEMU lacks."""
    factory = None
    if board.accelerator:
        from utvm.boards.accelerators import accelerator_of  # It imports the compiler.

        factory = accelerator_of(board).neighbour
    return (
        factory([(region.address, region.size) for region in board.memory if region.kind == "ram"]) if factory else None
    )


def _find(board: Board, selection: BoardSelection) -> drivers.ReachableBoard | None:
    if selection.kind == "physical" or selection.serial:
        return None
    emulator = _emulator(board)
    caps = board.capabilities_with(board.virtual.lacking, None)

    def start(setup: drivers.Setup) -> drivers.Connection:
        neighbour = _neighbour_of(board)
        plugin = ""
        if board.timing:
            plugin = qemu_plugin(board.cpu_row.core, board.timing, board.region_specs, setup.logs / "cycles")
        qemu = setup.stack.enter_context(Qemu(emulator, log=setup.logs / "qemu.log", plugin=plugin))
        kind = board.cpu_row.breakpoint_kind
        client: type[GdbClient] = QemuClient
        channel = qemu.gdb
        if neighbour:
            neighbour.program(bitstream.loaded_bitstream(board))
            server = setup.stack.enter_context(GdbClient(channel, advice=qemu.advice, breakpoint_kind=kind))
            channel, theirs = socket.socketpair()
            setup.stack.enter_context(channel)
            setup.stack.enter_context(relay.NeighbourRelay(server, theirs, neighbour))
            client = GdbClient
        gdb = setup.stack.enter_context(client(channel, advice=qemu.advice, breakpoint_kind=kind))
        return drivers.Connection(
            board,
            "virtual",
            f"VIRTUAL board, emulated by QEMU ({emulator.machine})"
            + (", with a MODEL of its cycles" if board.timing else "")
            + (f", with a model of {', '.join(board.accelerator)} beside it" if neighbour else ""),
            caps,
            setup.logs,
            probe="QEMU's GDB stub without OpenOCD",
            port=debug_port.QemuPort(gdb, live=False, attended=neighbour.symbol if neighbour else ""),
            console=drivers.open_console(setup, board, qemu.console) if board.line else None,
            services=(qemu,),
            emulated=True,
            unit="modelled cycles" if board.timing else None,
        )

    return drivers.ReachableBoard(board, drivers.BoardIdentity(board.full_name, "virtual"), caps, "qemu", start)


def _describe(board: Board) -> tuple[str, str]:
    emulator = _emulator(board)
    return "emulated", f"by QEMU: {emulator.program} -M {emulator.machine}; no OpenOCD"


DRIVER = drivers.Driver(
    name="qemu",
    rank=40,
    supports=lambda board: board.virtual.emulator is not None,
    find=_find,
    describe=_describe,
    refusal="is emulated: there is no physical one here",
)
