# SPDX-License-Identifier: Apache-2.0
"""What clients are told of counts, by packets written out from TVM's protocol (``rpc_reference.h``)."""

import json
import struct

import pytest

from utvm.session.rpc import UnitCorrection

_CLOCK = 216_000_000
_STATISTICS = {"board": "b", "clock_hz": _CLOCK, "runs": 2, "cycles": 123456, "interrupts": 3}


def _call(handle: int) -> bytes:
    return struct.pack("<iQi", 3, handle, 0)


def _returned(kind: int, raw: int, content: bytes) -> bytes:
    return struct.pack("<iiiqiQ", 4, 2, 1, kind, raw, len(content)) + content


def _text(content: bytes) -> bytes:
    return _returned(65, 8, content)


def _doubles(*values: float) -> bytes:
    return _returned(66, 9, struct.pack(f"<{len(values)}d", *values))


@pytest.mark.parametrize("unit", ["instructions", "ns"])
def test_statistics_have_the_unit_for_their_key(unit: str) -> None:
    told = UnitCorrection(unit, _CLOCK).answer(_call(5), _text(json.dumps(_STATISTICS).encode()))
    (length,) = struct.unpack_from("<Q", told, 24)
    assert length == len(told) - 32
    expected = {unit if key == "cycles" else key: value for key, value in _STATISTICS.items()}
    assert json.loads(told[32:]) == expected


def test_evaluation_of_a_virtual_board_counts_instructions() -> None:
    log: list[str] = []
    seconds = [879_703 / _CLOCK, 136_682.5 / _CLOCK]
    told = UnitCorrection("instructions", _CLOCK, log.append).answer(_call(0x10002), _doubles(*seconds))
    assert struct.unpack("<2d", told[32:]) == (879_703.0, 136_682.5)
    (line,) = log
    assert "879,703, 136,682.5 instructions of a VIRTUAL board" in line


@pytest.mark.parametrize("unit", ["cycles", "ns"])
def test_an_evaluation_of_what_has_time_is_left_alone(unit: str) -> None:
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
def test_all_else_passes_as_it_is(packet: bytes, answer: bytes) -> None:
    assert UnitCorrection("instructions", _CLOCK).answer(packet, answer) == answer


def test_a_chips_statistics_pass_as_they_are() -> None:
    answer = _text(json.dumps(_STATISTICS).encode())
    assert UnitCorrection("cycles", _CLOCK).answer(_call(5), answer) == answer
