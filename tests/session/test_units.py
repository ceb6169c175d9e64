# SPDX-License-Identifier: Apache-2.0
"""Corrections of counts for clients, with packets written out from TVM's protocol (``rpc_reference.h``)."""

import json
import struct

import pytest

from utvm.session.rpc import UnitCorrection

_CLOCK = 216_000_000
_STATISTICS = {"board": "b", "clock_hz": _CLOCK, "runs": 2, "cycles": 123456, "interrupts": 3}


def _call(handle: int) -> bytes:
    return struct.pack("<iQi", 3, handle, 0)


def _return_packet(kind: int, raw: int, content: bytes) -> bytes:
    return struct.pack("<iiiqiQ", 4, 2, 1, kind, raw, len(content)) + content


def _text(content: bytes) -> bytes:
    return _return_packet(65, 8, content)


def _doubles(*values: float) -> bytes:
    return _return_packet(66, 9, struct.pack(f"<{len(values)}d", *values))


@pytest.mark.parametrize("unit", ["instructions", "ns"])
def test_statistics_have_the_unit_as_their_key(unit: str) -> None:
    result = UnitCorrection(unit, _CLOCK).answer(_call(5), _text(json.dumps(_STATISTICS).encode()))
    (length,) = struct.unpack_from("<Q", result, 24)
    assert length == len(result) - 32
    expected = {unit if key == "cycles" else key: value for key, value in _STATISTICS.items()}
    assert json.loads(result[32:]) == expected


def test_evaluation_of_a_virtual_board_counts_instructions() -> None:
    log: list[str] = []
    seconds = [879_703 / _CLOCK, 136_682.5 / _CLOCK]
    result = UnitCorrection("instructions", _CLOCK, log.append).answer(_call(0x10002), _doubles(*seconds))
    assert struct.unpack("<2d", result[32:]) == (879_703.0, 136_682.5)
    (line,) = log
    assert "879,703, 136,682.5 instructions of a VIRTUAL board" in line


@pytest.mark.parametrize("unit", ["cycles", "ns"])
def test_evaluation_with_times_is_unchanged(unit: str) -> None:
    log: list[str] = []
    assert UnitCorrection(unit, _CLOCK, log.append).answer(_call(0x10000), _doubles(0.25)) == _doubles(0.25)
    assert log == []


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (_call(7), _doubles(0.25)),  # bytes of an output
        (_call(0x10004), _doubles(0.25)),  # behind the last evaluator
        (_call(5), _text(b'a text with "cycles": 7 in it')),
        (_call(5), struct.pack("<iiiqiq", 4, 2, 1, 1, 1, 99)),  # a number
        (struct.pack("<iQ", 6, 0x10000), struct.pack("<i", 8) + bytes(40)),  # a copy from the board
        (_call(5), struct.pack("<iiiQ", 5, 1, 8, 3) + b"bad"),  # an exception
    ],
)
def test_other_packets_are_unchanged(packet: bytes, answer: bytes) -> None:
    assert UnitCorrection("instructions", _CLOCK).answer(packet, answer) == answer


def test_statistics_of_a_chip_are_unchanged() -> None:
    answer = _text(json.dumps(_STATISTICS).encode())
    assert UnitCorrection("cycles", _CLOCK).answer(_call(5), answer) == answer
