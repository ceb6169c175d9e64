# SPDX-License-Identifier: Apache-2.0
"""Run by the Python that has pyOCD: pyOCD's own command line, on inherited sockets.

A first argument ``gdb=NUMBER`` is the descriptor of the GDB server's only connection, in place of a port that
anyone could connect to. A second one ``usb=PATH`` is the socket of a virtual board's probe, which
``utvm/virtual/usb/host.py`` gives to pyusb in place of libusb. Probe drivers, debug port, flash and GDB server are
pyOCD's, unchanged; its server has three more commands (:func:`_add_commands`).
"""

import contextlib
import runpy
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

_HOST = Path(__file__).resolve().parents[2] / "virtual" / "usb" / "host.py"


def _serve_on(connection: socket.socket) -> None:
    """Give pyOCD's server one connection in place of a listening port."""
    from pyocd.gdbserver import gdbserver
    from pyocd.utility.sockets import ConnectedSocket

    class OneConnection:
        def __init__(self, _port: int, packet_size: int) -> None:
            self.port = 0
            self._waiting = [ConnectedSocket(connection, packet_size)]

        def init(self) -> None:
            """Do nothing."""

        def accept(self, timeout: float = 0.5) -> Any:
            if self._waiting:
                return self._waiting.pop()
            time.sleep(timeout)
            return None

        def close(self) -> None:
            """Do nothing: the client closes the connection."""

    gdbserver.ListenerSocket = OneConnection


def _add_commands() -> None:
    from pyocd.commands.base import CommandBase
    from pyocd.core.exceptions import TransferError
    from pyocd.coresight.dap import CDBGPWRUPACK, DP_CTRL_STAT

    class ReadMemory(CommandBase):  # type: ignore[misc]  # untyped
        INFO = _command("read_memory", "ADDRESS WIDTH COUNT", "Read COUNT values of WIDTH bits.")

        def parse(self, args: list[str]) -> None:
            self.address, self.width, self.count = (int(word, 0) for word in args)

        def execute(self) -> None:
            step = self.width // 8
            places = range(self.address, self.address + self.count * step, step)
            port = self.context.selected_ap
            self.context.write(" ".join(hex(port.read_memory(place, self.width)) for place in places))

    class WriteMemory(CommandBase):  # type: ignore[misc]
        INFO = _command("write_memory", "ADDRESS WIDTH {VALUE...}", "Write each VALUE by an access of WIDTH bits.")

        def parse(self, args: list[str]) -> None:
            self.address, self.width, *self.values = (int(word, 0) for word in args if word not in "{}")

        def execute(self) -> None:
            for number, value in enumerate(self.values):
                self.context.selected_ap.write_memory(self.address + number * self.width // 8, value, self.width)
            self.context.target.flush()

    class Reconnect(CommandBase):  # type: ignore[misc]
        INFO = _command("reconnect", "", "Reconnect if the chip's debug domain has lost power.")

        def execute(self) -> None:
            port, core = self.context.target.dp, self.context.selected_core
            with contextlib.suppress(TransferError):
                if port.read_dp(DP_CTRL_STAT) & CDBGPWRUPACK:
                    return
            port.connect()
            # As after pyOCD's start: debugging and watchpoints on, the breakpoint unit off until its first use.
            core.write32(core.DHCSR, core.DBGKEY | core.C_DEBUGEN)
            core.write32(core.DEMCR, core.read32(core.DEMCR) | core.DEMCR_TRCENA)
            if core.fpb:
                core.fpb.disable()


def _command(name: str, usage: str, about: str) -> dict[str, Any]:
    return {"names": [name], "group": "standard", "category": "utvm", "nargs": "*", "usage": usage, "help": about}


def main() -> None:
    """Run pyOCD."""
    # pyOCD shuts down in order only on an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _serve_on(socket.socket(fileno=int(sys.argv.pop(1).removeprefix("gdb="))))
    if sys.argv[1:] and sys.argv[1].startswith("usb="):
        import libusb_package

        backend = runpy.run_path(str(_HOST))["Backend"](sys.argv.pop(1)[4:])
        setattr(libusb_package, "get_libusb1_backend", lambda: backend)  # noqa: B010  its type is another
    _add_commands()
    from pyocd.__main__ import main as pyocd

    sys.argv[0] = "pyocd"
    sys.exit(pyocd())


if __name__ == "__main__":
    main()
