# SPDX-License-Identifier: Apache-2.0
"""A board on this computer's USB, behind a probe that OpenOCD drives."""

from typing import Literal

from utvm.bench.bench import Bench
from utvm.bench.openocd import check_identity, open_console, start_openocd
from utvm.bench.way import Asked, Found, Setup, Way
from utvm.boards import Board
from utvm.errors import ProbeError
from utvm.probe.choice import find_probe, match_of, taken
from utvm.probe.debug_port import OpenOcdPort
from utvm.probe.usb import Probe, serial_ports
from utvm.probe.vitals import Readiness, make_ready


def _find(board: Board, asked: Asked) -> Found | None:
    probe = find_probe(board, asked.wish, asked.serial)
    if probe is None:
        return None
    kind = _kind(probe)
    able = board.capabilities_of(kind, match_of(board, probe))

    def start(setup: Setup) -> Bench:
        return _start(board, setup.stack.enter_context(taken(board, probe, asked.wait, setup.say)), setup)

    return Found(board, kind, able, "openocd", start, probe, probe.serial)


def _kind(probe: Probe) -> Literal["virtual", "physical"]:
    return "virtual" if probe.virtual else "physical"


def _start(board: Board, probe: Probe, setup: Setup) -> Bench:
    """Start OpenOCD on a probe: that of a physical board, or one of a virtual board that says so."""
    physical = board.physical
    match = match_of(board, probe)
    assert physical and match
    kind = _kind(probe)
    able = board.capabilities_of(kind, match)
    commands = [physical.select_serial.format(serial=probe.serial)]
    ready = _make_ready(probe, setup)
    try:
        openocd, gdb = start_openocd(setup, board, commands, match.openocd)
    except ProbeError:
        # It may hang since OpenOCD spoke to it.
        ready = _make_ready(ready.probe, setup, may_reset=not ready.was_reset)
        if not ready.was_reset:
            raise
        openocd, gdb = start_openocd(setup, board, commands, match.openocd)
    probe = ready.probe
    check_identity(board.name, physical.identity, gdb, probe.serial)
    console_url = next(iter(serial_ports(probe.serial, physical.console_interface)), None)
    return Bench(
        board,
        kind,
        "VIRTUAL board, a software model" if kind == "virtual" else "PHYSICAL board",
        able,
        setup.logs,
        probe=f"{'virtual ' if probe.virtual else ''}{probe.kind} at USB {probe.usb_path}"
        + (", which did not answer and was reset" if ready.was_reset else ""),
        serial=probe.serial,
        port=OpenOcdPort(gdb, live="memory while running" in able),
        console=open_console(setup, board, console_url) if console_url else None,
        services=(probe, openocd),
    )


def _make_ready(probe: Probe, setup: Setup, *, may_reset: bool = True) -> Readiness:
    ready = make_ready(probe, may_reset=may_reset)
    if ready.was_reset:
        setup.say(f"the {probe.spoken} did not answer: it was reset on USB, and answers again")
    return ready


WAY = Way(
    name="usb",
    rank=10,
    serves=lambda board: board.physical is not None,
    find=_find,
    tell=lambda board: ("openocd", str(board.openocd_config)),
    refusal="can only be plugged in: no such one is here",
)
