# SPDX-License-Identifier: Apache-2.0
"""What a virtual board does as a process: ``python -m utvm.virtual``.

Reads a :class:`utvm.virtual.spec.MachineSpec` as JSON on standard input, prints one line with its two TCP ports
once it is ready, and serves until SIGTERM or Ctrl-C. SIGUSR1 takes the board's power away and gives it back; a
line with the number of such power cycles tells that it has happened.

With ``--usb`` there is a second probe, a USB device on a socket, which the line names too. SIGUSR2 unplugs it; it
is plugged in again when somebody connects to its socket.
"""

import argparse
import contextlib
import itertools
import logging
import signal
import sys
import threading
from collections.abc import Sequence

from pydantic import ValidationError

from utvm.errors import ConfigError, UtvmError
from utvm.virtual.console import ConsoleServer
from utvm.virtual.machine import BoardModel
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, SERIAL_NUMBER, MachineSpec
from utvm.virtual.stlink_tcp import StLinkServer
from utvm.virtual.usb.cmsis_dap import CmsisDapProbe
from utvm.virtual.usb.device import UsbDevice
from utvm.virtual.usb.server import UsbServer
from utvm.virtual.usb.st_link import StLinkProbe

_ENDING = {signal.SIGTERM, signal.SIGINT}
_POWER_CYCLE = signal.SIGUSR1
_UNPLUG = signal.SIGUSR2


def main(arguments: Sequence[str]) -> int:
    """Run the board and return the exit code."""
    options = _parse(arguments)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    try:
        spec = MachineSpec.model_validate_json(sys.stdin.read())
    except ValidationError as error:
        problem = ConfigError(f"standard input: is not a machine specification: {error}")
        print(problem, file=sys.stderr)
        return problem.exit_code
    # Blocked here, for this thread and those it starts, and waited for below: an end in good order.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_ENDING, _POWER_CYCLE, _UNPLUG})
    try:
        machine = BoardModel(spec, millivolts=options.millivolts)
    except UtvmError as refusal:
        print(refusal, file=sys.stderr)
        return refusal.exit_code
    try:
        probe = StLinkServer(
            machine, serial=options.serial, port=options.stlink_port, latency=options.latency_us / 1e6
        )
        console = ConsoleServer(machine.console_input, port=options.console_port)
        usb = _usb_server(options, machine, console) if options.usb else None
    except (OSError, ValueError, OverflowError) as error:
        problem = ConfigError(f"cannot listen: {error}", "choose another port, or 0 for a free one")
        print(problem, file=sys.stderr)
        return problem.exit_code
    machine.on_console_output = console.backlog.append
    machine.start()
    servers: list[StLinkServer | ConsoleServer | UsbServer] = [probe, console, *([usb] if usb else [])]
    servants = [threading.Thread(target=server.serve, daemon=True) for server in servers]
    for servant in servants:
        servant.start()
    doors = f"st-link tcp {probe.port}, console tcp {console.port}"
    doors += f", {options.usb} usb {usb.address}" if usb else ""
    print(f"virtual board {spec.name} ready: {doors}", flush=True)
    cycles = itertools.count(1)
    while (told := signal.sigwait({*_ENDING, _POWER_CYCLE, _UNPLUG})) not in _ENDING:
        if told == _POWER_CYCLE:
            with probe.target_off(), usb.target_off() if usb else contextlib.nullcontext():
                machine.power_cycle()
            print(f"power cycle {next(cycles)} done", flush=True)
        elif usb:
            usb.unplug()
    for server in servers:
        server.close()
    # A client that came in the last moment has its thread now; Python refuses new ones from here on.
    for servant in servants:
        servant.join()
    machine.close()
    return 0


def _usb_server(options: argparse.Namespace, machine: BoardModel, console: ConsoleServer) -> UsbServer:
    latency = options.latency_us / 1e6
    device: UsbDevice
    if options.usb == "st-link":
        device = StLinkProbe(
            machine,
            serial=options.serial,
            backlog=console.backlog,
            type_in=machine.console_input,
            latency=latency,
        )
    else:
        device = CmsisDapProbe(machine, serial=options.serial, latency=latency)
    return UsbServer(device, options.usb_listen)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m utvm.virtual", description="A virtual board.")
    parser.add_argument("--stlink-port", type=int, default=0, help="TCP port of the ST-Link, 0 for any free one")
    parser.add_argument("--console-port", type=int, default=0, help="TCP port of the console, 0 for any free one")
    parser.add_argument("--latency-us", type=int, default=0, help="time a probe command takes, in microseconds")
    parser.add_argument("--millivolts", type=int, default=NOMINAL_MILLIVOLTS, help="the board's supply")
    parser.add_argument(
        "--serial", type=_serial_number, default="VIRTUAL-0001", help="serial number of its probes"
    )
    parser.add_argument("--usb", choices=["st-link", "cmsis-dap"], help="a probe on USB as well")
    parser.add_argument(
        "--usb-listen", default="0", help="its socket: unix:PATH, or a TCP port, 0 for any free one"
    )
    return parser.parse_args(arguments)


def _serial_number(text: str) -> str:
    if not SERIAL_NUMBER.fullmatch(text):
        raise argparse.ArgumentTypeError("takes 1 to 32 letters, digits and signs")
    return text
