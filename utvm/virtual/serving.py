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
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from utvm.base.process.peer import Acceptor, listen
from utvm.errors import ConfigError, UtvmError
from utvm.virtual import dap, stlink
from utvm.virtual.console import ConsoleServer
from utvm.virtual.jtag.board import BitbangServer, JtagBoard
from utvm.virtual.machine import BoardModel
from utvm.virtual.spec import NOMINAL_MILLIVOLTS, SERIAL_NUMBER, JtagSpec, MachineSpec
from utvm.virtual.usb.device import UsbDevice
from utvm.virtual.usb.probes import CmsisDapProbe, StLinkProbe
from utvm.virtual.usb.server import UsbServer

_log = logging.getLogger(__name__)

_REFRESH = 0
_COUNT = 1
_DEVICE_INFO = 2
_OPEN = 3
_CLOSE = 4
_USB_COMMAND = 5
_SERVER_VERSION = 6

# Bytes after the command byte
_ARGUMENT_BYTES = {_REFRESH: 1, _COUNT: 0, _DEVICE_INFO: 7, _OPEN: 7, _CLOSE: 7, _USB_COMMAND: 31, _SERVER_VERSION: 3}

_STATUS_OK = 0x0001
_STATUS_BAD_PARAMETER = 0x1002
_STATUS_OPEN_ERROR = 0x1003
_STATUS_NOT_AVAILABLE = 0x1053

_API_VERSION = (3, 2, 1, 1)  # API, major, minor, build
_DEVICE_ID = 1
_SERIAL_BYTES = 32
_TO_PROBE = 0
_FROM_PROBE = 1
_FROM_TRACE = 3
_MAX_DATA_BYTES = 2 * stlink.MAX_BLOCK_BYTES


class _ProtocolError(Exception):
    """A client that does not speak the protocol."""


class StLinkServer(Acceptor):
    """Serves one virtual ST-Link on the loopback interface, to OpenOCD, with the protocol of ST's stlink-server.

    Little-endian: a command byte with arguments in, a status word with results out. Any client may list the probe,
    but only one may open it.

    Args:
        serial: the probe's serial number, at most 32 characters.
        port: TCP port, 0 for any free one.
        latency: seconds per probe command; a real ST-Link takes about 2 ms.
        anyone: True to accept other users of this computer.
    """

    def __init__(
        self, board: BoardModel, *, serial: str, port: int = 0, latency: float = 0.0, anyone: bool = False
    ) -> None:
        self._probe = stlink.StLink(board)
        self._serial = serial.encode("ascii")
        self._latency = latency
        self._lock = threading.Lock()  # of the owner
        self._wires = threading.Lock()  # between probe and board
        self._owner: object | None = None
        super().__init__(listen(port, anyone=anyone))
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Accept clients until :meth:`close`; each gets a thread."""
        for client in self.clients():
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    @contextlib.contextmanager
    def target_off(self) -> Iterator[None]:
        """Switch the board's power off and on in a ``with`` block, between commands; its debug port is reset.

        The probe itself keeps its power, as with its own USB cable.
        """
        with self._wires:
            yield
            self._probe.lose_target()

    def _talk(self, client: socket.socket) -> None:
        with client:
            peer = client.getpeername()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while True:
                    self._serve_command(client)
            except _ProtocolError as error:
                _log.warning("client %s:%d: %s; closing its connection", *peer, error)
            except OSError as error:
                _log.info("client %s:%d left: %s", *peer, error)
            finally:
                self._release(client)

    def _serve_command(self, client: socket.socket) -> None:
        command = _receive(client, 1)[0]
        if command not in _ARGUMENT_BYTES:
            raise _ProtocolError(f"unknown command 0x{command:02x}")
        arguments = _receive(client, _ARGUMENT_BYTES[command])
        if command == _USB_COMMAND:
            self._run_command(client, arguments)
            return
        replies: dict[int, Callable[[], bytes]] = {
            _REFRESH: lambda: _word(_STATUS_OK),
            _COUNT: lambda: _word(1),
            _DEVICE_INFO: self._device_info,
            _OPEN: lambda: self._open(client),
            _CLOSE: lambda: self._release(client),
            _SERVER_VERSION: lambda: struct.pack("<4I", *_API_VERSION),
        }
        client.sendall(replies[command]())

    def _device_info(self) -> bytes:
        used = self._owner is not None
        return _word(_STATUS_OK) + struct.pack(
            f"<I{_SERIAL_BYTES}sHHB", _DEVICE_ID, self._serial, stlink.USB_VENDOR, stlink.V2_1, used
        )

    def _open(self, client: socket.socket) -> bytes:
        with self._lock:
            if self._owner is not None:
                return struct.pack("<II", _STATUS_OPEN_ERROR, 0)
            self._owner = client
        return struct.pack("<II", _STATUS_OK, _DEVICE_ID)

    def _release(self, client: socket.socket) -> bytes:
        with self._lock:
            if self._owner is client:
                self._owner = None
        return _word(_STATUS_OK)

    def _run_command(self, client: socket.socket, arguments: bytes) -> None:
        started = time.monotonic()
        command = arguments[7 : 7 + stlink.COMMAND_SIZE]
        direction = arguments[23]
        (size,) = struct.unpack_from("<I", arguments, 27)
        if size > _MAX_DATA_BYTES:
            raise _ProtocolError(f"transfer of {size} bytes")
        if direction not in (_TO_PROBE, _FROM_PROBE, _FROM_TRACE):
            client.sendall(_word(_STATUS_NOT_AVAILABLE) + bytes(size))
            return
        data = _receive(client, size) if direction == _TO_PROBE else b""
        wanted = 0 if direction == _TO_PROBE else size
        if self._owner is not client:
            client.sendall(_word(_STATUS_BAD_PARAMETER) + bytes(wanted))
            return
        with self._wires:
            traced = direction == _FROM_TRACE
            reply = self._probe.read_trace(size) if traced else self._probe.execute(command, data, wanted)
        dap.wait_until(started + self._latency)
        client.sendall(_word(_STATUS_OK) + reply)


def _word(value: int) -> bytes:
    return struct.pack("<I", value)


def _receive(client: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = client.recv(size - len(received))
        if not part:
            raise ConnectionResetError("connection closed")
        received += part
    return bytes(received)


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
    with ConfigError.on(ValidationError, "standard input: is not a machine specification:"):
        spec = kind.model_validate_json(sys.stdin.read())
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
            product=int(product, 16) if product else stlink.V2_1,
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
    kinds = ["st-link", "cmsis-dap", *(f"st-link:{product:04x}" for product in stlink.PRODUCTS)]
    add("--usb", choices=kinds, help="a probe on USB as well; of an ST-Link, also its USB product")
    add("--usb-listen", default="0", help="its socket: unix:PATH, or a TCP port, 0 for any free one")
    add("--usb-user", default="", help="another user who may connect to that TCP port")
    add("--anyone", action="store_true", help="other users of this computer may connect, too")
    return parser.parse_args(arguments)


def _serial_number(text: str) -> str:
    if not SERIAL_NUMBER.fullmatch(text):
        raise argparse.ArgumentTypeError("takes 1 to 32 letters, digits and signs")
    return text
