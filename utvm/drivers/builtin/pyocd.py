# SPDX-License-Identifier: Apache-2.0
"""pyOCD in place of OpenOCD: in front of a probe on this computer's USB, or of our model's own CMSIS-DAP probe."""

from utvm.boards import Board
from utvm.boards.parts import PyOcdPart
from utvm.drivers.builtin.usb import kind_of, on_usb
from utvm.drivers.connection import Connection
from utvm.drivers.driver import Driver, DriverOptions, ReachableBoard, Setup
from utvm.drivers.openocd import check_identity, open_console
from utvm.probe.choice import find_probe, match_of, taken
from utvm.probe.debug_port import PyOcdPort
from utvm.probe.pyocd.client import PyOcdClient
from utvm.probe.pyocd.pack import pack_for
from utvm.probe.pyocd.server import PyOcd, uid_of
from utvm.probe.virtual import UsbProbe, start_virtual

_WORTH_MOVING = 64 * 1024
"""Of :class:`utvm.drivers.Connection`: its server's packets carry a kilobyte."""


def _part(board: Board) -> PyOcdPart | None:
    return board.physical.pyocd if board.physical else None


def _find(board: Board, asked: DriverOptions) -> ReachableBoard | None:
    probe = find_probe(board, asked.wish, asked.serial)
    if probe is not None:
        able = board.capabilities_of(kind_of(probe), match_of(board, probe))

        def start_physical(setup: Setup) -> Connection:
            now = setup.stack.enter_context(taken(board, probe, asked.wait, setup.say))
            return on_usb(
                board,
                now,
                setup,
                able,
                lambda ready: _serve(setup, board, uid_of(ready.kind, ready.serial)),
                worth_moving=_WORTH_MOVING,
            )

        return ReachableBoard(board, kind_of(probe), able, "pyocd", start_physical, probe, probe.serial)
    if board.virtual.model is None or asked.wish == "physical":
        return None
    able = board.capabilities_of("virtual")

    def start_model(setup: Setup) -> Connection:
        return _on_model(board, setup, able, asked.latency_us)

    return ReachableBoard(board, "virtual", able, "pyocd", start_model, serial=board.model.serial)


def _on_model(board: Board, setup: Setup, able: frozenset[str], latency_us: int) -> Connection:
    """Start our model with its probe plugged into a socket, and pyOCD with that socket for its USB."""
    machine = setup.stack.enter_context(
        start_virtual(board, setup.logs, latency_us=latency_us, usb=UsbProbe("cmsis-dap", "0"))
    )
    assert machine.health_match and board.physical
    server, port = _serve(setup, board, board.model.serial, int(machine.health_match["usb"]))
    check_identity(board.name, board.physical.identity, port.gdb, board.model.serial)
    return Connection(
        board,
        "virtual",
        "VIRTUAL board, a software model",
        able,
        setup.logs,
        probe="virtual CMSIS-DAP on a socket in place of USB",
        serial=board.model.serial,
        port=port,
        console=open_console(setup, board, f"socket://127.0.0.1:{machine.health_match['console']}"),
        services=(machine, server),
        machine=machine,
        worth_moving=_WORTH_MOVING,
    )


def _serve(setup: Setup, board: Board, serial: str, usb_port: int | None = None) -> tuple[PyOcd, PyOcdPort]:
    part = _part(board)
    assert part
    log = setup.logs / "pyocd.log"
    pack = pack_for(board, part, setup.logs)
    server = PyOcd(part, pack, serial=serial, log=log, usb_port=usb_port, port=setup.gdb_port)
    setup.stack.enter_context(server)
    client = PyOcdClient(server.gdb_port, breakpoint_kind=board.cpu_row.breakpoint_kind)
    gdb = setup.stack.enter_context(client)
    return server, PyOcdPort(gdb, live="memory while running" in board.capabilities)


def _tell(board: Board) -> tuple[str, str] | None:
    part = _part(board)
    return ("pyocd", f"{part.target}{f', of {part.pack}' if part.pack else ''}") if part else None


WAY = Driver(
    name="pyocd",
    rank=25,
    serves=lambda board: _part(board) is not None,
    find=_find,
    tell=_tell,
    refusal="can only be plugged in: no such one is here",
    slows=True,
)
