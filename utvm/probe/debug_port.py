# SPDX-License-Identifier: Apache-2.0
"""Operations on a debug port beyond GDB's protocol, by OpenOCD, pyOCD or QEMU's stub."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from utvm.base.text.quoting import tcl
from utvm.errors import BoardError, ProbeError
from utvm.probe.gdb import GdbClient
from utvm.probe.relay import logic_command, place_command

_HALT_TIMEOUT = 5.0  # Seconds.
# The first trace port of the board's script, at no more baud than an ST-Link/V2 takes.
_TRACE = (
    "set port [lindex [concat [swo names] [tpiu names]] 0]; if {$port eq {}} {error {openocd.cfg creates no tpiu}}; "
    "if {[$port cget -traceclk] == 0} {$port configure -traceclk HZ}; set clock [$port cget -traceclk]; "
    "$port configure -protocol uart -output FILE -pin-freq [expr {$clock / (($clock + 1999999) / 2000000)}]; "
    "$port enable; itm ports on"
)
_LOGIC_TIMEOUT = 300.0  # Seconds: 4 MB through a slow probe.


class DebugPort(ABC):
    """A debug port; every method raises ProbeError if its server fails.

    If ``live``, memory can be accessed while the core runs. ``attended`` names the function whose stops a
    :class:`utvm.probe.relay.NeighbourRelay` handles, if one is in between.
    """

    def __init__(self, gdb: GdbClient, *, live: bool, attended: str = "") -> None:
        self.gdb = gdb
        self._live = live
        self._attended = attended

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Program flash: pairs of address and bytes. The target must be halted."""
        self.gdb.flash(segments)

    @abstractmethod
    def reset(self, *, halt: bool) -> None:
        """Reset the board; ``halt`` stops it before its first instruction."""

    def set_symbols(self, symbols: Mapping[str, int]) -> None:
        """Announce the addresses of the programmed image's functions."""
        if self._attended:
            self.gdb.monitor(place_command(symbols.get(self._attended)))

    def write_word(self, address: int, value: int) -> None:
        """Write 32 bits, to a peripheral's register for instance. The target must be halted."""
        self.gdb.write_memory(address, value.to_bytes(4, "little"))

    @contextlib.contextmanager
    def access(self) -> Iterator[None]:
        """Allow access to memory and breakpoints in a ``with`` block; halts the core if necessary."""
        running = not self._live and self.halt()
        try:
            yield
        except BoardError:
            # A refusal is a reply: the core resumes. After other errors there is no connection.
            if running:
                self.gdb.resume()
            raise
        if running:
            self.gdb.resume()

    def halt(self) -> bool:
        """Halt the core; return True if it was running."""
        running = self.gdb.running
        if running:
            self.gdb.interrupt()
            if self.gdb.wait_for_stop(_HALT_TIMEOUT) is None:
                raise ProbeError("the core does not stop", "check the board's power; is this computer overloaded?")
        return running

    def stop(self) -> None:
        """Halt the core, however it was started."""
        self.halt()

    @abstractmethod
    def program_logic(self, file: Path, commands: str) -> None:
        """Program programmable logic; ``commands`` are OpenOCD's."""

    def trace_into(self, file: Path, clock_hz: int) -> None:
        """Append the bytes of the pin SWO to a file from now on, with all stimulus ports on."""
        raise ProbeError("SWO is read through OpenOCD, which does not drive this board")

    def _reset_by(self, commands: Sequence[str], halt: bool) -> None:
        self.halt()
        for command in commands:
            self.gdb.monitor(command)
        if not halt:
            self.gdb.resume()


class OpenOcdPort(DebugPort):
    """OpenOCD, which has its own flash drivers. ``load`` replaces the commands that load a bitstream."""

    def __init__(self, gdb: GdbClient, *, live: bool, load: str = "") -> None:
        super().__init__(gdb, live=live)
        self._load = load

    def stop(self) -> None:
        """Halt the core, even one that runs since a reset, unknown to GDB's protocol."""
        if not self.halt():
            self.gdb.monitor("halt")

    def program_logic(self, file: Path, commands: str) -> None:
        self.gdb.monitor((self._load or commands).format(file=tcl(str(file.resolve()))), _LOGIC_TIMEOUT)

    def trace_into(self, file: Path, clock_hz: int) -> None:
        self.gdb.monitor(_TRACE.replace("HZ", str(clock_hz)).replace("FILE", tcl(str(file.resolve()))))

    def reset(self, *, halt: bool) -> None:
        self.gdb.monitor("reset halt" if halt else "reset run")
        if halt:
            # OpenOCD 0.12 reports the halt to its clients, but not on RISC-V.
            self.halt()


class PyOcdPort(DebugPort):
    """pyOCD, which runs the chip's own flash algorithms."""

    def program_logic(self, file: Path, commands: str) -> None:
        raise ProbeError("pyOCD cannot program programmable logic", "use OpenOCD: leave out driver=pyocd")

    def reset(self, *, halt: bool) -> None:
        self._reset_by(("reconnect", "reset halt"), halt)


class QemuPort(DebugPort):
    """QEMU's GDB stub. Flash is ordinary memory there."""

    def program_logic(self, file: Path, commands: str) -> None:
        self.gdb.monitor(logic_command(file.name))

    def program(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Write memory."""
        for address, data in segments:
            self.gdb.write_memory(address, data)

    def write_word(self, address: int, value: int) -> None:
        """Write 32 bits as a core does: the stub's other writes do not reach peripherals."""
        self.gdb.set_mode("Qqemu.PhyMemMode:1")
        try:
            super().write_word(address, value)
        finally:
            self.gdb.set_mode("Qqemu.PhyMemMode:0")

    def reset(self, *, halt: bool) -> None:
        self._reset_by(("system_reset",), halt)
