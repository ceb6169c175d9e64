# SPDX-License-Identifier: Apache-2.0
"""Boards that answer RPC: a firmware with the RPC server on a bench."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm.drivers import Connection
from utvm.firmware import Firmware
from utvm.session.explain import explain
from utvm.session.fault import RECORD_SIZE, FaultRecord
from utvm.session.link import BoardFaulted, Link
from utvm.session.pipes import open_pipe
from utvm.session.transport import Transport
from utvm.session.units import Units


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
        self._units = Units(unit, firmware.board.clock_hz, on_log)

    def request(self, packet: bytes, timeout: float) -> bytes:
        try:
            return self._units.answer(packet, super().request(packet, timeout))
        except BoardFaulted as fault:
            record = FaultRecord.parse(fault.record_bytes, self._firmware.board.architecture)
            if record is None:
                raise
            raise explain(self._firmware, record, fault.record_bytes[RECORD_SIZE:]) from fault


@contextlib.contextmanager
def on_bench(
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
