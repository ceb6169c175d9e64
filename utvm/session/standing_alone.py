# SPDX-License-Identifier: Apache-2.0
"""Firmware that stands alone: the host programs and starts it, and then only listens."""

import time
from collections.abc import Callable

import numpy as np

from utvm.drivers import Connection
from utvm.errors import BoardError
from utvm.firmware import Firmware
from utvm.session.explain import explain
from utvm.session.fault import RECORD_SIZE, FaultRecord
from utvm.session.pipes import open_pipe
from utvm.session.reports import FaultReport, Report, ReportReader, ResultReport
from utvm.session.running import RunResult, refusal
from utvm.session.transport import Transport

_PATIENCE = 0.5  # Seconds of silence after which we look whether the board is still there.
_TAIL = 200  # Bytes of what the console said that are quoted.


class StandingAlone:
    """A firmware that was built to stand alone, on a board whose console we can hear, or which reports over RTT.

    Attributes:
        reset_cause: what the board said of why it was reset, in its last report.

    Args:
        timeout: seconds from the board's start to its report.
    """

    def __init__(self, connection: Connection, firmware: Firmware, *, timeout: float = 120.0) -> None:
        if connection.console is None and firmware.pipe is None:
            raise BoardError(
                f"the serial line of {connection.board.name} is not found",
                "the result comes over it: is the probe's virtual COM port there (ls /dev/serial/by-id)?",
            )
        self.bench = connection
        self.firmware = firmware
        self.reset_cause = ""
        self._console = connection.console
        self._timeout = timeout
        connection.program(firmware)

    @property
    def has_power_switch(self) -> bool:
        """Whether :meth:`power_cycle` works here: a debug port that listens would be cut off by it."""
        return self.bench.has_power_switch and self.firmware.pipe is None

    def power_cycle(self) -> RunResult:
        """Switch the board off and on, and return what it says then. Afterwards it is halted at its reset
        vector.
        """
        return self._start(self.bench.power_cycle)

    def reset(self) -> RunResult:
        """Reset the board, and return what it says then. Raises as :meth:`power_cycle`."""
        if self.firmware.pipe is None:
            return self._start(lambda: self.bench.reset(halt=False))
        with open_pipe(self.bench, self.firmware) as wire:
            wire.restart()
            return self._heard(wire.transport)

    def _start(self, start: Callable[[], None]) -> RunResult:
        assert self._console
        # Halted, it prints nothing: what comes after this is from the start that follows.
        self.bench.reset(halt=True)
        self._console.clear()
        start()
        return self._heard(self._console)

    def _heard(self, transport: Transport) -> RunResult:
        try:
            report = hear(transport, self.firmware.board.name, self._timeout, self.bench.check)
        finally:
            # A power cycle has cut the debug port off: whoever uses it next finds it working.
            self.bench.reset(halt=True)
        self.reset_cause = report.reset_cause if isinstance(report, ResultReport) else ""
        return judge(report, self.firmware, self.bench.count_unit)


def hear(console: Transport, board: str, timeout: float, check: Callable[[], None]) -> Report:
    """Listen until a board has made a report, and return it.

    Args:
        board: what it is called in messages.
        timeout: seconds.
        check: called when nothing comes, to raise an error where the board has gone.
    """
    reader = ReportReader()
    deadline = time.monotonic() + timeout
    said = b""
    while (left := deadline - time.monotonic()) > 0:
        data = console.read(min(left, _PATIENCE))
        said = (said + data)[-_TAIL:]
        if reports := reader.feed(data):
            return reports[0]
        if not data:
            check()
    damaged = f", but {reader.damaged} damaged ones" if reader.damaged else ""
    raise BoardError(
        f"{board} made no report within {timeout:g} s{damaged}; its console ends with {said!r}",
        "is the console's speed the one in board.yaml, and does nothing else read it?",
    )


def judge(report: Report, firmware: Firmware, unit: str) -> RunResult:
    """Return what a report says of a run of a model.

    Args:
        firmware: what stands alone on the board.
        unit: of the board's cycle counter.
    """
    if isinstance(report, FaultReport):
        whole = len(report.record) == RECORD_SIZE
        record = FaultRecord.parse(report.record, firmware.board.architecture) if whole else None
        if record is None:
            raise BoardError(f"the board reports a fault that cannot be read: {report.record.hex()}")
        raise explain(firmware, record, report.trace)
    library = firmware.libraries[0]
    sizes = [len(data) for data in report.outputs]
    if report.model != library.name or sizes != [tensor.size_bytes for tensor in library.outputs]:
        raise BoardError(
            f"the board ran {report.model} with outputs of {sizes} bytes, not {library.name}",
            "has another firmware been programmed meanwhile?",
        )
    if report.status != 0:
        raise refusal(library.name, report.status)
    outputs = tuple(
        np.frombuffer(data, dtype=np.dtype(tensor.dtype)).reshape(tensor.shape)
        for data, tensor in zip(report.outputs, library.outputs, strict=True)
    )
    return RunResult(outputs, report.cycles, unit, report.stack_used)
