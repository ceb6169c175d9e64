# SPDX-License-Identifier: Apache-2.0
"""A software model in its own process, behind OpenOCD."""

from utvm import drivers
from utvm.base.text.quoting import tcl
from utvm.boards import Board
from utvm.probe import debug_port, virtual
from utvm.selection import BoardSelection


def _find(board: Board, selection: BoardSelection) -> drivers.ReachableBoard | None:
    if selection.kind == "physical" or selection.serial:
        return None
    capabilities = board.capabilities_of("virtual")

    def start(setup: drivers.Setup) -> drivers.Connection:
        machine = setup.stack.enter_context(virtual.start_virtual(board, setup.logs, latency_us=selection.latency_us))
        assert machine.health_match and board.physical
        commands = [board.model.probe.format(port=tcl(machine.health_match["stlink"]))]
        openocd, gdb = drivers.start_openocd(setup, board, commands)
        drivers.check_identity(board.name, board.physical.identity, gdb, board.model.serial_number)
        return drivers.Connection(
            board,
            "virtual",
            "VIRTUAL board, a software model"
            + (", with a MODEL of its cycles" if board.timing else "")
            + (f", with a model of {', '.join(board.accelerator)} on its bus" if virtual.on_bus(board) else ""),
            capabilities,
            setup.logs,
            probe="virtual ST-Link",
            serial=board.model.serial_number,
            port=debug_port.OpenOcdPort(gdb, live="memory while running" in capabilities),
            console=drivers.open_console(setup, board, f"socket://127.0.0.1:{machine.health_match['console']}"),
            services=(machine, openocd),
            machine=machine,
            unit="modelled cycles" if board.timing else None,
        )

    identity = drivers.BoardIdentity(board.full_name, "virtual", serial=board.model.serial_number)
    return drivers.ReachableBoard(board, identity, capabilities, "openocd", start)


DRIVER = drivers.Driver(
    name="model",
    rank=20,
    supports=lambda board: board.virtual.model is not None and board.by_openocd,
    find=_find,
    describe=lambda _: None,
    refusal="is a software model: there is no physical one here",
    has_latency=True,
)
