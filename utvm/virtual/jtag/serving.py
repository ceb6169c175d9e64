# SPDX-License-Identifier: Apache-2.0
"""What such a board does as a process: ``python -m utvm.virtual.jtag``.

Reads a :class:`utvm.virtual.spec.JtagSpec` as JSON on standard input, prints one line with its pins' socket and
its console's TCP port once it is ready, and serves until SIGTERM or Ctrl-C.
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from utvm.errors import ConfigError, UtvmError
from utvm.virtual.console import ConsoleServer
from utvm.virtual.cortex_a.machine import ZynqBoard
from utvm.virtual.jtag.board import JtagBoard
from utvm.virtual.jtag.chain import BitbangServer
from utvm.virtual.riscv.machine import RiscvBoard
from utvm.virtual.spec import JtagSpec

_BOARDS: Mapping[str, Callable[[JtagSpec], JtagBoard]] = {"rv": RiscvBoard, "cortex-a9": ZynqBoard}
"""What is made of a board, by how the name of its core begins."""
_ENDING = {signal.SIGTERM, signal.SIGINT}


def _make(spec: JtagSpec) -> JtagBoard:
    for name, make in _BOARDS.items():
        if spec.cpu.startswith(name):
            return make(spec)
    raise ConfigError(f"{spec.name}: no core named {spec.cpu!r} is modelled", f"there are: {', '.join(_BOARDS)}")


def main() -> int:
    """Run the board and return the exit code."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    # Blocked here, for this thread and those it starts, and waited for below: an end in good order.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        try:
            spec = JtagSpec.model_validate_json(sys.stdin.read())
        except ValidationError as error:
            raise ConfigError(f"standard input: is not a machine specification: {error}") from error
        machine = _make(spec)
        pins = BitbangServer(machine.taps, machine.reset)
    except UtvmError as refusal:
        print(refusal, file=sys.stderr)
        return refusal.exit_code
    console = ConsoleServer(machine.console_input)
    machine.on_console_output = console.backlog.append
    machine.start()
    servers: tuple[BitbangServer | ConsoleServer, ...] = (pins, console)
    for server in servers:
        threading.Thread(target=server.serve, daemon=True).start()
    print(f"virtual board {spec.name} ready: console tcp {console.port}, jtag pins {pins.path}", flush=True)
    signal.sigwait(_ENDING)
    for server in servers:
        server.close()
    machine.close()
    return 0
