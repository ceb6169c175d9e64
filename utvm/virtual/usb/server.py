# SPDX-License-Identifier: Apache-2.0
"""The socket that a probe's USB cable ends in: a guest that connects has the probe plugged in."""

import contextlib
import logging
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from utvm.virtual.usb.device import UsbDevice
from utvm.virtual.usb.host import UsbHost
from utvm.virtual.usb.usbredir import ProtocolError

_log = logging.getLogger(__name__)
_UNIX = "unix:"
_CHANGE_OVER = 1.0  # seconds that a guest's end may take while the next one is at the door


class UsbServer:
    """Serves one device; one guest at a time has it, another one is turned away.

    Args:
        device: what is plugged into the guest.
        where: ``unix:PATH``, or a TCP port of the loopback interface, 0 for any free one.
    """

    def __init__(self, device: UsbDevice, where: str) -> None:
        self._device = device
        self._path = Path(where.removeprefix(_UNIX)) if where.startswith(_UNIX) else None
        self._listener = _listen_on(self._path) if self._path else socket.create_server(("127.0.0.1", int(where)))
        self.address = where if self._path else str(self._listener.getsockname()[1])
        self._changed = threading.Condition()  # guards the guest
        self._guest: socket.socket | None = None

    def serve(self) -> None:
        """Accept guests until :meth:`close`; each gets a thread."""
        while True:
            try:
                guest, _peer = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._admit, args=(guest,), daemon=True).start()

    def unplug(self) -> None:
        """Pull the cable out of the guest, if one has it. A guest that connects again has the probe again."""
        with self._changed, contextlib.suppress(OSError):
            if self._guest is not None:
                self._guest.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop accepting guests, and pull the cable."""
        # shutdown() wakes a thread that is blocked in accept(); close() alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.unplug()
        if self._path:
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def target_off(self) -> Iterator[None]:
        """Switch the board's power off and on in a ``with`` block: its debug port is new afterwards."""
        with self._device.wires:
            yield
            self._device.lose_target()

    def _admit(self, guest: socket.socket) -> None:
        with guest:
            with self._changed:
                if not self._changed.wait_for(lambda: self._guest is None, _CHANGE_OVER):
                    _log.warning("a second guest was turned away: the probe is plugged in already")
                    return
                self._guest = guest
            try:
                self._serve_guest(guest)
            finally:
                with self._changed:
                    self._guest = None
                    self._changed.notify_all()

    def _serve_guest(self, guest: socket.socket) -> None:
        if guest.family != socket.AF_UNIX:
            guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _log.info("plugged in")
        try:
            UsbHost(guest, self._device).run()
            _log.info("unplugged")
        except ProtocolError as error:
            _log.warning("unplugged: the guest does not keep to usbredir: %s", error)
        except OSError as error:
            _log.info("unplugged: %s", error)


def _listen_on(path: Path) -> socket.socket:
    """Listen on a path, in the place of a socket that nobody listens on any more."""
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX) as knock, contextlib.suppress(ConnectionRefusedError):
            knock.connect(str(path))
            raise OSError(f"{path}: somebody listens there already")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise OSError(f"{path}: {error.strerror or error}") from error
    return listener
