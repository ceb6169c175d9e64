# SPDX-License-Identifier: Apache-2.0
"""The process of a virtual board: ``python -m utvm.virtual``.

It reads a :class:`utvm.virtual.spec.MachineSpec` as JSON on standard input (with ``--jtag`` a ``JtagSpec``),
prints one line with its ports once it is ready, and serves until SIGTERM or Ctrl-C. SIGUSR1 switches the power of
a Cortex-M off and on and prints a line with the number of such power cycles. With ``--usb`` there is a second
probe, a USB device on a socket, also named in the line. SIGUSR2 unplugs it until a client connects to its socket
again.
"""

import argparse
import contextlib
import itertools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from utvm.errors import ConfigError, UtvmError
from utvm.virtual.console import ConsoleServer
from utvm.virtual.jtag.board import BitbangServer, JtagBoard
from utvm.virtual.machine import BoardModel
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, SERIAL_NUMBER, JtagSpec, MachineSpec
from utvm.virtual.stlink import PRODUCTS, V2_1
from utvm.virtual.stlink_tcp import StLinkServer
from utvm.virtual.usb.device import UsbDevice
from utvm.virtual.usb.probes import CmsisDapProbe, StLinkProbe
from utvm.virtual.usb.server import UsbServer

_SpecT = TypeVar("_SpecT", bound=BaseModel)
_ENDING = {signal.SIGTERM, signal.SIGINT}
_POWER_CYCLE = signal.SIGUSR1
_UNPLUG = signal.SIGUSR2
_LEAVING = 1.0  # seconds


def main(arguments: Sequence[str]) -> int:
    """Run the board and return the exit code."""
    options = _parse(arguments)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    try:
        return _serve_jtag(_read(JtagSpec)) if options.jtag else _serve(_read(MachineSpec), options)
    except UtvmError as refusal:
        print(refusal, file=sys.stderr)
        return refusal.exit_code


def _read(kind: type[_SpecT]) -> _SpecT:
    try:
        spec = kind.model_validate_json(sys.stdin.read())
    except ValidationError as error:
        raise ConfigError(f"standard input: is not a machine specification: {error}") from error
    # Block the signals here, for all threads, and wait for them below to shut down in order.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_ENDING, _POWER_CYCLE, _UNPLUG})
    return spec


def _serve(spec: MachineSpec, options: argparse.Namespace) -> int:
    machine = BoardModel(spec, millivolts=options.millivolts)
    try:
        probe = StLinkServer(
            machine,
            serial=options.serial,
            port=options.stlink_port,
            latency=options.latency_us / 1e6,
            anyone=options.anyone,
        )
        console = ConsoleServer(machine.console_input, port=options.console_port, anyone=options.anyone)
        usb = _usb_server(options, machine, console) if options.usb else None
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"cannot listen: {error}", "choose another port, or 0 for a free one") from error
    cycles = itertools.count(1)

    def power_cycle() -> None:
        with probe.target_off(), usb.target_off() if usb else contextlib.nullcontext():
            machine.power_cycle()
        print(f"power cycle {next(cycles)} done", flush=True)

    doors = f"st-link tcp {probe.port}, console tcp {console.port}"
    doors += f", {options.usb} usb {usb.address}" if usb else ""
    actions = {_POWER_CYCLE: power_cycle, _UNPLUG: usb.unplug if usb else lambda: None}
    return _run(machine, spec.name, console, [probe, *([usb] if usb else [])], doors, actions)


def _serve_jtag(spec: JtagSpec) -> int:
    from utvm.virtual.cortex_a.machine import ZynqBoard
    from utvm.virtual.riscv.machine import RiscvBoard

    # By the prefix of the core's name.
    models: Mapping[str, Callable[[JtagSpec], JtagBoard]] = {"rv": RiscvBoard, "cortex-a9": ZynqBoard}
    model = next((model for prefix, model in models.items() if spec.cpu.startswith(prefix)), None)
    if model is None:
        raise ConfigError(f"{spec.name}: no model of core {spec.cpu!r}", f"cores start with: {', '.join(models)}")
    machine = model(spec)
    pins = BitbangServer(machine.taps, machine.reset)
    console = ConsoleServer(machine.console_input)
    return _run(machine, spec.name, console, [pins], f"console tcp {console.port}, jtag pins {pins.path}", {})


def _run(
    machine: BoardModel | JtagBoard,
    name: str,
    console: ConsoleServer,
    probes: Sequence[StLinkServer | UsbServer | BitbangServer],
    doors: str,
    actions: Mapping[signal.Signals, Callable[[], None]],
) -> int:
    machine.on_console_output = console.backlog.append
    machine.start()
    servers = [*probes, console]
    threads = [threading.Thread(target=server.serve, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    print(f"virtual board {name} ready: {doors}", flush=True)
    while (received := signal.sigwait({*_ENDING, *actions})) not in _ENDING:
        actions[signal.Signals(received)]()
    for server in servers:
        server.close()
    # The last clients have their threads now; Python refuses new threads from here on.
    for thread in threads:
        thread.join(_LEAVING)
    machine.close()
    return 0


def _usb_server(options: argparse.Namespace, machine: BoardModel, console: ConsoleServer) -> UsbServer:
    latency = options.latency_us / 1e6
    device: UsbDevice
    kind, _, product = options.usb.partition(":")
    if kind == "st-link":
        device = StLinkProbe(
            machine,
            serial=options.serial,
            backlog=console.backlog,
            type_in=machine.console_input,
            latency=latency,
            product=int(product, 16) if product else V2_1,
        )
    else:
        device = CmsisDapProbe(machine, serial=options.serial, latency=latency)
    return UsbServer(device, options.usb_listen, user=options.usb_user, anyone=options.anyone)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m utvm.virtual", description="A virtual board.")
    add = parser.add_argument
    add("--jtag", action="store_true", help="a board behind JTAG pins")
    add("--stlink-port", type=int, default=0, help="TCP port of the ST-Link, 0 for any free one")
    add("--console-port", type=int, default=0, help="TCP port of the console, 0 for any free one")
    add("--latency-us", type=int, default=0, help="time a probe command takes, in microseconds")
    add("--millivolts", type=int, default=NOMINAL_MILLIVOLTS, help="the board's supply")
    add("--serial", type=_serial_number, default="VIRTUAL-0001", help="serial number of its probes")
    kinds = ["st-link", "cmsis-dap", *(f"st-link:{product:04x}" for product in PRODUCTS)]
    add("--usb", choices=kinds, help="a probe on USB as well; of an ST-Link, also its USB product")
    add("--usb-listen", default="0", help="its socket: unix:PATH, or a TCP port, 0 for any free one")
    add("--usb-user", default="", help="another user who may connect to that TCP port")
    add("--anyone", action="store_true", help="other users of this computer may connect, too")
    return parser.parse_args(arguments)


def _serial_number(text: str) -> str:
    if not SERIAL_NUMBER.fullmatch(text):
        raise argparse.ArgumentTypeError("takes 1 to 32 letters, digits and signs")
    return text
