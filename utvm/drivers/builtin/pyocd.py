# SPDX-License-Identifier: Apache-2.0
"""pyOCD in place of OpenOCD, for a probe on this computer's USB or the software model's CMSIS-DAP probe."""

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from utvm import drivers
from utvm.base.storage.files import private_folder
from utvm.boards import Board
from utvm.boards.parts import PyOcdPart
from utvm.drivers import connection
from utvm.drivers.builtin.usb import kind_of, on_usb
from utvm.errors import BoardError, ConfigError, ProbeError
from utvm.probe import gdb, packets, target_xml
from utvm.probe.choice import find_probe, hold_probe, match_of
from utvm.probe.debug_port import PyOcdPort
from utvm.probe.pyocd.server import PyOcd, pack_for, uid_of
from utvm.probe.virtual import UsbProbe, start_virtual
from utvm.selection import BoardSelection

_WORTH_MOVING = 64 * 1024
"""See :class:`utvm.drivers.Connection`: the server's packets carry a kilobyte."""
_STOP = b"%Stop:"
_TRAP = 5
_COMPLAINT = re.compile(r"(?m)^(Error: |Transfer failed: |Unexpected error: |Failed to )(.*)")
_DFSR, _DWTTRAP = 0xE000ED30, 1 << 2
_DWT_CTRL, _COMPARATORS, _STRIDE, _FUNCTION = 0xE0001000, 0xE0001020, 0x10, 8
_MATCHED = 1 << 24
_ADVICE = "look at pyOCD's log; unplug and replug the probe if it hangs"


def _part(board: Board) -> PyOcdPart | None:
    return board.physical.pyocd if board.physical else None


def _find(board: Board, selection: BoardSelection) -> drivers.ReachableBoard | None:
    probe = find_probe(board, selection.kind, selection.serial)
    if probe is not None:
        if probe.by_path:
            raise ConfigError(
                f"pyOCD selects a probe only by its serial number, and two have {probe.serial_number}", "use OpenOCD"
            )
        caps = board.capabilities_of(kind_of(probe), match_of(board, probe))

        def start_physical(setup: drivers.Setup) -> connection.Connection:
            held_probe = setup.stack.enter_context(hold_probe(board, probe, selection.wait, setup.say))
            return on_usb(
                board,
                held_probe,
                setup,
                caps,
                lambda probe: _serve(setup, board, uid_of(probe.kind, probe.serial_number)),
                worth_moving=_WORTH_MOVING,
            )

        identity = drivers.BoardIdentity(board.full_name, kind_of(probe), probe.kind, probe.serial_number)
        return drivers.ReachableBoard(board, identity, caps, "pyocd", start_physical, probe)
    if board.virtual.model is None or selection.kind == "physical":
        return None
    caps = board.capabilities_of("virtual")

    def start_model(setup: drivers.Setup) -> connection.Connection:
        return _on_model(board, setup, caps, selection.latency_us)

    identity = drivers.BoardIdentity(board.full_name, "virtual", serial=board.model.serial_number)
    return drivers.ReachableBoard(board, identity, caps, "pyocd", start_model)


def _on_model(board: Board, setup: drivers.Setup, caps: frozenset[str], latency_us: int) -> connection.Connection:
    plug = setup.stack.enter_context(private_folder()) / "usb"
    machine = setup.stack.enter_context(
        start_virtual(board, setup.logs, latency_us=latency_us, usb=UsbProbe("cmsis-dap", f"unix:{plug}"))
    )
    assert machine.health_match and board.physical
    server, port = _serve(setup, board, board.model.serial_number, plug)
    drivers.check_identity(board.name, board.physical.identity, port.gdb, board.model.serial_number)
    return connection.Connection(
        board,
        "virtual",
        "VIRTUAL board, a software model" + (", with a MODEL of its cycles" if board.timing else ""),
        caps,
        setup.logs,
        probe="virtual CMSIS-DAP on a socket in place of USB",
        serial=board.model.serial_number,
        port=port,
        console=drivers.open_console(setup, board, f"socket://127.0.0.1:{machine.health_match['console']}"),
        services=(machine, server),
        machine=machine,
        unit="modelled cycles" if board.timing else None,
        worth_moving=_WORTH_MOVING,
    )


def _serve(setup: drivers.Setup, board: Board, serial: str, usb: Path | None = None) -> tuple[PyOcd, PyOcdPort]:
    part = _part(board)
    assert part
    log = setup.logs / "pyocd.log"
    pack = pack_for(board, part, setup.logs)
    server = PyOcd(part, pack, serial=serial, log=log, usb=usb)
    setup.stack.enter_context(server)
    client = PyOcdClient(server.gdb, breakpoint_kind=board.cpu_row.breakpoint_kind)
    gdb = setup.stack.enter_context(client)
    return server, PyOcdPort(gdb, live="memory while running" in board.capabilities)


def _describe(board: Board) -> tuple[str, str] | None:
    part = _part(board)
    return ("pyocd", f"{part.target}{f', of {part.pack}' if part.pack else ''}") if part else None


class PyOcdClient(gdb.GdbClient):
    """A connection to pyOCD's GDB server; otherwise as :class:`GdbClient`.

    After ``c``, that server does not reply until the core stops. So the core runs in GDB's non-stop mode (GDB manual,
    sections "Notification Packets" and "Remote Non-Stop"), in which memory can be accessed and a stop is a
    notification; everything else uses the usual mode. The server does not report which watchpoint was hit: the core's
    debug registers do (ARM DDI 0403E, C1.6.1 and C1.8).
    """

    hello = b"qSupported:vContSupported+"  # Without a feature, pyOCD reports an error.

    def __init__(self, channel: socket.socket, *, breakpoint_kind: int) -> None:
        super().__init__(channel, advice=_ADVICE, breakpoint_kind=breakpoint_kind)
        self._watched: dict[int, packets.Access] = {}
        self._unanswered = False  # A stop was reported, and the server is still in non-stop mode.

    def __enter__(self) -> "PyOcdClient":
        super().__enter__()
        self._wire.enable_notifications()
        return self

    def hand_over(self) -> packets.GdbLink:
        self.set_mode("QNonStop:0")
        return super().hand_over()

    def monitor(self, command: str, timeout: float = 60.0) -> str:
        """Run a pyOCD command and return its output; raises ProbeError if the output reports an error."""
        output = super().monitor(command, timeout)
        if complaint := _COMPLAINT.search(output):
            raise ProbeError(f"monitor command '{command}' failed: {complaint[0].strip()}", _ADVICE)
        return output

    def insert_watchpoint(self, address: int, size: int, access: packets.Access) -> None:
        super().insert_watchpoint(address, size, access)
        self._watched[address] = access

    def remove_watchpoint(self, address: int, size: int, access: packets.Access) -> None:
        super().remove_watchpoint(address, size, access)
        self._watched.pop(address, None)

    def wait_for_stop(self, timeout: float) -> packets.Stop | None:
        stop = super().wait_for_stop(timeout)
        if stop is not None and stop.signal == _TRAP and stop.watchpoint is None and self._watched:
            stop = self._stopped = self._with_watchpoint(stop)
        return stop

    def _with_watchpoint(self, stop: packets.Stop) -> packets.Stop:
        """Add the watchpoint that was hit, if any; reading a comparator clears its flag."""
        if not self._read_word(_DFSR) & _DWTTRAP:
            return stop
        for number in range(self._read_word(_DWT_CTRL) >> 28):
            place = _COMPARATORS + number * _STRIDE
            address = self._read_word(place)
            if address in self._watched and self._read_word(place + _FUNCTION) & _MATCHED:
                return replace(stop, watchpoint=self._watched[address], address=address)
        return stop

    def read_register(self, name: str) -> int:
        # The server cannot read a single register.
        register = self._find_register(name)
        value = next(value for candidate, value in self._all_registers() if candidate == register)
        if value is None:
            raise BoardError(f"register {register.name} cannot be read", "the core has none of that name")
        return value

    def _all_registers(self) -> Iterator[tuple[target_xml.Register, int | None]]:
        """Yield all registers in numeric order, with None for unreadable ones."""
        digits = gdb.require_data(self._request(b"g"), "the registers cannot be read")
        offset = 0
        for register in sorted(self._registers, key=lambda item: item.number):
            part = digits[offset : offset + 2 * register.size]
            offset += len(part)
            yield register, None if b"x" in part else int.from_bytes(packets.from_hex(part), "little")

    def _read_word(self, address: int) -> int:
        return int.from_bytes(self.read_memory(address, 4), "little")

    def _send(self, payload: bytes) -> None:
        if self._unanswered:
            self._unanswered = False
            self.set_mode("vStopped")
            self.set_mode("QNonStop:0")
        if payload != b"c":
            super()._send(payload)
            return
        self.set_mode("QNonStop:1")
        try:
            self.set_mode("vCont;c")
        except BoardError:
            self._running = False
            raise

    def _resynchronise(self) -> None:
        """Do nothing: the server replies once, even after an error."""

    def _notice_stop(self, packet: bytes) -> bool:
        if packet.startswith(_STOP):
            self._unanswered = True
            packet = packet.removeprefix(_STOP)
        return super()._notice_stop(packet)


DRIVER = drivers.Driver(
    name="pyocd",
    rank=25,
    supports=lambda board: _part(board) is not None,
    find=_find,
    describe=_describe,
    refusal="can only be plugged in: none is connected",
    has_latency=True,
)
