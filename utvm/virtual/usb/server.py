# SPDX-License-Identifier: Apache-2.0
"""The socket of a virtual USB probe, which is plugged in to the connected guest."""

import contextlib
import logging
import os
import pwd
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from utvm.base.process.peer import Acceptor, listen
from utvm.virtual.usb.device import UsbDevice
from utvm.virtual.usb.usbredir import ProtocolError, UsbHost

_log = logging.getLogger(__name__)
_UNIX = "unix:"
_CHANGE_OVER = 1.0  # seconds for a guest to leave while the next one waits


class UsbServer(Acceptor):
    """Serves one device; a second guest is rejected.

    Args:
        where: ``unix:PATH``, or a TCP port of the loopback interface, 0 for any free one.
        user: another user of this computer that may connect to the TCP port.
        anyone: accept all users.
    """

    def __init__(self, device: UsbDevice, where: str, *, user: str = "", anyone: bool = False) -> None:
        self._device = device
        self._path = Path(where.removeprefix(_UNIX)) if where.startswith(_UNIX) else None
        if self._path:
            super().__init__(_listen_on(self._path, anyone))
        else:
            users = {entry.pw_uid for entry in pwd.getpwall() if entry.pw_name == user}
            super().__init__(listen(int(where), anyone=anyone, also=frozenset(users)))
        self.address = where if self._path else str(self._listener.getsockname()[1])
        self._changed = threading.Condition()  # guards the guest
        self._guest: socket.socket | None = None

    def serve(self) -> None:
        """Accept guests until :meth:`close`; each gets a thread."""
        for guest in self.clients():
            threading.Thread(target=self._admit, args=(guest,), daemon=True).start()

    def unplug(self) -> None:
        """Unplug the probe from its guest, if any. A guest that reconnects gets it again."""
        with self._changed, contextlib.suppress(OSError):
            if self._guest is not None:
                self._guest.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop accepting guests, and unplug the probe."""
        super().close()
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
            _log.warning("unplugged: the guest violates usbredir: %s", error)
        except OSError as error:
            _log.info("unplugged: %s", error)


def _listen_on(path: Path, anyone: bool) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX) as knock, contextlib.suppress(ConnectionRefusedError):
            knock.connect(str(path))
            raise OSError(f"{path}: another process listens there")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o111 if anyone else 0o177)
    try:
        listener.bind(str(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise OSError(f"{path}: {error.strerror or error}") from error
    finally:
        os.umask(mask)
    return listener
