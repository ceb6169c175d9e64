# SPDX-License-Identifier: Apache-2.0
"""Standalone firmware: the host flashes and starts it, then only reads its reports."""

import contextlib
import functools
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from utvm import drivers, errors
from utvm.firmware import Firmware
from utvm.session import diagnosis, fault, pipes, running
from utvm.session.transport import Transport

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
    """Report of a run; ``outputs`` are the bytes of each output.

    ``reset_cause`` is that of the last reset, as text; ``stack_used`` the maximum stack use since then, in bytes.
    """

    model: str
    reset_cause: str
    status: int
    cycles: int
    stack_used: int
    outputs: tuple[bytes, ...]


@dataclass(frozen=True)
class FaultReport:
    """Report of a fault: ``utvm_fault_t`` and the stack for :func:`utvm.session.diagnosis.explain`."""

    record: bytes
    trace: bytes


Report = ResultReport | FaultReport


class ReportReader:
    """Extracts reports from console output in chunks of any size; ``damaged`` counts incomplete or corrupt ones."""

    def __init__(self) -> None:
        self.damaged = 0
        self._rest = b""
        self._partial: bytes | None = None

    def feed(self, data: bytes) -> list[Report]:
        """Process output and return the reports completed by it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        reports = (self._take(line + b"\n") for line in lines)
        return [report for report in reports if report is not None]

    def _take(self, line: bytes) -> Report | None:
        if line.startswith(_BEGINS):
            self.damaged += self._partial is not None
            self._partial = line
        elif self._partial is not None and line.startswith(_END_BEGINS):
            content, self._partial = self._partial, None
            report = _parse(content) if line == _END % zlib.crc32(content) else None
            self.damaged += report is None
            return report
        elif self._partial is not None:
            self._partial += line
        return None


def _parse(content: bytes) -> Report | None:
    """Parse a report without its last line; None if its form or a length is wrong."""
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


_PATIENCE = 0.5  # Seconds of silence before checking the connection.
_CORE_CHECKS = (8, 40)  # Numbers of such silences after which the core is checked too.
_TAIL = 200  # Bytes of console output quoted in errors.


class StandaloneRunner:
    """Runs a standalone firmware on a board that reports over its console or RTT.

    ``timeout`` is in seconds from start to report; ``reset_cause`` is that in the last report.
    """

    def __init__(self, connection: drivers.Connection, firmware: Firmware, *, timeout: float = 120.0) -> None:
        if connection.console is None and firmware.pipe is None:
            raise errors.BoardError(
                f"the serial line of {connection.board.name} is not found",
                "the result comes over it: is the probe's virtual COM port there (ls /dev/serial/by-id)?",
            )
        self.connection = connection
        self.firmware = firmware
        self.reset_cause = ""
        self._console = connection.console
        self._timeout = timeout
        self._silences = 0
        connection.program(firmware)

    @property
    def has_power_switch(self) -> bool:
        """True if :meth:`power_cycle` works: RTT needs the debug port, which a power cycle would disconnect."""
        return self.connection.has_power_switch and self.firmware.pipe is None

    def power_cycle(self) -> running.RunResult:
        """Switch the board off and on, and return the result of its next run. Then halt it at its reset vector."""
        return self._start(self.connection.power_cycle)

    def reset(self) -> running.RunResult:
        if self.firmware.pipe is None:
            return self._start(lambda: self.connection.reset(halt=False))
        with pipes.open_pipe(self.connection, self.firmware) as wire:
            wire.restart()
            return self._wait_for_result(wire.transport)

    def _start(self, start: Callable[[], None]) -> running.RunResult:
        assert self._console
        # A halted core prints nothing, so later output comes from the next start.
        self.connection.reset(halt=True)
        self._console.clear()
        start()
        return self._wait_for_result(self._console)

    def _wait_for_result(self, transport: Transport) -> running.RunResult:
        self._silences = 0
        try:
            look = functools.partial(diagnosis.describe_core, self.connection, self.firmware)
            report = wait_for_report(transport, self.firmware.board.name, self._timeout, self._check, look)
        finally:
            # A power cycle disconnects the debug port: make it usable again.
            self.connection.reset(halt=True)
        self.reset_cause = report.reset_cause if isinstance(report, ResultReport) else ""
        return result_of(report, self.firmware, self.connection.count_unit)

    def _check(self) -> None:
        self.connection.check()
        self._silences += 1
        # RTT uses the debug port itself.
        if self.firmware.pipe is None and self._silences in _CORE_CHECKS:
            with contextlib.suppress(errors.ProbeError):
                diagnosis.check_core(self.connection, self.firmware)


def wait_for_report(
    console: Transport, board: str, timeout: float, check: Callable[[], None], look: Callable[[], str] = lambda: ""
) -> Report:
    """Wait for a board's report and return it.

    Args:
        board: name for messages.
        check: called during silence; raises an error if the board is lost.
        look: returns the core's position for the error message.
    """
    reader = ReportReader()
    deadline = time.monotonic() + timeout
    output = b""
    while (left := deadline - time.monotonic()) > 0:
        data = console.read(min(left, _PATIENCE))
        output = (output + data)[-_TAIL:]
        if reports := reader.feed(data):
            return reports[0]
        if not data:
            check()
    if state := look():
        state = f"; {state}"
    damaged = f", but {reader.damaged} damaged ones" if reader.damaged else ""
    raise errors.BoardError(
        f"{board} made no report within {timeout:g} s{damaged}{state}; its console ends with {output!r}",
        "" if state else "is the console's speed that of board.yaml, and does no other program read it?",
    )


def result_of(report: Report, firmware: Firmware, unit: str) -> running.RunResult:
    """Return the result in a report, or raise the fault; ``unit`` is that of the board's counter."""
    if isinstance(report, FaultReport):
        is_complete = len(report.record) == fault.RECORD_SIZE
        record = fault.FaultRecord.parse(report.record, firmware.board.architecture) if is_complete else None
        if record is None:
            raise errors.BoardError(f"the board reports a fault that cannot be read: {report.record.hex()}")
        raise diagnosis.explain(firmware, record, report.trace)
    library = firmware.libraries[0]
    sizes = [len(data) for data in report.outputs]
    if report.model != library.name or sizes != [tensor.size_bytes for tensor in library.outputs]:
        raise errors.BoardError(
            f"the board ran {report.model} with outputs of {sizes} bytes, not {library.name}",
            "has another firmware been programmed meanwhile?",
        )
    if report.status != 0:
        raise running.model_error(library.name, report.status)
    outputs = tuple(
        np.frombuffer(data, dtype=np.dtype(tensor.dtype)).reshape(tensor.shape)
        for data, tensor in zip(report.outputs, library.outputs, strict=True)
    )
    return running.RunResult(outputs, report.cycles, unit, report.stack_used)
