# SPDX-License-Identifier: Apache-2.0
"""Says over RPC what a board's counts are, whoever the client is.

A firmware cannot know whether it runs on a chip or on a virtual board: it calls its counts cycles, and its
``time_evaluator`` divides them by the chip's clock. Where the board is no chip, that is put right on the way out.
TVM's client shows what ``time_evaluator`` gives as milliseconds and nothing beside it. So that no number of a
virtual board can be taken for a chip's, it is told one second for each instruction.
"""

import struct
from collections.abc import Callable

from utvm.runtime import RPC_EVALUATOR_HANDLE, RPC_EVALUATORS
from utvm.session.minrpc import Code, TypeIndex, code_of

# An answer that is text or bytes: code, count and type as a number, then its type again, its length, itself.
_HEAD = struct.Struct("<20siQ")
_STATISTICS = b'{"board": '


class Units:
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
        """Return what the client gets for the board's answer to a packet."""
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
