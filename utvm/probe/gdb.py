# SPDX-License-Identifier: Apache-2.0
"""GDB remote client, used for all access to a target.

It implements GDB's remote serial protocol (GDB manual, appendix "GDB Remote Serial Protocol") for OpenOCD's GDB
port or any other stub. Addresses are byte addresses; registers are unsigned integers of their own width.
"""

import os
import re
import socket
import time
from collections.abc import Sequence

from utvm.errors import BoardError, ProbeError
from utvm.probe import target_xml
from utvm.probe.packets import Access, GdbLink, Stop, escape, from_hex, packet_size, parse_stop

_WATCH_TYPES: dict[str, int] = {"write": 2, "read": 3, "access": 4}
_HARDWARE_BREAKPOINT = 1

# The largest transfer of an ST-Link: a packet that carries a whole number of them wastes no command.
_TRANSFER_BYTES = 6144
_OPENOCD_ADVICE = "look at OpenOCD's log; unplug and replug the probe if it hangs"
_DEFAULT_PACKET_BYTES = 400
_WRITE_OVERHEAD_BYTES = 64  # of X and vFlashWrite, with the checksum
# Pauses between two polls of a running target, in seconds: short first, for short runs.
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05
# A stop is noticed at most a quarter of the run late.
_PAUSE_GROWTH = 1.25
_POLL_TRIES = 5
_STEP_TRIES = 5
_OF_RISCV = "misa"  # a register of no other core
_ERROR = re.compile(rb"E[0-9a-fA-F]{2}|E\..*", re.DOTALL)
_CONSOLE_OUTPUT = re.compile(rb"O([0-9a-fA-F]{2})*")


class GdbClient:
    """A connection to a target's GDB server. Entering it begins the session; servers halt the target then.

    Args:
        channel: connection to the server; it stays open.
        timeout: seconds for a reply; flash and monitor commands have longer ones.
        advice: hint of the error when the server does not reply.
        breakpoint_kind: breakpoint kind of the target's code (GDB manual, "ARM Breakpoint Kinds").
    """

    hello = b"qSupported"
    go, one = b"c", b"s"  # packets to continue and to execute one instruction

    def __init__(
        self, channel: socket.socket, *, timeout: float = 10.0, advice: str = _OPENOCD_ADVICE, breakpoint_kind: int = 2
    ) -> None:
        self._channel = channel
        self._timeout = timeout
        self._advice = advice
        self._breakpoint_kind = breakpoint_kind
        self._binary_writes = True
        self._link: GdbLink | None = None
        self._packet_bytes = _DEFAULT_PACKET_BYTES
        self._registers: tuple[target_xml.Register, ...] = ()
        self._breakpoints: dict[int, bool] = {}  # by address; True if in RAM
        self._must_poll = False
        self._running = False
        self._stopped: Stop | None = None

    def __enter__(self) -> "GdbClient":
        self._link = GdbLink(self._channel, self._advice)
        try:
            self._negotiate()
            self._registers = self._describe_registers()
            self._must_poll = self._turn_off_polling()
        except BaseException:
            self._link.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def hand_over(self) -> GdbLink:
        """Release the connection to another client."""
        if self._must_poll:
            self._command("poll on", self._timeout)
        return self._wire

    # Memory

    def read_memory(self, address: int, size: int) -> bytes:
        """Read ``size`` bytes of memory."""
        largest = (self._packet_bytes - _WRITE_OVERHEAD_BYTES) // 2
        step = largest // _TRANSFER_BYTES * _TRANSFER_BYTES or largest
        parts: list[bytes] = []
        for offset in range(0, size, step):
            length = min(step, size - offset)
            what = f"{length} bytes at {address + offset:#010x} cannot be read"
            part = from_hex(require_data(self._request(b"m%x,%x" % (address + offset, length)), what))
            if len(part) != length:
                raise BoardError(f"{what}: received {len(part)} bytes", "check the debug cable")
            parts.append(part)
        return b"".join(parts)

    def write_memory(self, address: int, data: bytes) -> None:
        """Write memory, and wait until it is written. Flash needs :meth:`flash`."""
        if not data:
            return
        failed = not all(self._store(address + offset, part) for offset, part in self._split(data))
        if self._binary_writes:
            # OpenOCD acknowledges a large write in advance and reports a failure with the next write.
            # An empty write collects it.
            failed = self._request(b"X%x,0:" % address) != b"OK" or failed
        if failed:
            self._resynchronise()
            message = f"{len(data)} bytes at {address:#010x} cannot be written"
            raise BoardError(message, "is there memory at that address, and is it not flash?")

    def _store(self, address: int, data: bytes) -> bool:
        """Write one packet of data; in two halves without binary writes (QEMU 7.2)."""
        if self._binary_writes:
            reply = self._request(b"X%x,%x:%b" % (address, len(data), escape(data)))
            self._binary_writes = reply != b""
        if not self._binary_writes:
            # A word is not split: a peripheral would see two accesses.
            fits = 2 * len(data) <= self._packet_bytes - _WRITE_OVERHEAD_BYTES
            half = len(data) if fits else (len(data) + 1) // 2
            parts = [(address, data[:half]), (address + half, data[half:])]
            replies = [self._request(b"M%x,%x:%b" % (at, len(x), x.hex().encode())) for at, x in parts if x]
            return all(reply == b"OK" for reply in replies)
        return reply == b"OK"

    def _split(self, data: bytes) -> list[tuple[int, bytes]]:
        """Split data so that each escaped part fits a packet, in whole transfers if possible."""
        room = self._packet_bytes - _WRITE_OVERHEAD_BYTES
        parts: list[tuple[int, bytes]] = []
        offset = 0
        while offset < len(data):
            size = room // _TRANSFER_BYTES * _TRANSFER_BYTES or room & ~3
            while len(escape(data[offset : offset + size])) > room:
                size = size - _TRANSFER_BYTES if size > _TRANSFER_BYTES else size // 2 & ~3
            parts.append((offset, data[offset : offset + size]))
            offset += size
        return parts

    def _resynchronise(self) -> None:
        self._send(self.hello)
        while not self._reply(self._timeout).startswith(b"PacketSize"):
            pass

    # Registers

    @property
    def register_names(self) -> tuple[str, ...]:
        """Register names of the target description."""
        return tuple(register.name for register in self._registers)

    def read_register(self, name: str) -> int:
        reply = self._request(b"p%x" % self._find_register(name).number)
        return int.from_bytes(from_hex(require_data(reply, f"register {name} cannot be read")), "little")

    def write_register(self, name: str, value: int) -> None:
        register = self._find_register(name)
        data = value.to_bytes(register.size, "little").hex().encode()
        self._expect_ok(b"P%x=%b" % (register.number, data), f"register {name} cannot be set")

    def _find_register(self, name: str) -> target_xml.Register:
        for register in self._registers:
            # OpenOCD's xPSR is xpsr in QEMU.
            if register.name.lower() == name.lower():
                return register
        raise BoardError(f"the target has no register {name}", f"it has {', '.join(self.register_names)}")

    # Running and stopping

    def insert_breakpoint(self, address: int, *, in_ram: bool = False) -> None:
        """Set a hardware breakpoint; in RAM, where many Cortex-M have none, fall back to a software one."""
        try:
            self._point("Z", _HARDWARE_BREAKPOINT, address, self._breakpoint_kind, "breakpoint")
        except BoardError:
            # OpenOCD turns a debugger's breakpoints into hardware ones, but not its own command's.
            if not in_ram or "breakpoint set" not in self.monitor(f"bp {address:#x} {self._breakpoint_kind}"):
                raise
        self._breakpoints[address] = in_ram

    def remove_breakpoint(self, address: int) -> bool:
        """Remove a breakpoint; return True if it was set in RAM."""
        self._point("z", _HARDWARE_BREAKPOINT, address, self._breakpoint_kind, "breakpoint")
        return self._breakpoints.pop(address, False)

    def clear_breakpoints(self) -> None:
        for address in sorted(self._breakpoints):
            self.remove_breakpoint(address)

    def insert_watchpoint(self, address: int, size: int, access: Access) -> None:
        """Set a watchpoint on ``size`` bytes of data; the size is a power of two, the address a multiple of it."""
        self._point("Z", _WATCH_TYPES[access], address, size, f"{access} watchpoint")

    def remove_watchpoint(self, address: int, size: int, access: Access) -> None:
        self._point("z", _WATCH_TYPES[access], address, size, f"{access} watchpoint")

    def _point(self, verb: str, kind: int, address: int, size: int, noun: str) -> None:
        action = "set" if verb == "Z" else "removed"
        self._expect_ok(
            b"%b%x,%x,%x" % (verb.encode(), kind, address, size),
            f"{noun} at {address:#010x} cannot be {action}",
            "the core has few comparators: are they all in use?",
        )

    def resume(self) -> None:
        """Resume the target; :meth:`wait_for_stop` returns when it stops.

        A breakpoint at the current instruction is ignored. On RISC-V, OpenOCD 0.12 steps off a trigger itself, and
        reports that as a stop while the core runs on (riscv.c, resume_prep): we step first.
        """
        here = self.read_register("pc") if self._breakpoints else -1
        in_ram = self.remove_breakpoint(here) if here in self._breakpoints else None
        if in_ram is not None or (self._must_poll and _OF_RISCV in self.register_names):
            stop = self.step()
            if in_ram is not None:
                self.insert_breakpoint(here, in_ram=in_ram)
            if stop.watchpoint is not None:
                return
        self._stopped = None
        self._running = True
        self._send(self.go)

    @property
    def running(self) -> bool:
        """True from a resume until a stop is noticed."""
        return self._running

    def wait_for_stop(self, timeout: float) -> Stop | None:
        """Wait until a resumed target stops; None if it still runs after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        pause = _SHORTEST_PAUSE
        while self._running:
            remaining = max(0.0, deadline - time.monotonic())
            packet = self._wire.receive(min(pause, remaining) if self._must_poll else remaining)
            if packet is not None:
                self._notice_stop(packet)
            elif remaining == 0.0:
                return None
            elif self._must_poll:
                self._poll()
                pause = min(_LONGEST_PAUSE, _PAUSE_GROWTH * pause)
        return self._stopped

    def _poll(self) -> None:
        """Make OpenOCD poll the target. The first poll of a locked-up core fails."""
        for attempt in range(1, _POLL_TRIES + 1):
            try:
                self._command("poll", self._timeout)
            except ProbeError:
                if attempt == _POLL_TRIES:
                    raise
            else:
                return

    def interrupt(self) -> None:
        """Request a stop; :meth:`wait_for_stop` returns when the target has stopped."""
        self._wire.send_break()

    def step(self) -> Stop:
        """Execute one instruction; raises ProbeError on a timeout."""
        # OpenOCD 0.12 (cortex_m_step) lets pending interrupts run first and gives them half a second. Where that
        # has passed, as when the host paused, it reports a stop although the instruction has not been executed.
        here = self.read_register("pc")
        stop = self._step()
        for _ in range(_STEP_TRIES - 1):
            # A branch to itself keeps the PC too: repeating it has no effect.
            if stop.watchpoint is not None or self.read_register("pc") != here:
                break
            stop = self._step()
        return stop

    def _step(self) -> Stop:
        self._stopped = None
        self._running = True
        self._send(self.one)
        stop = self.wait_for_stop(self._timeout)
        if stop is None:
            raise ProbeError(f"one step did not complete within {self._timeout:g} s", "reset the board")
        return stop

    def _notice_stop(self, packet: bytes) -> bool:
        """Handle a stop reply, or drop console output; False for other packets."""
        if _CONSOLE_OUTPUT.fullmatch(packet) and packet != b"OK":
            return True
        if packet[:1] in (b"T", b"S"):
            self._running = False
            self._stopped = parse_stop(packet)
            return True
        if self._running and packet[:1] in (b"W", b"X"):
            raise ProbeError("the GDB server says that the target is gone", "is the board still powered?")
        return False

    # The server itself

    def set_mode(self, packet: str) -> None:
        """Send a packet that sets a mode of the server."""
        self._expect_ok(packet.encode(), f"{packet} cannot be set")

    def monitor(self, command: str, timeout: float = 60.0) -> str:
        """Run a command of the server (of OpenOCD's command line) and return its output."""
        output = self._command(command, timeout)
        if self._must_poll:
            # The command may have changed the target's state: the first poll sees a reset, the second its result.
            self._poll()
            self._poll()
        return output

    def _command(self, command: str, timeout: float) -> str:
        self._send(b"qRcmd," + os.fsencode(command).hex().encode())
        output = bytearray()
        deadline = time.monotonic() + timeout
        while True:
            packet = self._wire.receive(max(0.0, deadline - time.monotonic()))
            if packet is None:
                self._wire.close()
                raise ProbeError(f"monitor command '{command}' did not end within {timeout:g} s")
            if packet == b"OK":
                return output.decode(errors="replace")
            if _CONSOLE_OUTPUT.fullmatch(packet):
                output += from_hex(packet[1:])
            elif _ERROR.fullmatch(packet) or not packet:
                reason = output.decode(errors="replace").strip() or "no reason given"
                raise ProbeError(f"monitor command '{command}' failed: {reason}")
            elif not self._notice_stop(packet):
                output += from_hex(packet)
                return output.decode(errors="replace")

    # Flash

    def flash(self, segments: Sequence[tuple[int, bytes]]) -> None:
        """Erase the sectors of disjoint segments (address and bytes) and program them; the target must be halted."""
        try:
            areas = target_xml.parse_flash(self._transfer("memory-map", ""))
            ranges = target_xml.erase_ranges(areas, [(address, len(data)) for address, data in segments])
        except target_xml.DescriptionError as error:
            raise ProbeError(f"the GDB server's memory map cannot be read: {error}", self._advice) from error
        except target_xml.NotFlashError as error:
            raise BoardError(str(error), "is the firmware linked for this board?") from error
        for start, size in ranges:
            self._expect_ok(
                b"vFlashErase:%x,%x" % (start, size),
                f"flash at {start:#010x}, {size} bytes, cannot be erased",
                "is it write-protected?",
                target_xml.flash_timeout(size),
            )
        for address, data in sorted(segments):
            for offset, part in self._split(data):
                self._expect_ok(
                    b"vFlashWrite:%x:%b" % (address + offset, escape(part)),
                    f"flash at {address + offset:#010x} cannot be written",
                )
        timeout = target_xml.flash_timeout(sum(len(data) for _, data in segments))
        self._expect_ok(b"vFlashDone", "flash programming failed", "see OpenOCD's log", timeout)

    # Requests and replies

    @property
    def _wire(self) -> GdbLink:
        if self._link is None:
            raise RuntimeError("GdbClient is used outside its with block")
        return self._link

    def _negotiate(self) -> None:
        features = self._request(self.hello).decode(errors="replace").split(";")
        for feature in features:
            if feature.startswith("PacketSize="):
                self._packet_bytes = packet_size(feature)
        if "QStartNoAckMode+" in features and self._request(b"QStartNoAckMode") == b"OK":
            self._wire.stop_acknowledging()

    def _turn_off_polling(self) -> bool:
        """Turn off OpenOCD's polling of the target; return False for other servers, which report stops themselves.

        OpenOCD polls ten times a second: that slows the probe down and detects stops late.
        """
        try:
            return self._command("poll off", self._timeout) == ""
        except ProbeError:
            return False

    def _describe_registers(self) -> tuple[target_xml.Register, ...]:
        try:
            return target_xml.parse_registers(
                self._transfer("features", "target.xml"), lambda annex: self._transfer("features", annex)
            )
        except target_xml.DescriptionError as error:
            message = f"the GDB server's target description cannot be read: {error}"
            raise ProbeError(message, self._advice) from error

    def _transfer(self, kind: str, annex: str) -> str:
        document = bytearray()
        step = self._packet_bytes - _WRITE_OVERHEAD_BYTES
        while True:
            request = f"qXfer:{kind}:read:{annex}:{len(document):x},{step:x}".encode()
            reply = self._request(request)
            if reply[:1] not in (b"m", b"l"):
                raise ProbeError(f"the GDB server has no {annex or kind}: {reply[:40]!r}", self._advice)
            document += reply[1:]
            if reply[:1] == b"l":
                return document.decode(errors="replace")

    def _expect_ok(self, payload: bytes, what: str, hint: str = "", timeout: float | None = None) -> None:
        reply = self._request(payload, timeout)
        if reply != b"OK":
            raise BoardError(f"{what} ({reply[:40].decode(errors='replace') or 'not supported'})", hint)

    def _request(self, payload: bytes, timeout: float | None = None) -> bytes:
        self._send(payload)
        return self._reply(self._timeout if timeout is None else timeout)

    def _send(self, payload: bytes) -> None:
        self._wire.send(payload, self._timeout)

    def _reply(self, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        while True:
            packet = self._wire.receive(max(0.0, deadline - time.monotonic()))
            if packet is None:
                # A late reply would be taken for that of the next request.
                self._wire.close()
                raise ProbeError(f"the GDB server did not answer within {timeout:g} s", self._advice)
            if not self._notice_stop(packet):
                return packet


def require_data(reply: bytes, what: str) -> bytes:
    """Return a reply that is no error, or raise BoardError; ``what`` begins its message."""
    if not reply or _ERROR.fullmatch(reply):
        raise BoardError(f"{what} ({reply[:40].decode(errors='replace') or 'not supported'})")
    return reply
