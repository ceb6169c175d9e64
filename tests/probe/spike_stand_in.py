#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fake Spike, which Debian does not have: it accepts Spike's command line, listens and has a TAP.

There is no core behind the TAP: OpenOCD reads the IDCODE and then fails. Command line and output: spike_main/spike.cc
and riscv/remote_bitbang.cc of riscv-isa-sim. States of the TAP: IEEE 1149.1, figure 6-1; protocol: OpenOCD's manual,
"remote_bitbang".
"""

import argparse
import re
import socket
import sys

IDCODE = 0xDEADBEEF
_IR_BITS, _IR_IDCODE = 5, 1
# The next states of each state, with TMS low and with TMS high.
_NEXT = {
    "reset": ("idle", "reset"),
    "idle": ("idle", "select-dr"),
    "select-dr": ("capture-dr", "select-ir"),
    "capture-dr": ("shift-dr", "exit1-dr"),
    "shift-dr": ("shift-dr", "exit1-dr"),
    "exit1-dr": ("pause-dr", "update-dr"),
    "pause-dr": ("pause-dr", "exit2-dr"),
    "exit2-dr": ("shift-dr", "update-dr"),
    "update-dr": ("idle", "select-dr"),
    "select-ir": ("capture-ir", "reset"),
    "capture-ir": ("shift-ir", "exit1-ir"),
    "shift-ir": ("shift-ir", "exit1-ir"),
    "exit1-ir": ("pause-ir", "update-ir"),
    "pause-ir": ("pause-ir", "exit2-ir"),
    "exit2-ir": ("shift-ir", "update-ir"),
    "update-ir": ("idle", "select-dr"),
}


class Tap:
    """A test access port with an IDCODE; its other registers are all zeros."""

    def __init__(self) -> None:
        self._state = "reset"
        self._clock = False
        self._instruction = _IR_IDCODE
        self._shift, self._bits = 0, 1
        self.tdo = False

    def set_pins(self, clock: bool, tms: bool, tdi: bool) -> None:
        if clock and not self._clock:
            if self._state.startswith("shift"):
                self._shift = self._shift >> 1 | tdi << (self._bits - 1)
            self._state = _NEXT[self._state][tms]
            self._enter()
        self._clock = clock

    def _enter(self) -> None:
        if self._state == "reset":
            self._instruction = _IR_IDCODE
        elif self._state == "capture-dr":
            self._shift, self._bits = (IDCODE if self._instruction == _IR_IDCODE else 0), 32
        elif self._state == "capture-ir":
            self._shift, self._bits = 1, _IR_BITS
        elif self._state == "update-ir":
            self._instruction = self._shift
        self.tdo = bool(self._shift & 1)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rbb-port", type=int, required=True)
    parser.add_argument("--isa", required=True)
    parser.add_argument("-m", required=True)
    parser.add_argument("-H", action="store_true", required=True)
    parser.add_argument("program", choices=["none"])
    options = parser.parse_args()
    if not re.fullmatch(r"0x[0-9a-f]+000:0x[0-9a-f]+000(,0x[0-9a-f]+000:0x[0-9a-f]+000)*", options.m):
        sys.exit(f"memory in pages, base:size: {options.m}")
    with socket.create_server(("127.0.0.1", options.rbb_port)) as server:
        print(f"Listening for remote bitbang connection on port {server.getsockname()[1]}.", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                _serve(connection)


def _serve(connection: socket.socket) -> None:
    tap = Tap()
    while data := connection.recv(4096):
        replies = b""
        for command in data.decode():
            if command in "01234567":
                tap.set_pins(command >= "4", int(command) & 2 != 0, int(command) & 1 != 0)
            elif command == "R":
                replies += b"1" if tap.tdo else b"0"
            elif command == "Q":
                return
        connection.sendall(replies)


if __name__ == "__main__":
    main()
