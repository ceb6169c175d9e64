# SPDX-License-Identifier: Apache-2.0
"""What a bench asks of whatever is at a board's debug port beyond GDB's own protocol: OpenOCD, or QEMU's stub."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from utvm.base.text.quoting import tcl
from utvm.errors import BoardError, ProbeError
from utvm.probe.gdb import GdbClient
from utvm.probe.relay import logic_command, place_command

_HALT_TIMEOUT = 5.0  # Seconds.
_LOGIC_TIMEOUT = 300.0  # Seconds: 4 MB through a probe that takes its time.


class DebugPort(ABC):
    """One of the two; every method raises ProbeError where the other end fails.

    Args:
        gdb: the way to the other end.
        live: whether memory can be reached while the core runs.
        attended: the function in which a :class:`utvm.probe.relay.NeighbourRelay` has a model work, if one is
            between.
    """

    def __init__(self, gdb: GdbClient, *, live: bool, attended: str = "") -> None:
        self.gdb = gdb
        self._live = live
        self._attended = attended

    @abstractmethod
    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Program flash: pairs of address and bytes. The target must be halted."""

    @abstractmethod
    def reset(self, *, halt: bool) -> None:
        """Reset the board; ``halt`` stops it before its first instruction."""

    def programmed(self, symbols: Mapping[str, int]) -> None:
        """Learn where the functions of the image are that the board now holds."""
        if self._attended:
            self.gdb.monitor(place_command(symbols.get(self._attended)))

    def write_word(self, address: int, value: int) -> None:
        """Write 32 bits, to a peripheral's register for instance. The target must be halted."""
        self.gdb.write_memory(address, value.to_bytes(4, "little"))

    @contextlib.contextmanager
    def access(self) -> Iterator[None]:
        """Reach memory and breakpoints for the length of a ``with`` block; a core stands still if it must."""
        running = not self._live and self.halt()
        try:
            yield
        except BoardError:
            # A refusal is an answer: the core goes on as after any other. One that is not answered has no link.
            if running:
                self.gdb.resume()
            raise
        if running:
            self.gdb.resume()

    def halt(self) -> bool:
        """Stop the core; return whether it ran."""
        running = self.gdb.running
        if running:
            self.gdb.interrupt()
            if self.gdb.wait_for_stop(_HALT_TIMEOUT) is None:
                raise ProbeError("the core does not stop", "check the board's power; is this computer overloaded?")
        return running

    def stop(self) -> None:
        """Stop the core, however it was started."""
        self.halt()

    @abstractmethod
    def program_logic(self, file: Path, commands: str) -> None:
        """Program programmable logic, by OpenOCD's commands where it is there."""


class OpenOcdPort(DebugPort):
    """OpenOCD, which has the algorithms for flash."""

    def stop(self) -> None:
        """Stop the core, also one that runs since a reset: GDB's protocol does not know of that."""
        if not self.halt():
            self.gdb.monitor("halt")

    def program_logic(self, file: Path, commands: str) -> None:
        """Have OpenOCD shift a bitstream in."""
        self.gdb.monitor(commands.format(file=tcl(str(file.resolve()))), _LOGIC_TIMEOUT)

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Program flash."""
        self.gdb.flash(segments)

    def reset(self, *, halt: bool) -> None:
        """Reset through the probe."""
        self.gdb.monitor("reset halt" if halt else "reset run")
        if halt:
            # OpenOCD 0.12 tells its clients of it, but not on RISC-V: there it has to be asked.
            self.halt()


class PyOcdPort(DebugPort):
    """pyOCD, which runs the chip's own algorithms for flash."""

    def program_logic(self, file: Path, commands: str) -> None:
        """Refuse: it knows none."""
        raise ProbeError("pyOCD programs no programmable logic", "take OpenOCD: leave out driver=pyocd")

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Program flash."""
        self.gdb.flash(segments)

    def reset(self, *, halt: bool) -> None:
        """Reset through the probe."""
        self.halt()
        self.gdb.monitor("reconnect")
        self.gdb.monitor("reset halt")
        if not halt:
            self.gdb.resume()


class QemuPort(DebugPort):
    """QEMU's GDB stub, to which flash is memory like any other."""

    def program_logic(self, file: Path, commands: str) -> None:
        """Tell the model that stands for what is in it."""
        self.gdb.monitor(logic_command(file.name))

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Write memory."""
        for address, data in segments:
            self.gdb.write_memory(address, data)

    def write_word(self, address: int, value: int) -> None:
        """Write 32 bits as a core does: what the stub writes otherwise does not reach peripherals."""
        self.gdb.set_mode("Qqemu.PhyMemMode:1")
        try:
            super().write_word(address, value)
        finally:
            self.gdb.set_mode("Qqemu.PhyMemMode:0")

    def reset(self, *, halt: bool) -> None:
        """Reset the machine; its memory stays as it is."""
        self.halt()
        self.gdb.monitor("system_reset")
        if not halt:
            self.gdb.resume()
