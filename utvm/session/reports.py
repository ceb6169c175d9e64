# SPDX-License-Identifier: Apache-2.0
"""Reports of firmware that stands alone, taken out of whatever a console says.

``utvm/runtime/standing_alone/main.c`` says what they look like. A line may lose, change or invent bytes, and the
board may start again in the middle: what is not exactly a report with its checksum is none.
"""

import re
import zlib
from dataclasses import dataclass

_BEGINS = (b"utvm: result ", b"utvm: fault ")
_END = b"utvm: end %08x\r\n"
_END_BEGINS = b"utvm: end "
_DATA = rb"(?:utvm: data (?:[0-9a-f]{2}){1,32}\r\n)*"
_RESULT = re.compile(
    rb"utvm: result (?P<model>\w+)\r\n"
    rb"utvm: reset (?P<reset>[ -~]+)\r\n"
    rb"utvm: status (?P<status>[0-9a-f]{8})\r\n"
    rb"utvm: cycles (?P<cycles>[0-9a-f]{16})\r\n"
    rb"utvm: stack (?P<stack>[0-9a-f]{8})\r\n"
    rb"(?P<outputs>(?:utvm: output [0-9a-f]{8}\r\n" + _DATA + rb")*)"
)
_FAULT = re.compile(rb"utvm: fault [0-9a-f]{8}\r\n" + _DATA + rb"utvm: trace [0-9a-f]{8}\r\n" + _DATA)
_BLOCK = re.compile(rb"utvm: (?:output|fault|trace) ([0-9a-f]{8})\r\n(" + _DATA + rb")")


@dataclass(frozen=True)
class ResultReport:
    """What a board says of a run.

    Attributes:
        model: name of the model that ran.
        reset_cause: why the board was reset last, in its words.
        status: what the model returned.
        cycles: what its cycle counter counted.
        stack_used: bytes of stack used since reset, at most.
        outputs: the bytes of each output.
    """

    model: str
    reset_cause: str
    status: int
    cycles: int
    stack_used: int
    outputs: tuple[bytes, ...]


@dataclass(frozen=True)
class FaultReport:
    """What a board says of a fault.

    Attributes:
        record: the bytes of ``utvm_fault_t``.
        trace: the bytes of the stack that goes with it; see :func:`utvm.session.explain.explain`.
    """

    record: bytes
    trace: bytes


Report = ResultReport | FaultReport


class ReportReader:
    """Takes what a console says, in pieces of any size, and finds the reports in it.

    Attributes:
        damaged: reports that began and did not come to a good end.
    """

    def __init__(self) -> None:
        self.damaged = 0
        self._rest = b""
        self._begun: bytes | None = None

    def feed(self, data: bytes) -> list[Report]:
        """Return the reports that are complete with these bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        reports = (self._take(line + b"\n") for line in lines)
        return [report for report in reports if report is not None]

    def _take(self, line: bytes) -> Report | None:
        if line.startswith(_BEGINS):
            self.damaged += self._begun is not None
            self._begun = line
        elif self._begun is not None and line.startswith(_END_BEGINS):
            content, self._begun = self._begun, None
            report = _parse(content) if line == _END % zlib.crc32(content) else None
            self.damaged += report is None
            return report
        elif self._begun is not None:
            self._begun += line
        return None


def _parse(content: bytes) -> Report | None:
    """Read what stands before the last line; None where the form or a length is wrong."""
    result = _RESULT.fullmatch(content)
    if result is None and not _FAULT.fullmatch(content):
        return None
    blocks = []
    for size, lines in _BLOCK.findall(content):
        data = b"".join(bytes.fromhex(line[len("utvm: data ") :].decode()) for line in lines.split(b"\r\n")[:-1])
        if len(data) != int(size, 16):
            return None
        blocks.append(data)
    if result is None:
        return FaultReport(blocks[0], blocks[1])
    status = int.from_bytes(bytes.fromhex(result["status"].decode()), "big", signed=True)
    return ResultReport(
        result["model"].decode(),
        result["reset"].decode(),
        status,
        int(result["cycles"], 16),
        int(result["stack"], 16),
        tuple(blocks),
    )
