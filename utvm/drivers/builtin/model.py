# SPDX-License-Identifier: Apache-2.0
"""A software model in its own process, behind OpenOCD."""

from utvm.base.text.quoting import tcl
from utvm.boards import Board
from utvm.drivers.connection import Connection
from utvm.drivers.driver import (
    BoardIdentity,
    Driver,
    ReachableBoard,
    Setup,
    check_identity,
    open_console,
    start_openocd,
)
from utvm.probe.debug_port import OpenOcdPort
from utvm.probe.virtual import on_bus, start_virtual, unmodelled
from utvm.selection import BoardSelection


def _find(board: Board, wanted: BoardSelection) -> ReachableBoard | None:
    if wanted.kind == "physical" or wanted.serial:
        return None
    able = board.capabilities_of("virtual")

    def start(setup: Setup) -> Connection:
        setup.stack.callback(_name_unmodelled, setup)  # after the model has ended
        machine = setup.stack.enter_context(
            start_virtual(board, setup.logs, latency_us=wanted.latency_us, waits=wanted.wait_states)
        )
        assert machine.health_match and board.physical
        commands = [board.model.probe.format(port=tcl(machine.health_match["stlink"]))]
        openocd, gdb = start_openocd(setup, board, commands)
        check_identity(board.name, board.physical.identity, gdb, board.model.serial)
        return Connection(
            board,
            "virtual",
            "VIRTUAL board, a software model"
            + (", with a MODEL of waits for flash, which no chip has confirmed" if wanted.wait_states else "")
            + (f", with a model of {', '.join(board.accelerator)} on its bus" if on_bus(board) else ""),
            able,
            setup.logs,
            probe="virtual ST-Link",
            serial=board.model.serial,
            port=OpenOcdPort(gdb, live="memory while running" in able),
            console=open_console(setup, board, f"socket://127.0.0.1:{machine.health_match['console']}"),
            services=(machine, openocd),
            machine=machine,
            unit="modelled cycles" if wanted.wait_states else None,
        )

    identity = BoardIdentity(board.full_name, "virtual", serial=board.model.serial)
    return ReachableBoard(board, identity, able, "openocd", start)


def _name_unmodelled(setup: Setup) -> None:
    touched = [f"{name} {place}" for name, place in unmodelled(setup.logs).items()]
    if touched:
        setup.say(f"the firmware uses peripherals that the virtual board has no model of: {'; '.join(touched)}")


DRIVER = Driver(
    name="model",
    rank=20,
    supports=lambda board: board.virtual.model is not None and board.by_openocd,
    find=_find,
    describe=lambda _: None,
    refusal="is a software model: there is no physical one here",
    has_latency=True,
)
