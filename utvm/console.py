"""A board's console: the bytes it prints on its serial line.

A physical board's line is a serial device; a virtual board's is a TCP port. pyserial opens both by URL.
"""

import time
from types import TracebackType

import serial

from utvm.errors import BoardError, TransportError


class Console:
    """The receiving end of a board's serial line.

    Args:
        url: a serial device or ``socket://host:port``.
        baud: bits per second; without meaning for a socket.

    Raises:
        TransportError: it cannot be opened, or breaks.
    """

    def __init__(self, url: str, baud: int) -> None:
        self.url = url
        self.received = b""
        try:
            self._line = serial.serial_for_url(url, baudrate=baud, timeout=0.05)
        except (serial.SerialException, ValueError, OSError) as error:
            raise TransportError(
                f"the console {url} cannot be opened: {error}",
                "is another program using it, and may you read it (group dialout)?",
            ) from error

    def __enter__(self) -> "Console":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()

    def read_until(self, text: bytes, timeout: float) -> bytes:
        """Read until some text has arrived, and return everything up to its end.

        Args:
            timeout: seconds.

        Raises:
            BoardError: the text did not come in time.
            TransportError: the line broke.
        """
        deadline = time.monotonic() + timeout
        while text not in self.received:
            if time.monotonic() > deadline:
                raise BoardError(
                    f"the console did not say {text!r} within {timeout:g} s; it said {self.received[-200:]!r}"
                )
            try:
                self.received += self._line.read(4096)
            except (serial.SerialException, OSError) as error:
                raise TransportError(f"the console {self.url} broke: {error}") from error
        end = self.received.index(text) + len(text)
        seen, self.received = self.received[:end], self.received[end:]
        return seen

    def clear(self) -> None:
        """Forget what has been received and not read, for at most a second."""
        deadline = time.monotonic() + 1.0
        while self._line.read(4096) and time.monotonic() < deadline:
            pass
        self.received = b""
