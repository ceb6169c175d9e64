# SPDX-License-Identifier: Apache-2.0
"""``board.show``, ``board.detect``, ``board.virtual`` and ``board.list --fits``."""

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from rich.text import Text

from utvm import boards, drivers, firmware
from utvm.base.process import Service, peer
from utvm.boards import Board, accelerators, bitstream, parts
from utvm.cli import choices, compiling
from utvm.cli.output import OUT, logs_of, show_progress
from utvm.environment.machine import libvirt
from utvm.errors import ConfigError, DoesNotFitError
from utvm.probe.choice import ids_of, match_of
from utvm.probe.usb import Probe, detect
from utvm.probe.virtual import UsbProbe, start_jtag, start_virtual
from utvm.probe.vitals import examine
from utvm.session.board_holder import executor_for
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, SERIAL_NUMBER
from utvm.virtual.stlink import PRODUCTS

_LAST_PORT = 65535
_MAX_MILLIVOLTS = 5500  # limit of an ST-Link
_DEFAULT_PORT = 7184  # OpenOCD's default for st-link


def list_fitting(choice: choices.ModelChoice) -> None:
    model = compiling.load_model(choice)
    fitting: list[dict[str, Any]] = []
    known = [board for board in map(boards.load, boards.names()) if board.memory]
    with show_progress(f"compiling and linking: board 0 of {len(known)}") as step:
        for number, board in enumerate(known):
            step(f"compiling and linking: board {number} of {len(known)}")
            try:
                library = firmware.compile_for(board, model)
                image = firmware.build(board, [library], executor_for(board.capabilities))
            except DoesNotFitError as error:
                fitting.append({"name": board.name, "fits": False, "why": error.message})
            else:
                sizes = {"flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes}
                fitting.append({"name": board.name, "fits": True, **sizes})
    OUT.table(
        ("board", "fits", ">flash", ">RAM", "reason"),
        rows=[
            (board["name"], "yes" if board["fits"] else "no", *map(board.get, ("flash_bytes", "ram_bytes", "why")))
            for board in fitting
        ],
    )
    OUT.results({"model": choice.model, "boards": fitting})


def show_board(name: str) -> None:
    board = boards.load(name)
    OUT.results(_content(board))
    OUT.print(Text.assemble((board.name, "bold"), f"  {board.title}"))
    OUT.print(f"  folder     {board.directory}")
    OUT.print(f"  toolchain  {board.toolchain}, {board.cpu}")
    OUT.print(f"  clock      {board.clock_hz / 1e6:g} MHz")
    if board.line:
        OUT.print(f"  console    {board.line.name}, {board.line.baud} baud")
    if board.accelerator:
        OUT.print(f"  beside it  the accelerator {accelerators.accelerator_of(board).identity}")
    for note in filter(None, (driver.describe(board) for driver in drivers.drivers_for(board))):
        OUT.print(f"  {note[0]:<9}  {note[1]}")
    if len(reached := [driver.name for driver in drivers.drivers_for(board)]) > 1:
        OUT.print(f"  driver     the first available of {', '.join(reached)}; --board NAME:driver=VALUE")
    for setting, values in board.choices.items():
        others = ", ".join(value for value in values if value != board.settings[setting])
        OUT.print(f"  setting    {setting}={board.settings[setting]} (also: {others}); --board NAME:{setting}=VALUE")
    if not board.memory:
        return
    OUT.print(
        f"  layout     code in {board.layout.code}, data in {board.layout.data}, "
        f"stack of {board.layout.stack_size} B in {board.layout.stack}"
    )
    _print_pinout(board.pinout or parts.Pinout.model_construct(note="not described (key pinout, docs/porting.md)"))
    _print_memory(board)


def _print_pinout(pinout: parts.Pinout) -> None:
    for purpose, pins in pinout.pins.items():
        OUT.print(f"  pins       {purpose}: {', '.join(f'{name} {pin}' for name, pin in pins.items())}")
    for name, connector in pinout.connectors.items():
        widths = [max(map(len, column)) for column in zip(*connector.rows, strict=True)]
        border = "─" * (widths[1] + widths[2] + 4)
        OUT.print(f"  connector  {name}")
        OUT.print(f"             {'':>{widths[0]}} ┌{border}┐")
        for row in connector.rows:
            cells = [f"{text:{side}{width}}" for text, side, width in zip(row, "><><", widths, strict=True)]
            OUT.print("             {} │ {}  {} │ {}".format(*cells).rstrip())
        OUT.print(f"             {'':>{widths[0]}} └{border}┘")
    for title, text in (("connectors", pinout.note), ("pins from", pinout.source)):
        if text:
            OUT.print(f"  {title:<10} {text}")


def _print_memory(board: Board) -> None:
    """Print the memory map in the order of addresses, with sizes to scale."""
    texts = max(len(region.name) + len(board.uses_of(region)) for region in board.memory)
    eighths = 8 * max(4, min(32, OUT.width - 40 - texts))
    largest, end = max(region.size for region in board.memory), None
    rows: list[tuple[str, ...]] = []
    for region in sorted(board.memory, key=lambda region: region.address):
        if OUT.is_terminal and end not in (None, region.address):
            rows.append(("┄", "┄", "", "", "", ""))
        whole, part = divmod(max(1, region.size * eighths // largest), 8)
        bar = "█" * whole + " ▏▎▍▌▋▊▉"[part].strip()
        size = f"{region.size // 1024:,} KiB"
        rows.append((region.name, f"{region.address:#010x}", size, region.kind, bar, board.uses_of(region)))
        end = region.end
    OUT.table(("memory", "address", ">size", "kind", "to scale", "content"), rows=rows)


def _content(board: Board) -> dict[str, Any]:
    return board.model_dump(include={"name", "title", "toolchain", "cpu", "clock_hz", "pinout"}) | {
        "folder": str(board.directory),
        "console": board.line and board.line.model_dump(include={"name", "baud"}),
        "accelerator": accelerators.accelerator_of(board).identity if board.accelerator else None,
        "reached_by": [driver.name for driver in drivers.drivers_for(board)],
        "settings": {key: {"chosen": board.settings[key], "of": list(values)} for key, values in board.choices.items()},
        "memory": [region.model_dump(include={"name", "address", "size", "kind"}) for region in board.memory],
    }


def detect_boards() -> None:
    known = boards.probe_boards()
    detection = detect([ids for board in known for ids in ids_of(board)])
    vitals = {probe: examine(probe) for probe in detection.probes}
    content = [
        dataclasses.asdict(probe) | {"boards": _candidates(probe, known), "it_says": vitals[probe].full_name}
        for probe in detection.probes
    ]
    OUT.results({"problem": detection.problem or "", "probes": content})
    if detection.problem:
        OUT.print(f"no USB here: {detection.problem}")
    if not detection.probes:
        OUT.print("no debug probe found; virtual boards need none: ./inv hil --board stm32f746 --virtual")
        return
    OUT.table(
        ("probe", "vendor:product", "serial", "USB path", "possible boards", "it says"),
        rows=[
            (
                f"VIRTUAL {probe.kind}" if probe.virtual else probe.kind,
                f"{probe.vendor:04x}:{probe.product:04x}",
                probe.serial_number or "(unreadable)",
                probe.usb_path,
                ", ".join(_candidates(probe, known)),
                vitals[probe].full_name,
            )
            for probe in detection.probes
        ],
    )
    for probe, own in vitals.items():
        if remark := probe.problem or own.remark:
            OUT.print(f"{probe.usb_path}: {remark}")
    OUT.print("choose one by serial: ./inv hil --board BOARD --serial SERIAL")


def _candidates(probe: Probe, known: Sequence[Board]) -> list[str]:
    return [board.name for board in known if match_of(board, probe)]


def serve_virtual(
    board: str, port: str, latency: int, millivolts: int, *, usb: str, listen: str, serial: str, anyone: bool
) -> None:
    """Run a virtual board until Ctrl-C, and print how to connect to it.

    Args:
        port: TCP port of its ST-Link; by default OpenOCD's own, or any free one with a USB probe.
        millivolts: supply voltage; if too low, only the probe replies.
        serial: serial number of its probes; the board's own if empty.
    """
    chip = boards.load_chip(board)
    if jtag := chip.virtual.jtag:
        if port or latency or millivolts != NOMINAL_MILLIVOLTS or usb or listen or serial or anyone:
            raise ConfigError(f"{chip.name} has JTAG pins and no probe of its own", "leave the options out")
        pins = start_jtag(chip, logs_of("board.virtual"), bitstream.loaded_bitstream(chip))
        with _running(pins):
            debug_port = _openocd(chip, jtag.probe, jtag.openocd, pins=_addresses(pins)["pins"])
            _print_connections(chip, pins, debug_port, anyone=False)
        return
    if chip.virtual.model is None:
        raise ConfigError(
            f"{chip.name} is emulated by QEMU: it has no virtual probe for OpenOCD",
            "use it with ./inv hil, model.run or board.serve; here, name another board (./inv board.list)",
        )
    probe = _usb_probe(usb, listen)
    if serial and not SERIAL_NUMBER.fullmatch(serial):
        raise ConfigError(f"--serial {serial!r} is not a serial number", "1 to 32 letters, digits and signs")
    tcp_port = _port_of(port or ("0" if probe else str(_DEFAULT_PORT)), latency, millivolts)
    machine = start_virtual(
        chip,
        logs_of("board.virtual"),
        port=tcp_port,
        latency_us=latency,
        serial=serial,
        millivolts=millivolts,
        usb=probe,
        anyone=anyone,
    )
    with _running(machine):
        port = _addresses(machine)["stlink"]
        served = f"an ST-Link on TCP port {port} of 127.0.0.1; on USB: --usb cmsis-dap --listen 0"
        debug_port = _openocd(chip, chip.model.probe, port=port) if chip.by_openocd else served
        _print_connections(chip, machine, debug_port, anyone=anyone)
        _print_signals(machine, probe, serial or chip.model.serial_number)


def _port_of(text: str, latency_us: int, millivolts: int) -> int:
    if not text.isdecimal():
        raise ConfigError(f"--port {text!r} is not a number", "port 0 takes any free one")
    if int(text) > _LAST_PORT or latency_us < 0:
        raise ConfigError(f"--port goes from 0 to {_LAST_PORT}, --latency from 0", "port 0 takes any free one")
    if not 0 <= millivolts <= _MAX_MILLIVOLTS:
        raise ConfigError(f"--millivolts goes from 0 to {_MAX_MILLIVOLTS}", "a working board has 3300")
    return int(text)


@contextlib.contextmanager
def _running(machine: Service) -> Iterator[None]:
    """Start a virtual board, and wait for Ctrl-C after the ``with`` block, which prints its ports."""
    # Ctrl-C must work as soon as the block announces it.
    with machine, contextlib.suppress(KeyboardInterrupt):
        yield
        while True:
            machine.check()
            time.sleep(0.2)


def _addresses(machine: Service) -> re.Match[str]:
    assert machine.health_match
    return machine.health_match


def _openocd(board: Board, probe: str, script: str = "openocd.cfg", **ports: str) -> str:
    return f"openocd -f {board.directory / script} -c '{probe.format(**ports)}'"


def _print_connections(board: Board, machine: Service, debug_port: str, *, anyone: bool) -> None:
    OUT.print(f"VIRTUAL {board.name} is running; {peer.access_note(anyone=anyone)}; Ctrl-C ends it")
    OUT.print(f"  debug port: {debug_port}")
    OUT.print(f"  console:    TCP port {_addresses(machine)['console']} of 127.0.0.1")


def _print_signals(machine: Service, probe: UsbProbe | None, serial: str) -> None:
    if probe:
        socket = _addresses(machine)["usb"]
        address = socket if socket.startswith("unix:") else f"TCP port {socket} of 127.0.0.1"
        address += f", also for user {probe.user}" if probe.user else ""
        OUT.print(f"  USB:        {probe.kind} {serial}, usbredir on {address}")
        OUT.print(f"  unplug:     kill -USR2 {machine.pid}; connecting again plugs it in")
    OUT.print(f"  power off and on: kill -USR1 {machine.pid}")


def _usb_probe(kind: str, listen: str) -> UsbProbe | None:
    if not kind and not listen:
        return None
    kind, _, product = kind.partition(":")
    products = {f"{number:04x}": number for number in PRODUCTS} if kind == "st-link" else {}
    if kind not in ("st-link", "cmsis-dap") or (product and product not in products):
        known = f"--usb st-link, st-link:PRODUCT with {', '.join(f'{n:04x}' for n in PRODUCTS)}, or cmsis-dap"
        kind = f"{kind}:{product}" if product else kind
        raise ConfigError(f"--usb {kind}: there is no such probe" if kind else "--usb is missing", known)
    is_port = listen.isdecimal() and int(listen) <= _LAST_PORT
    is_path = listen.startswith("unix:") and listen != "unix:"
    if not is_port and not is_path:
        raise ConfigError(
            f"--listen {listen}: not a socket" if listen else "--listen is missing",
            "--listen unix:PATH, or a TCP port, 0 for any free one",
        )
    if is_path and not Path(listen.removeprefix("unix:")).parent.is_dir():
        raise ConfigError(f"--listen {listen}: its folder does not exist")
    # Allows libvirt's QEMU to connect.
    user = libvirt.qemu_user() if is_port else ""
    return UsbProbe(cast(Literal["st-link", "cmsis-dap"], kind), listen, user, products.get(product))
