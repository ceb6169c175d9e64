# SPDX-License-Identifier: Apache-2.0
"""pyOCD in place of OpenOCD, for a probe on this computer's USB or the software model's CMSIS-DAP probe."""

from pathlib import Path

from utvm.base.storage.temporary import private_folder
from utvm.boards import Board
from utvm.boards.parts import PyOcdPart
from utvm.drivers import connection, driver
from utvm.drivers.builtin.usb import kind_of, on_usb
from utvm.errors import ConfigError
from utvm.probe.choice import find_probe, hold_probe, match_of
from utvm.probe.debug_port import PyOcdPort
from utvm.probe.pyocd.client import PyOcdClient
from utvm.probe.pyocd.server import PyOcd, pack_for, uid_of
from utvm.probe.virtual import UsbProbe, start_virtual
from utvm.selection import BoardSelection

_WORTH_MOVING = 64 * 1024
"""See :class:`utvm.drivers.Connection`: the server's packets carry a kilobyte."""


def _part(board: Board) -> PyOcdPart | None:
    return board.physical.pyocd if board.physical else None


def _find(board: Board, selection: BoardSelection) -> driver.ReachableBoard | None:
    probe = find_probe(board, selection.kind, selection.serial)
    if probe is not None:
        if probe.by_path:
            raise ConfigError(
                f"pyOCD selects a probe only by its serial number, and two have {probe.serial_number}", "use OpenOCD"
            )
        caps = board.capabilities_of(kind_of(probe), match_of(board, probe))

        def start_physical(setup: driver.Setup) -> connection.Connection:
            held_probe = setup.stack.enter_context(hold_probe(board, probe, selection.wait, setup.say))
            return on_usb(
                board,
                held_probe,
                setup,
                caps,
                lambda probe: _serve(setup, board, uid_of(probe.kind, probe.serial_number)),
                worth_moving=_WORTH_MOVING,
            )

        identity = driver.BoardIdentity(board.full_name, kind_of(probe), probe.kind, probe.serial_number)
        return driver.ReachableBoard(board, identity, caps, "pyocd", start_physical, probe)
    if board.virtual.model is None or selection.kind == "physical":
        return None
    caps = board.capabilities_of("virtual")

    def start_model(setup: driver.Setup) -> connection.Connection:
        return _on_model(board, setup, caps, selection.latency_us)

    identity = driver.BoardIdentity(board.full_name, "virtual", serial=board.model.serial_number)
    return driver.ReachableBoard(board, identity, caps, "pyocd", start_model)


def _on_model(board: Board, setup: driver.Setup, caps: frozenset[str], latency_us: int) -> connection.Connection:
    plug = setup.stack.enter_context(private_folder()) / "usb"
    machine = setup.stack.enter_context(
        start_virtual(board, setup.logs, latency_us=latency_us, usb=UsbProbe("cmsis-dap", f"unix:{plug}"))
    )
    assert machine.health_match and board.physical
    server, port = _serve(setup, board, board.model.serial_number, plug)
    driver.check_identity(board.name, board.physical.identity, port.gdb, board.model.serial_number)
    return connection.Connection(
        board,
        "virtual",
        "VIRTUAL board, a software model" + (", with a MODEL of its cycles" if board.timing else ""),
        caps,
        setup.logs,
        probe="virtual CMSIS-DAP on a socket in place of USB",
        serial=board.model.serial_number,
        port=port,
        console=driver.open_console(setup, board, f"socket://127.0.0.1:{machine.health_match['console']}"),
        services=(machine, server),
        machine=machine,
        unit="modelled cycles" if board.timing else None,
        worth_moving=_WORTH_MOVING,
    )


def _serve(setup: driver.Setup, board: Board, serial: str, usb: Path | None = None) -> tuple[PyOcd, PyOcdPort]:
    part = _part(board)
    assert part
    log = setup.logs / "pyocd.log"
    pack = pack_for(board, part, setup.logs)
    server = PyOcd(part, pack, serial=serial, log=log, usb=usb)
    setup.stack.enter_context(server)
    client = PyOcdClient(server.gdb, breakpoint_kind=board.cpu_row.breakpoint_kind)
    gdb = setup.stack.enter_context(client)
    return server, PyOcdPort(gdb, live="memory while running" in board.capabilities)


def _describe(board: Board) -> tuple[str, str] | None:
    part = _part(board)
    return ("pyocd", f"{part.target}{f', of {part.pack}' if part.pack else ''}") if part else None


DRIVER = driver.Driver(
    name="pyocd",
    rank=25,
    supports=lambda board: _part(board) is not None,
    find=_find,
    describe=_describe,
    refusal="can only be plugged in: none is connected",
    has_latency=True,
)
