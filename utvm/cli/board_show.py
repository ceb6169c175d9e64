# SPDX-License-Identifier: Apache-2.0
"""What ``board.*`` commands print."""

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from rich.table import Table
from rich.text import Text

from utvm import boards, firmware
from utvm.base.process.peer import access_note
from utvm.base.process.service import Service
from utvm.base.text.quoting import printable
from utvm.boards import Board
from utvm.boards.accelerators import accelerator_of
from utvm.boards.bitstream import loaded_bitstream
from utvm.cli.choices import CompiledChoice, JsonChoice
from utvm.cli.compiling import compiling
from utvm.cli.model_library import load_named
from utvm.cli.output import OUT, check_json, logs_of, write_json
from utvm.drivers import drivers_for
from utvm.errors import ConfigError, DoesNotFitError
from utvm.probe.choice import ids_of, match_of
from utvm.probe.usb import Probe, detect
from utvm.probe.virtual import UsbProbe, start_jtag, start_virtual
from utvm.probe.vitals import examine
from utvm.session.board_holder import executor_for
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, SERIAL_NUMBER

_LAST_PORT = 65535
_MOST_MILLIVOLTS = 5500  # that an ST-Link measures
_DEFAULT_PORT = 7184  # OpenOCD's default for st-link


def list_fitting(asked: CompiledChoice, wanted: JsonChoice) -> None:
    """Print what a model's firmware takes of each board that has memory of its own."""
    check_json(wanted)
    model = load_named(asked)
    table = Table("board", "fits", "flash", "RAM", "else", box=None)
    found: list[dict[str, Any]] = []
    for name in boards.names():
        board = boards.load(name)
        if not board.memory:
            continue
        if asked.explain:
            OUT.print(f"{name}:")
        try:
            with compiling(model.origin, asked.explain):
                library = firmware.compile_for(board, model)
            image = firmware.build(board, [library], executor_for(board.capabilities))
        except DoesNotFitError as error:
            table.add_row(name, "no", "", "", printable(error.message))
            found.append({"name": name, "fits": False, "why": error.message})
        else:
            flash, ram = image.flash_bytes, image.ram_bytes
            table.add_row(name, "yes", f"{flash:,}", f"{ram:,}", "")
            found.append({"name": name, "fits": True, "flash_bytes": flash, "ram_bytes": ram})
    if not write_json(wanted, {"model": asked.model, "boards": found}):
        OUT.print(table)


def show_board(name: str, wanted: JsonChoice) -> None:
    """Print what is known of one board."""
    check_json(wanted)
    board = boards.load(name)
    if write_json(wanted, _content(board)):
        return
    OUT.print(Text.assemble((board.name, "bold"), f"  {board.title}"))
    OUT.print(f"  folder     {board.directory}")
    OUT.print(f"  toolchain  {board.toolchain}, {board.cpu}")
    OUT.print(f"  clock      {board.clock_hz / 1e6:g} MHz")
    if board.line:
        OUT.print(f"  console    {board.line.name}, {board.line.baud} baud")
    if board.accelerator:
        OUT.print(f"  beside it  the accelerator {accelerator_of(board).identity}")
    for told in (driver.describe(board) for driver in drivers_for(board)):
        if told:
            OUT.print(f"  {told[0]:<9}  {told[1]}")
    if len(reached := [driver.name for driver in drivers_for(board)]) > 1:
        OUT.print(f"  driver     the first that is there of {', '.join(reached)}; --board NAME:driver=VALUE")
    for setting, values in board.choices.items():
        others = ", ".join(value for value in values if value != board.settings[setting])
        OUT.print(
            f"  setting    {setting}={board.settings[setting]} (also: {others}); --board NAME:{setting}=VALUE"
        )
    if not board.memory:
        return
    OUT.print(
        f"  layout     code in {board.layout.code}, data in {board.layout.data}, "
        f"stack of {board.layout.stack_size} B in {board.layout.stack}"
    )
    table = Table("memory", "address", "size", "kind", box=None)
    for region in board.memory:
        kind = f"{region.kind} ({region.alias_of} on another bus)" if region.alias_of else region.kind
        table.add_row(region.name, f"{region.address:#010x}", f"{region.size // 1024} KiB", kind)
    OUT.print(table)


def _content(board: Board) -> dict[str, Any]:
    """Return what the JSON has of a board."""
    line = board.line
    return {
        "name": board.name,
        "title": board.title,
        "folder": str(board.directory),
        "toolchain": board.toolchain,
        "cpu": board.cpu,
        "clock_hz": board.clock_hz,
        "console": None if line is None else {"name": line.name, "baud": line.baud},
        "accelerator": accelerator_of(board).identity if board.accelerator else None,
        "reached_by": [driver.name for driver in drivers_for(board)],
        "settings": {
            name: {"chosen": board.settings[name], "of": list(values)} for name, values in board.choices.items()
        },
        "memory": [
            {"name": region.name, "address": region.address, "size": region.size, "kind": region.kind}
            for region in board.memory
        ],
    }


def detect_boards(wanted: JsonChoice) -> None:
    """Print the debug probes on this machine's USB, each with the boards that it may belong to."""
    check_json(wanted)
    known = boards.probe_boards()
    detection = detect([each for board in known for each in ids_of(board)])
    said = {probe: examine(probe) for probe in detection.probes}
    content = [
        dataclasses.asdict(probe) | {"boards": _candidates(probe, known), "it_says": said[probe].spoken}
        for probe in detection.probes
    ]
    if write_json(wanted, {"problem": detection.problem or "", "probes": content}):
        return
    if detection.problem:
        OUT.print(f"no USB here: {detection.problem}")
    if not detection.probes:
        OUT.print("no debug probe found; virtual boards need none: ./inv hil --board stm32f746 --virtual")
        return
    table = Table("probe", "vendor:product", "serial", "USB path", "boards it may be", "it says", box=None)
    for probe in detection.probes:
        table.add_row(
            f"VIRTUAL {probe.kind}" if probe.virtual else probe.kind,
            f"{probe.vendor:04x}:{probe.product:04x}",
            probe.serial or "(unreadable)",
            probe.usb_path,
            ", ".join(_candidates(probe, known)),
            said[probe].spoken,
        )
    OUT.print(table)
    for probe, vitals in said.items():
        if remark := probe.problem or vitals.remark:
            OUT.print(f"{probe.usb_path}: {remark}")
    OUT.print("choose one by serial: ./inv hil --board BOARD --serial SERIAL")


def _candidates(probe: Probe, known: Sequence[Board]) -> list[str]:
    return [board.name for board in known if match_of(board, probe)]


def serve_virtual(
    name: str,
    port: str,
    latency_us: int,
    millivolts: int,
    *,
    usb: str = "",
    listen: str = "",
    serial: str = "",
    anyone: bool = False,
) -> None:
    """Keep a virtual board running until Ctrl-C, and print how to reach it.

    Args:
        port: of its ST-Link on TCP; by default OpenOCD's own, or any free one where a probe is on USB.
        millivolts: of its supply; with too little of it the board is dead, and its probe lives.
        usb: the kind of its probe on USB, or nothing.
        listen: the socket of that probe.
        serial: of its probes; the board's own if empty.
        anyone: whether other users of this computer may connect.
    """
    board = boards.load_chip(name)
    if jtag := board.virtual.jtag:
        if port or latency_us or millivolts != NOMINAL_MILLIVOLTS or usb or listen or serial or anyone:
            raise ConfigError(f"{board.name} has JTAG pins and no probe of its own", "leave the options out")
        pins = start_jtag(board, logs_of("board.virtual"), loaded_bitstream(board))
        with _kept(pins):
            way = _openocd(board, jtag.probe, jtag.openocd, pins=_doors(pins)["pins"])
            _tell_doors(board, pins, way, anyone=False)
        return
    if board.virtual.model is None:
        raise ConfigError(
            f"{board.name} is emulated by QEMU: it has no virtual probe for an OpenOCD",
            "./inv hil, model.run and board.serve take it; for this, name another board (./inv board.list)",
        )
    probe = _usb_probe(usb, listen)
    if serial and not SERIAL_NUMBER.fullmatch(serial):
        raise ConfigError(f"--serial {serial!r} is no serial number", "1 to 32 letters, digits and signs")
    tcp_port = _port_of(port or ("0" if probe else str(_DEFAULT_PORT)), latency_us, millivolts)
    machine = start_virtual(
        board,
        logs_of("board.virtual"),
        port=tcp_port,
        latency_us=latency_us,
        serial=serial,
        millivolts=millivolts,
        usb=probe,
        anyone=anyone,
    )
    with _kept(machine):
        port = _doors(machine)["stlink"]
        served = f"TCP port {port} of 127.0.0.1, an ST-Link's; on USB: --usb cmsis-dap --listen 0"
        way = _openocd(board, board.model.probe, port=port) if board.by_openocd else served
        _tell_doors(board, machine, way, anyone=anyone)
        _tell_switches(machine, probe, serial or board.model.serial)


def _port_of(text: str, latency_us: int, millivolts: int) -> int:
    """Read a TCP port, and check the other numbers."""
    if not text.isdecimal():
        raise ConfigError(f"--port {text!r} is no number", "port 0 takes any free one")
    if int(text) > _LAST_PORT or latency_us < 0:
        raise ConfigError(f"--port goes from 0 to {_LAST_PORT}, --latency from 0", "port 0 takes any free one")
    if not 0 <= millivolts <= _MOST_MILLIVOLTS:
        raise ConfigError(f"--millivolts goes from 0 to {_MOST_MILLIVOLTS}", "a board that works has 3300")
    return int(text)


@contextlib.contextmanager
def _kept(machine: Service) -> Iterator[None]:
    """Start a virtual board, and wait for Ctrl-C once what is to be said of it has been said."""
    # From the line on that promises it, not only while it waits.
    with machine, contextlib.suppress(KeyboardInterrupt):
        yield
        while True:
            machine.check()
            time.sleep(0.2)


def _doors(machine: Service) -> re.Match[str]:
    assert machine.health_match
    return machine.health_match


def _openocd(board: Board, probe: str, script: str = "openocd.cfg", **doors: str) -> str:
    return f"openocd -f {board.directory / script} -c '{probe.format(**doors)}'"


def _tell_doors(board: Board, machine: Service, way: str, *, anyone: bool) -> None:
    OUT.print(f"VIRTUAL {board.name} is running; {access_note(anyone=anyone)}; Ctrl-C ends it")
    OUT.print(f"  debug port: {way}")
    OUT.print(f"  console:    TCP port {_doors(machine)['console']} of 127.0.0.1")


def _tell_switches(machine: Service, probe: UsbProbe | None, serial: str) -> None:
    """Print how to switch it."""
    if probe:
        plug = _doors(machine)["usb"]
        place = plug if plug.startswith("unix:") else f"TCP port {plug} of 127.0.0.1"
        OUT.print(f"  USB:        {probe.kind} {serial}, usbredir on {place}")
        OUT.print(f"  unplug:     kill -USR2 {machine.pid}; whoever connects again plugs in")
    OUT.print(f"  power off and on: kill -USR1 {machine.pid}")


def _usb_probe(kind: str, listen: str) -> UsbProbe | None:
    """Understand --usb and --listen."""
    if not kind and not listen:
        return None
    if kind not in ("st-link", "cmsis-dap"):
        known = "--usb st-link or --usb cmsis-dap"
        raise ConfigError(f"--usb {kind}: there is no such probe" if kind else "--usb is missing", known)
    is_port = listen.isdecimal() and int(listen) <= _LAST_PORT
    is_path = listen.startswith("unix:") and listen != "unix:"
    if not is_port and not is_path:
        raise ConfigError(
            f"--listen {listen}: is no socket" if listen else "--listen is missing",
            "--listen unix:PATH, or a TCP port, 0 for any free one",
        )
    if is_path and not Path(listen.removeprefix("unix:")).parent.is_dir():
        raise ConfigError(f"--listen {listen}: its folder does not exist")
    return UsbProbe(cast(Literal["st-link", "cmsis-dap"], kind), listen)
