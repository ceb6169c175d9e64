# SPDX-License-Identifier: Apache-2.0
"""A board on this computer's USB, behind a probe that OpenOCD drives."""

from collections.abc import Callable
from typing import Literal

from utvm import boards, drivers, errors
from utvm.base.text.quoting import tcl
from utvm.drivers import check_identity, connection, start_openocd
from utvm.drivers.connection import Connection
from utvm.errors import ProbeError
from utvm.probe import HINTS, choice, debug_port, usb, vitals
from utvm.probe.debug_port import OpenOcdPort
from utvm.probe.usb import serial_ports
from utvm.selection import BoardSelection


def _find(board: boards.Board, selection: BoardSelection) -> drivers.ReachableBoard | None:
    probe = choice.find_probe(board, selection.kind, selection.serial)
    if probe is None:
        return None
    kind = kind_of(probe)
    capabilities = board.capabilities_of(kind, choice.match_of(board, probe))

    def start(setup: drivers.Setup) -> connection.Connection:
        held = setup.stack.enter_context(choice.hold_probe(board, probe, selection.wait, setup.say))
        return on_usb(board, held, setup, capabilities, lambda usable: _serve(setup, board, usable, capabilities))

    identity = drivers.BoardIdentity(board.full_name, kind, probe.kind, probe.serial_number)
    return drivers.ReachableBoard(board, identity, capabilities, "openocd", start, probe)


def kind_of(probe: usb.Probe) -> Literal["virtual", "physical"]:
    """Kind of the board behind a probe, by its USB strings."""
    return "virtual" if probe.virtual else "physical"


def _serve(
    setup: drivers.Setup, board: boards.Board, probe: usb.Probe, caps: frozenset[str]
) -> tuple[connection.Checkable, debug_port.DebugPort]:
    match = choice.match_of(board, probe)
    assert board.physical and match
    commands = [board.physical.select_serial.format(serial=tcl(probe.serial_number))]
    if probe.by_path:
        commands.append(f"adapter usb location {probe.usb_path}")
    try:
        openocd, gdb = start_openocd(setup, board, commands, match.openocd)
    except ProbeError as error:
        # Firmware in a low-power mode, or that switches its debug pins off, is reached while held in reset.
        if error.hint != HINTS["no_answer"]:
            raise
        setup.say("the chip does not answer; trying again under reset")
        commands += ["reset_config connect_assert_srst", "lappend post_init_commands {reset halt}"]
        openocd, gdb = start_openocd(setup, board, commands, match.openocd)
    return openocd, OpenOcdPort(gdb, live="memory while running" in caps)


def on_usb(
    board: boards.Board,
    probe: usb.Probe,
    setup: drivers.Setup,
    caps: frozenset[str],
    serve: Callable[[usb.Probe], tuple[connection.Checkable, debug_port.DebugPort]],
    worth_moving: int = connection.WORTH_MOVING,
) -> connection.Connection:
    """Open the board behind a probe; ``serve`` starts the server that drives the probe."""
    physical = board.physical
    assert physical
    kind = kind_of(probe)
    state = _make_ready(probe, setup)
    try:
        server, port = serve(state.probe)
    except errors.ProbeError:
        # The query may have hung the probe.
        state = _make_ready(state.probe, setup, may_reset=not state.was_reset)
        if not state.was_reset:
            raise
        server, port = serve(state.probe)
    probe = state.probe
    check_identity(board.name, physical.identity, port.gdb, probe.serial_number)
    path = probe.usb_path if probe.by_path else ""
    console_url = next(iter(serial_ports(probe.serial_number, physical.console_interface, path)), None)
    return Connection(
        board,
        kind,
        "VIRTUAL board, a software model" if kind == "virtual" else "PHYSICAL board",
        caps,
        setup.logs,
        probe=f"{'virtual ' if probe.virtual else ''}{probe.kind} at USB {probe.usb_path}"
        + (", which did not answer and was reset" if state.was_reset else "")
        + (f"; {state.vitals.full_name}" if state.vitals.full_name else ""),
        serial=probe.serial_number,
        port=port,
        console=drivers.open_console(setup, board, console_url) if console_url else None,
        services=(probe, server),
        worth_moving=worth_moving,
    )


def _make_ready(probe: usb.Probe, setup: drivers.Setup, *, may_reset: bool = True) -> vitals.Readiness:
    state = vitals.make_ready(probe, may_reset=may_reset)
    if state.was_reset:
        setup.say(f"the {probe.full_name} did not answer: it was reset on USB, and answers again")
    return state


DRIVER = drivers.Driver(
    name="usb",
    rank=10,
    supports=lambda board: board.by_openocd,
    find=_find,
    describe=lambda board: ("openocd", str(board.openocd_config)),
    refusal="can only be plugged in: none is connected",
)
