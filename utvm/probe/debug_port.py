"""What a bench asks of whatever is at a board's debug port beyond GDB's own protocol: OpenOCD, or QEMU's stub."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from utvm.errors import ProbeError
from utvm.probe.gdb import GdbClient

_HALT_TIMEOUT = 5.0  # Seconds.


class DebugPort(Protocol):
    """One of the two; every method raises ProbeError where the other end fails."""

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Put an image where it runs from: pairs of address and bytes. The target must be halted."""

    def reset(self, *, halt: bool) -> None:
        """Reset the board; ``halt`` stops it before its first instruction."""

    def access(self) -> contextlib.AbstractContextManager[None]:
        """Memory and breakpoints can be reached for the length of a ``with`` block."""


class OpenOcdPort:
    """OpenOCD: it programs flash, and reaches memory while the core runs."""

    def __init__(self, gdb: GdbClient) -> None:
        self._gdb = gdb

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Program flash."""
        self._gdb.flash(segments)

    def reset(self, *, halt: bool) -> None:
        """Reset through the probe."""
        self._gdb.monitor("reset halt" if halt else "reset run")

    def access(self) -> contextlib.AbstractContextManager[None]:
        """Nothing has to be done."""
        return contextlib.nullcontext()


class QemuPort:
    """QEMU's GDB stub: code memory is written as RAM is, and nothing is answered while the core runs."""

    def __init__(self, gdb: GdbClient) -> None:
        self._gdb = gdb

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Write memory, and have the core take its start and its stack from there."""
        for address, data in segments:
            self._gdb.write_memory(address, data)
        self.reset(halt=True)

    def reset(self, *, halt: bool) -> None:
        """Reset the machine; its memory stays as it is."""
        self._halt()
        self._gdb.monitor("system_reset")
        if not halt:
            self._gdb.resume()

    @contextlib.contextmanager
    def access(self) -> Iterator[None]:
        """Stop a running core meanwhile; emulated time stands still too."""
        running = self._halt()
        yield
        if running:
            self._gdb.resume()

    def _halt(self) -> bool:
        """Stop the core; return whether it ran."""
        running = self._gdb.running
        if running:
            self._gdb.interrupt()
            if self._gdb.wait_for_stop(_HALT_TIMEOUT) is None:
                raise ProbeError("QEMU does not stop its core", "is this computer overloaded?")
        return running
