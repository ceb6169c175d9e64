# SPDX-License-Identifier: Apache-2.0
"""A software model behind JTAG pins, which OpenOCD drives through a socket (remote_bitbang)."""

from utvm import drivers
from utvm.base.text.quoting import tcl
from utvm.boards import Board, bitstream, parts
from utvm.probe import debug_port, virtual
from utvm.selection import BoardSelection


def _model(board: Board) -> parts.JtagModel:
    assert board.virtual.jtag
    return board.virtual.jtag


def _find(board: Board, selection: BoardSelection) -> drivers.ReachableBoard | None:
    if selection.kind == "physical" or selection.serial:
        return None
    model = _model(board)
    caps = board.capabilities_with(model.lacks, "OpenOCD")

    def start(setup: drivers.Setup) -> drivers.Connection:
        machine = setup.stack.enter_context(virtual.start_jtag(board, setup.logs, bitstream.loaded_bitstream(board)))
        assert machine.health_match
        select = model.probe.format(pins=tcl(machine.health_match["pins"]))
        openocd, gdb = drivers.start_openocd(setup, board, [select], model.openocd)
        return drivers.Connection(
            board,
            "virtual",
            "VIRTUAL board, a software model"
            + (f", with a model of {', '.join(board.accelerator)} on its bus" if virtual.on_bus(board) else ""),
            caps,
            setup.logs,
            probe="JTAG by remote_bitbang",
            port=debug_port.OpenOcdPort(gdb, live="memory while running" in caps, load=model.load),
            console=drivers.open_console(setup, board, f"socket://127.0.0.1:{machine.health_match['console']}"),
            services=(machine, openocd),
            emulated=True,
            worth_moving=drivers.WORTH_MOVING_BY_BITBANG,
        )

    return drivers.ReachableBoard(board, drivers.BoardIdentity(board.full_name, "virtual"), caps, "openocd", start)


DRIVER = drivers.Driver(
    name="jtag",
    rank=35,
    supports=lambda board: board.virtual.jtag is not None,
    find=_find,
    describe=lambda _: ("modelled", "by us, through OpenOCD and remote_bitbang"),
    refusal="is a software model: there is no physical one here",
)
