# SPDX-License-Identifier: Apache-2.0
"""The end of a usbredir connection that has the device (the protocol calls it usb-host)."""

import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from utvm.virtual.usb.descriptors import IN, Transfer
from utvm.virtual.usb.device import SetupPacket, UsbDevice
from utvm.virtual.usb.usbredir import Packet, PacketKind, PacketStream, RequestStatus

_VERSION = "utvm virtual probe"
_RECEIVE_BYTES = 1 << 16
_ENDPOINTS = 32
_NO_ENDPOINT = 255
_CONTROL = 0
# A guest that sends and never fetches is refused before it has filled this computer's memory.
_MOST_REQUESTS = 256
_MOST_UNFETCHED_BYTES = 1 << 18


@dataclass
class _Outlet:
    """An endpoint that sends to the guest: who waits for data, and data that waits."""

    requests: deque[tuple[int, int, int]] = field(default_factory=deque)  # id, length, stream
    messages: deque[bytes] = field(default_factory=deque)


class UsbHost:
    """A device on a connection; to the device, the cable that it is plugged into.

    Args:
        connection: to the guest. Who made it closes it.
    """

    def __init__(self, connection: socket.socket, device: UsbDevice) -> None:
        self._connection = connection
        self._device = device
        self._wire = PacketStream()
        self._open = True
        self._outlets = {address: _Outlet() for address in device.descriptors.endpoints if address & IN}
        self._changed = threading.Condition()  # guards the outlets and what is sent
        self._handlers: dict[PacketKind, Callable[[Packet], None]] = {
            PacketKind.HELLO: self._introduce,
            PacketKind.RESET: self._reset,
            PacketKind.SET_CONFIGURATION: self._set_configuration,
            PacketKind.GET_CONFIGURATION: self._get_configuration,
            PacketKind.SET_ALT_SETTING: self._set_alt_setting,
            PacketKind.GET_ALT_SETTING: self._get_alt_setting,
            PacketKind.START_ISO_STREAM: self._refuse_iso,
            PacketKind.STOP_ISO_STREAM: self._refuse_iso,
            PacketKind.START_INTERRUPT_RECEIVING: self._interrupt_receiving,
            PacketKind.STOP_INTERRUPT_RECEIVING: self._interrupt_receiving,
            PacketKind.CANCEL_DATA_PACKET: self._cancel,
            PacketKind.CONTROL_PACKET: self._control,
            PacketKind.BULK_PACKET: self._bulk,
            # No device here has an endpoint for them.
            PacketKind.ISO_PACKET: lambda packet: None,
            PacketKind.INTERRUPT_PACKET: self._refuse_interrupt,
        }

    def run(self) -> None:
        """Serve the guest until it closes the connection."""
        try:
            self._connection.sendall(self._wire.hello(_VERSION))
            self._device.plug_in(self)
            while received := self._connection.recv(_RECEIVE_BYTES):
                for packet in self._wire.feed(received):
                    self._handlers[packet.kind](packet)
        finally:
            with self._changed:
                self._open = False
                self._changed.notify_all()

    # The cable, as the device sees it

    def send(self, endpoint: int, data: bytes) -> None:
        """Have data ready for the guest to fetch."""
        with self._changed:
            self._outlets[endpoint].messages.append(data)
            self._match(endpoint)

    def wait_for_request(self, endpoint: int) -> bool:
        """Wait until the guest asks for more than was sent; False: the connection is over."""
        outlet = self._outlets[endpoint]
        with self._changed:
            self._changed.wait_for(lambda: not self._open or (outlet.requests and not outlet.messages))
            return self._open

    # Packets from the guest

    def _introduce(self, _packet: Packet) -> None:
        self._announce()
        said = self._device.descriptors
        fields = (said.speed, *said.codes, said.vendor, said.product, said.version)
        self._send(Packet(PacketKind.DEVICE_CONNECT, 0, fields))

    def _announce(self) -> None:
        """Say which interfaces and endpoints there are, as has to be done before they are used."""
        interfaces = self._device.descriptors.interfaces
        columns = [list(range(len(interfaces)))] + [[each.codes[i] for each in interfaces] for i in range(3)]
        padded = (value for column in columns for value in column + [0] * (_ENDPOINTS - len(column)))
        self._send(Packet(PacketKind.INTERFACE_INFO, 0, (len(interfaces), *padded)))
        kinds, intervals, owners, sizes = [_NO_ENDPOINT] * _ENDPOINTS, [0] * 32, [0] * 32, [0] * 32
        for number in (0, _ENDPOINTS // 2):  # the control endpoint, in both directions
            kinds[number], sizes[number] = _CONTROL, 64
        for address, (owner, endpoint) in self._device.descriptors.endpoints.items():
            number = address & 0xF | (_ENDPOINTS // 2 if address & IN else 0)
            kinds[number], intervals[number] = endpoint.transfer, endpoint.interval
            owners[number], sizes[number] = owner, endpoint.packet
        self._send(Packet(PacketKind.EP_INFO, 0, (*kinds, *intervals, *owners, *sizes)))

    def _reset(self, _packet: Packet) -> None:
        self._device.reset()
        self._forget()

    def _set_configuration(self, packet: Packet) -> None:
        done = self._device.configure(packet.fields[0])
        if done:
            self._forget()
            self._announce()
        self._answer_configuration(packet, RequestStatus.SUCCESS if done else RequestStatus.INVALID)

    def _get_configuration(self, packet: Packet) -> None:
        self._answer_configuration(packet, RequestStatus.SUCCESS)

    def _answer_configuration(self, packet: Packet, status: RequestStatus) -> None:
        self._send(Packet(PacketKind.CONFIGURATION_STATUS, packet.id, (status, self._device.configuration)))

    def _set_alt_setting(self, packet: Packet) -> None:
        interface, setting = packet.fields
        there = interface < len(self._device.descriptors.interfaces) and setting == 0
        if there:
            self._announce()
        status = RequestStatus.SUCCESS if there else RequestStatus.INVALID
        self._send(Packet(PacketKind.ALT_SETTING_STATUS, packet.id, (status, interface, 0)))

    def _get_alt_setting(self, packet: Packet) -> None:
        status = (
            RequestStatus.SUCCESS
            if packet.fields[0] < len(self._device.descriptors.interfaces)
            else RequestStatus.INVALID
        )
        self._send(Packet(PacketKind.ALT_SETTING_STATUS, packet.id, (status, packet.fields[0], 0)))

    def _refuse_iso(self, packet: Packet) -> None:
        self._send(Packet(PacketKind.ISO_STREAM_STATUS, packet.id, (RequestStatus.INVALID, packet.fields[0])))

    def _refuse_interrupt(self, packet: Packet) -> None:
        self._send(Packet(PacketKind.INTERRUPT_PACKET, packet.id, (packet.fields[0], RequestStatus.INVALID, 0)))

    def _interrupt_receiving(self, packet: Packet) -> None:
        address = packet.fields[0]
        known = self._device.descriptors.endpoints.get(address)
        there = known is not None and address & IN and known[1].transfer == Transfer.INTERRUPT
        status = RequestStatus.SUCCESS if there else RequestStatus.INVALID
        self._send(Packet(PacketKind.INTERRUPT_RECEIVING_STATUS, packet.id, (status, address)))

    def _cancel(self, packet: Packet) -> None:
        with self._changed:
            for address, outlet in self._outlets.items():
                for request in outlet.requests:
                    if request[0] == packet.id:
                        outlet.requests.remove(request)
                        self._answer_bulk(packet.id, address, RequestStatus.CANCELLED, stream=request[2])
                        return

    def _control(self, packet: Packet) -> None:
        endpoint, request, request_type, _status, value, index, length = packet.fields
        answer = None
        if endpoint & IN == request_type & IN:
            answer = self._device.control(SetupPacket(request_type, request, value, index, length), packet.data)
        status = RequestStatus.STALL if answer is None else RequestStatus.SUCCESS
        data = answer if answer and endpoint & IN else b""
        size = len(data) if endpoint & IN or answer is None else length
        fields = (endpoint, request, request_type, status, value, index, size)
        self._send(Packet(PacketKind.CONTROL_PACKET, packet.id, fields, data))

    def _bulk(self, packet: Packet) -> None:
        address, _status, length, stream = packet.fields
        refusal = self._refusal(address)
        if refusal is not None:
            self._answer_bulk(packet.id, address, refusal, stream=stream)
        elif address & IN:
            with self._changed:
                self._outlets[address].requests.append((packet.id, length, stream))
                self._match(address)
                self._changed.notify_all()
        else:
            self._device.take(self, address, packet.data)
            self._answer_bulk(packet.id, address, RequestStatus.SUCCESS, length=length, stream=stream)

    def _refusal(self, address: int) -> RequestStatus | None:
        """Return why a bulk transfer cannot be, or None."""
        known = self._device.descriptors.endpoints.get(address)
        if known is None or known[1].transfer != Transfer.BULK or not self._device.configuration:
            return RequestStatus.INVALID
        if address in self._device.halted:
            return RequestStatus.STALL
        with self._changed:
            if address & IN:
                return RequestStatus.INVALID if len(self._outlets[address].requests) >= _MOST_REQUESTS else None
            unfetched = sum(len(message) for outlet in self._outlets.values() for message in outlet.messages)
        return RequestStatus.STALL if unfetched > _MOST_UNFETCHED_BYTES else None

    # Packets to the guest

    def _forget(self) -> None:
        """Drop what was under way: the guest has set the device back."""
        with self._changed:
            for address, outlet in self._outlets.items():
                for identification, _length, stream in outlet.requests:
                    self._answer_bulk(identification, address, RequestStatus.CANCELLED, stream=stream)
                outlet.requests.clear()
                outlet.messages.clear()

    def _match(self, address: int) -> None:
        """Bring waiting data to who waits for it. Called with the lock held."""
        outlet = self._outlets[address]
        while outlet.requests and outlet.messages:
            identification, length, stream = outlet.requests.popleft()
            message = outlet.messages.popleft()
            if len(message) > length:
                outlet.messages.appendleft(message[length:])
            part = message[:length]
            self._answer_bulk(identification, address, RequestStatus.SUCCESS, len(part), stream, part)

    def _answer_bulk(
        self, number: int, address: int, status: RequestStatus, length: int = 0, stream: int = 0, data: bytes = b""
    ) -> None:
        self._send(Packet(PacketKind.BULK_PACKET, number, (address, status, length, stream), data))

    def _send(self, packet: Packet) -> None:
        with self._changed:
            self._connection.sendall(self._wire.encode(packet))
