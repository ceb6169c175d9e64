"""A virtual board as a process: ``python -m utvm.virtual``.

Reads a :class:`utvm.virtual.spec.MachineSpec` as JSON on standard input, prints one line with its two TCP ports
once it is ready, and serves until SIGTERM or Ctrl-C. SIGUSR1 takes the board's power away and gives it back; a
line with the number of such power cycles tells that it has happened.
"""

import argparse
import itertools
import logging
import signal
import sys
import threading
from collections.abc import Sequence

from pydantic import ValidationError

from utvm.errors import ConfigError, UtvmError
from utvm.virtual.console import ConsoleServer
from utvm.virtual.machine import Machine
from utvm.virtual.spec import MachineSpec
from utvm.virtual.stlink_tcp import StLinkServer

_ENDING = {signal.SIGTERM, signal.SIGINT}
_POWER_CYCLE = signal.SIGUSR1


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
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_ENDING, _POWER_CYCLE})
    try:
        machine = Machine(spec)
    except UtvmError as refusal:
        print(refusal, file=sys.stderr)
        return refusal.exit_code
    try:
        probe = StLinkServer(
            machine, serial=options.serial, port=options.stlink_port, latency=options.latency_us / 1e6
        )
        console = ConsoleServer(machine.console_input, port=options.console_port)
    except OSError as error:
        problem = ConfigError(f"cannot listen: {error}", "choose another port, or 0 for a free one")
        print(problem, file=sys.stderr)
        return problem.exit_code
    machine.on_console_output = console.backlog.append
    machine.start()
    servants = [threading.Thread(target=server.serve, daemon=True) for server in (probe, console)]
    for servant in servants:
        servant.start()
    print(f"virtual board {spec.name} ready: st-link tcp {probe.port}, console tcp {console.port}", flush=True)
    for cycle in itertools.count(1):
        if signal.sigwait({*_ENDING, _POWER_CYCLE}) != _POWER_CYCLE:
            break
        with probe.target_off():
            machine.power_cycle()
        print(f"power cycle {cycle} done", flush=True)
    probe.close()
    console.close()
    # A client that came in the last moment has its thread now; Python refuses new ones from here on.
    for servant in servants:
        servant.join()
    machine.close()
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m utvm.virtual", description="A virtual board.")
    parser.add_argument("--stlink-port", type=int, default=0, help="TCP port of the ST-Link, 0 for any free one")
    parser.add_argument("--console-port", type=int, default=0, help="TCP port of the console, 0 for any free one")
    parser.add_argument("--latency-us", type=int, default=0, help="time a probe command takes, in microseconds")
    parser.add_argument("--serial", default="VIRTUAL-0001", help="serial number of the ST-Link")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
