# SPDX-License-Identifier: Apache-2.0
"""Boards that answer RPC: a firmware with the RPC server on a bench."""

import contextlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm.drivers import Connection
from utvm.firmware import Firmware
from utvm.runtime import RPC_EVALUATOR_HANDLE, RPC_EVALUATORS
from utvm.session.diagnosis import explain
from utvm.session.fault import RECORD_SIZE, FaultRecord
from utvm.session.link import BoardFaulted, Link
from utvm.session.minrpc import Code, TypeIndex, code_of
from utvm.session.pipes import open_pipe
from utvm.session.transport import Transport

# An answer that is text or bytes: code, count and type as a number, then its type again, its length, itself.
_HEAD = struct.Struct("<20siQ")
_STATISTICS = b'{"board": '


class UnitCorrection:
    """Puts the units into a board's answers.

    Args:
        unit: what the board's cycle counter counts: ``instructions``, ``cycles`` or ``ns``.
        clock_hz: what its firmware takes for a second of it.
        log: receives a line about each evaluation on a virtual board.
    """

    def __init__(self, unit: str, clock_hz: int, log: Callable[[str], None] | None = None) -> None:
        self._unit = unit
        self._clock_hz = clock_hz
        self._log = log or (lambda _line: None)

    def answer(self, packet: bytes, answer: bytes) -> bytes:
        """Correct the units in the reply to a packet."""
        if self._unit == "cycles" or code_of(packet) != Code.CALL or len(answer) < _HEAD.size:
            return answer
        head, kind, _ = _HEAD.unpack_from(answer)
        content = answer[_HEAD.size :]
        (handle,) = struct.unpack_from("<Q", packet, 4)
        evaluator = RPC_EVALUATOR_HANDLE <= handle < RPC_EVALUATOR_HANDLE + RPC_EVALUATORS
        if kind == TypeIndex.RAW_STRING and content.startswith(_STATISTICS):
            content = content.replace(b'"cycles": ', b'"%s": ' % self._unit.encode())
        elif kind == TypeIndex.RAW_BYTES and evaluator and self._unit == "instructions":
            content = self._instructions(content)
        else:
            return answer
        return _HEAD.pack(head, kind, len(content)) + content

    def _instructions(self, seconds: bytes) -> bytes:
        """Return counts in place of quotients."""
        # Rounded far below the share of an instruction that a mean over runs can have.
        counts = [round(value * self._clock_hz, 6) for (value,) in struct.iter_unpack("<d", seconds)]
        told = ", ".join(f"{count:,.10g}" for count in counts)
        self._log(
            f"time_evaluator: {told} instructions of a VIRTUAL board, which has no time; "
            "the client is told a second for each"
        )
        return struct.pack(f"<{len(counts)}d", *counts)


@dataclass(frozen=True)
class RpcBoard:
    """A board that answers RPC.

    Attributes:
        description: one line that says what it is.
        unit: what its cycle counter counts: ``instructions``, ``cycles`` or ``ns``.
        connect: begins a session.
        restart: resets the board and begins a session.
        check: raises ProbeError if something that the board needs has died; it does not come back.
        program_logic: as that of its bench; None where it has no programmable logic.
    """

    description: str
    unit: str
    connect: Callable[[], Link]
    restart: Callable[[], Link]
    check: Callable[[], None]
    program_logic: Callable[[Path], object] | None = None


class _FirmwareLink(Link):
    """A link whose faults and counts are explained by what is known of the firmware and of the board it is on."""

    def __init__(
        self, transport: Transport, on_log: Callable[[str], None] | None, firmware: Firmware, unit: str
    ) -> None:
        timeouts = firmware.board.timeouts
        super().__init__(transport, start_timeout=timeouts.start, resend_after=timeouts.resend, on_log=on_log)
        self._firmware = firmware
        self._units = UnitCorrection(unit, firmware.board.clock_hz, on_log)

    def request(self, packet: bytes, timeout: float) -> bytes:
        try:
            return self._units.answer(packet, super().request(packet, timeout))
        except BoardFaulted as fault:
            record = FaultRecord.parse(fault.record_bytes, self._firmware.board.architecture)
            if record is None:
                raise
            raise explain(self._firmware, record, fault.record_bytes[RECORD_SIZE:]) from fault


@contextlib.contextmanager
def start_rpc(
    connection: Connection, firmware: Firmware, on_log: Callable[[str], None] | None = None
) -> Iterator[RpcBoard]:
    """Program a firmware that was built for RPC, and let it answer through its pipe.

    Args:
        on_log: receives what the board logs.
    """
    with open_pipe(connection, firmware) as wire:
        connection.program(firmware)

        def connect() -> Link:
            link = _FirmwareLink(wire.transport, on_log, firmware, connection.count_unit)
            link.start()
            return link

        def restart() -> Link:
            wire.restart()
            return connect()

        wire.restart()
        # A board without a debug port has no other way to talk that this one would be told from.
        through = f", RPC through {firmware.pipe}" if connection.has_debug_port else ""
        description = connection.describe() + through
        program_logic = connection.program_logic if connection.board.logic else None
        yield RpcBoard(description, connection.count_unit, connect, restart, connection.check, program_logic)
