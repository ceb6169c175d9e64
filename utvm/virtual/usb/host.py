# SPDX-License-Identifier: Apache-2.0
"""Host side of a virtual USB probe: a pyusb backend that speaks usbredir.

:mod:`utvm.probe.pyocd.inside` loads this file when pyOCD drives a virtual board. It does not import utvm, which
pyOCD's Python may lack, and needs no USB in the kernel. Sources: USB network redirection protocol 0.7; Universal
Serial Bus Specification 2.0, section 9.6.
"""

import contextlib
import errno
import queue
import socket
import struct
import threading
from types import SimpleNamespace
from typing import Any

import usb.backend
import usb.core

_HELLO, _CONNECT, _SET_CONFIGURATION, _CONFIGURATION_STATUS, _CANCEL = 0, 1, 6, 8, 21
_CONTROL, _BULK = 100, 101
_HEADER = struct.Struct("<IIQ")
_CONTROL_HEADER = struct.Struct("<BBBBHHH")
_BULK_HEADER = struct.Struct("<BBHIH")
# Device versions, packet sizes, 64-bit ids, 32-bit lengths.
_CAPABILITIES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6
_IN = 0x80
_DONE, _CANCELLED = 0, 1
_DESCRIPTOR = 6
_OF_INTERFACE, _OF_ENDPOINT = 4, 5
_PATIENCE = 10.0  # Seconds for the peer to send an immediate reply.


class UsbRedirection:
    """The side of a usbredir connection without the device: sends requests and receives replies."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._lock = threading.Lock()
        self._answers: dict[int, queue.Queue[tuple[int, bytes]]] = {}
        self._number = 0
        self._plugged = threading.Event()
        self._unplugged = False
        self.lost = False  # The device was unplugged before this side closed the connection.
        body = b"utvm".ljust(64, b"\0") + struct.pack("<I", _CAPABILITIES)
        self._socket.sendall(struct.pack("<III", _HELLO, len(body), 0) + body)
        threading.Thread(target=self._listen, daemon=True).start()
        if not self._plugged.wait(_PATIENCE):
            raise OSError(errno.ENODEV, "no device is plugged in")
        if self._unplugged:
            raise usb.core.USBError("Resource busy", None, errno.EBUSY)

    def close(self) -> None:
        """Leave the device to the next client."""
        self.lost = self.lost or self._unplugged
        # shutdown() wakes the thread that is blocked in recv(); close() alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def control(self, request_type: int, request: int, value: int, index: int, data: bytes, length: int) -> bytes:
        """Do a control transfer; raises USBError if the device rejects it."""
        fields = _CONTROL_HEADER.pack(request_type & _IN, request, request_type, 0, value, index, length)
        kind, body = self._ask(_CONTROL, fields + data, _PATIENCE)
        status = _CONTROL_HEADER.unpack_from(body)[3]
        if kind != _CONTROL or status != _DONE:
            raise usb.core.USBError("Pipe error", status, errno.EPIPE)
        return body[_CONTROL_HEADER.size :]

    def configure(self, value: int) -> None:
        """Select the device's configuration."""
        self._ask(_SET_CONFIGURATION, bytes([value]), _PATIENCE)

    def bulk(self, endpoint: int, length: int, data: bytes, timeout: float) -> bytes:
        """Do a bulk transfer; raises USBError if the device rejects it, or on a timeout."""
        fields = _BULK_HEADER.pack(endpoint, 0, length & 0xFFFF, 0, length >> 16)
        _, body = self._ask(_BULK, fields + data, timeout)
        status = _BULK_HEADER.unpack_from(body)[1]
        if status == _CANCELLED:
            raise usb.core.USBTimeoutError("Operation timed out", status, errno.ETIMEDOUT)
        if status != _DONE:
            raise usb.core.USBError("Pipe error", status, errno.EPIPE)
        return body[_BULK_HEADER.size :]

    def _ask(self, kind: int, body: bytes, timeout: float) -> tuple[int, bytes]:
        answer: queue.Queue[tuple[int, bytes]] = queue.Queue()
        with self._lock:
            if self._unplugged:
                raise usb.core.USBError("No such device", None, errno.ENODEV)
            self._number += 1
            number = self._number
            self._answers[number] = answer
            self._send(kind, number, body)
        try:
            answered = answer.get(timeout=timeout)
        except queue.Empty:
            # A reply still follows: cancelled, or complete if it was in progress.
            with self._lock:
                self._send(_CANCEL, number, b"")
            answered = answer.get(timeout=_PATIENCE)
        if not answered[1]:
            raise usb.core.USBError("No such device", None, errno.ENODEV)
        return answered

    def _send(self, kind: int, number: int, body: bytes) -> None:
        try:
            self._socket.sendall(_HEADER.pack(kind, len(body), number) + body)
        except OSError as error:
            raise usb.core.USBError("No such device", None, errno.ENODEV) from error

    def _listen(self) -> None:
        try:
            _, length, _ = struct.unpack("<III", self._exactly(12))
            self._exactly(length)
            while True:
                kind, length, number = _HEADER.unpack(self._exactly(_HEADER.size))
                body = self._exactly(length)
                if kind == _CONNECT:
                    self._plugged.set()
                elif number in self._answers:
                    self._answers.pop(number).put((kind, body))
        except OSError:
            with self._lock:
                self._unplugged = True
                for answer in self._answers.values():
                    answer.put((0, b""))
            self._plugged.set()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionResetError
            received += part
        return bytes(received)


class Backend(usb.backend.IBackend):  # type: ignore[misc]  # pyusb is not typed
    """One bus with one device (``usb.backend.IBackend``), which it holds while a handle is open."""

    def __init__(self, path: str) -> None:
        self._path, self._handles = path, 0
        self._wire = UsbRedirection(path)
        self._device = self._descriptor(1, 18)
        total = struct.unpack_from("<H", self._descriptor(2, 9), 2)[0]
        self._configuration = self._descriptor(2, total)
        self._chosen = self._configuration[5]
        self._wire.close()

    def _descriptor(self, kind: int, length: int) -> bytes:
        return self._wire.control(_IN, _DESCRIPTOR, kind << 8, 0, b"", length)

    def enumerate_devices(self) -> list[int]:
        return [1]

    def get_device_descriptor(self, _dev: Any) -> Any:
        names = (
            "bLength bDescriptorType bcdUSB bDeviceClass bDeviceSubClass bDeviceProtocol bMaxPacketSize0 idVendor "
            "idProduct bcdDevice iManufacturer iProduct iSerialNumber bNumConfigurations"
        )
        descriptor = _parse_descriptor(names, "<BBHBBBBHHHBBBB", self._device)
        descriptor.__dict__.update(address=1, bus=1, port_number=1, port_numbers=(1,), speed=3)
        return descriptor

    def get_configuration_descriptor(self, _dev: Any, config: int) -> Any:
        if config:
            raise IndexError
        names = (
            "bLength bDescriptorType wTotalLength bNumInterfaces bConfigurationValue iConfiguration bmAttributes "
            "bMaxPower"
        )
        return _parse_descriptor(names, "<BBHBBBBB", self._configuration)

    def get_interface_descriptor(self, _dev: Any, intf: int, alt: int, _config: int) -> Any:
        names = (
            "bLength bDescriptorType bInterfaceNumber bAlternateSetting bNumEndpoints bInterfaceClass "
            "bInterfaceSubClass bInterfaceProtocol iInterface"
        )
        if alt:
            raise IndexError
        return _parse_descriptor(names, "<9B", self._parts()[intf][0])

    def get_endpoint_descriptor(self, _dev: Any, ep: int, intf: int, _alt: int, _config: int) -> Any:
        names = "bLength bDescriptorType bEndpointAddress bmAttributes wMaxPacketSize bInterval"
        descriptor = _parse_descriptor(names, "<BBBBHB", self._parts()[intf][1][ep])
        descriptor.__dict__.update(bRefresh=0, bSynchAddress=0)
        return descriptor

    def _parts(self) -> list[tuple[bytes, list[bytes]]]:
        parts: list[tuple[bytes, list[bytes]]] = []
        at = 0
        while at < len(self._configuration):
            piece = self._configuration[at : at + self._configuration[at]]
            if piece[1] == _OF_INTERFACE:
                parts.append((piece, []))
            elif piece[1] == _OF_ENDPOINT:
                parts[-1][1].append(piece)
            at += len(piece)
        return parts

    def open_device(self, dev: Any) -> Any:
        """Connect to the device; raises USBError if another program has it, or if it was unplugged."""
        if self._wire.lost:
            raise usb.core.USBError("No such device", None, errno.ENODEV)
        if not self._handles:
            self._wire = UsbRedirection(self._path)
            self._wire.configure(self._chosen)
        self._handles += 1
        return dev

    def close_device(self, _handle: Any) -> None:
        """Disconnect with the last handle."""
        self._handles -= 1
        if not self._handles:
            self._wire.close()

    def get_configuration(self, _handle: Any) -> int:
        return self._chosen

    def set_configuration(self, _handle: Any, value: int) -> None:
        self._wire.configure(value)

    def claim_interface(self, _handle: Any, _intf: int) -> None:
        """Do nothing: no other program uses the device."""

    def release_interface(self, _handle: Any, _intf: int) -> None:
        """Do nothing: no other program uses the device."""

    def is_kernel_driver_active(self, _handle: Any, _intf: int) -> bool:
        return False

    def bulk_write(self, _handle: Any, ep: int, _intf: int, data: Any, timeout: int) -> int:
        self._wire.bulk(ep, len(data), data.tobytes(), timeout / 1000)
        return len(data)

    def bulk_read(self, _handle: Any, ep: int, _intf: int, buff: Any, timeout: int) -> int:
        data = self._wire.bulk(ep, len(buff), b"", timeout / 1000)
        memoryview(buff)[: len(data)] = memoryview(data)
        return len(data)

    def ctrl_transfer(self, _handle: Any, kind: int, request: int, value: int, index: int, data: Any, _: int) -> int:
        if not kind & _IN:
            self._wire.control(kind, request, value, index, data.tobytes(), len(data))
            return len(data)
        answer = self._wire.control(kind, request, value, index, b"", len(data))
        memoryview(data)[: len(answer)] = memoryview(answer)
        return len(answer)


def _parse_descriptor(names: str, layout: str, data: bytes) -> Any:
    values = struct.unpack_from(layout, data)
    return SimpleNamespace(**dict(zip(names.split(), values, strict=True)), extra_descriptors=[])
