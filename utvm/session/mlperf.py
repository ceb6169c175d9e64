# SPDX-License-Identifier: Apache-2.0
"""Host side of MLPerf Tiny's serial protocol, and its accuracy metrics.

The board's side is ``utvm/runtime/mlperf/main.c``. Commands and replies are those of the benchmark's own runner
(mlcommons/tiny, ``benchmark/runner``), which can replace this one.
"""

import contextlib
import csv
import io
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from utvm import drivers, errors, firmware
from utvm.base.storage.files import read_text
from utvm.session.pipes import open_pipe
from utvm.session.transport import Transport

_READY = b"m-ready\r\n"
_ERROR = re.compile(rb"^e-\[(.*)\]", re.MULTILINE)
_FAULT = re.compile(rb"^e-\[Fault.*\]", re.MULTILINE)  # The last output of a board.
_BYTES_PER_COMMAND = 31  # As in the benchmark's runner: a command has at most 80 characters.
_PATIENCE = 0.5  # Seconds of silence before checking the connection.
_LABELS = "y_labels.csv"


@dataclass(frozen=True)
class Measurement:
    """Result of several runs on one input.

    ``cycles`` are in the board's unit; ``microseconds`` are the difference of two timestamps by the board's clock,
    and not a time on a virtual board; ``results`` are the printed output scores.
    """

    runs: int
    cycles: int
    microseconds: int
    results: tuple[float, ...]


class Runner:
    """A board that executes the benchmark's commands; ``timeout`` is in seconds per reply."""

    def __init__(self, transport: Transport, connection: drivers.Connection, timeout: float = 600.0) -> None:
        self._transport = transport
        self._connection = connection
        self._timeout = timeout
        self._received = b""

    def wait(self) -> list[str]:
        """Return the lines up to the next ``m-ready``."""
        deadline = time.monotonic() + self._timeout
        while _READY not in self._received and not _FAULT.search(self._received):
            if time.monotonic() > deadline:
                raise errors.BoardError(f"the board did not print m-ready; last output: {self._received[-200:]!r}")
            data = self._transport.read(_PATIENCE)
            self._received += data
            if not data:
                self._connection.check()
        answer, _, self._received = self._received.partition(_READY)
        if error := _ERROR.search(answer):
            raise errors.BoardError(f"the board says: {error[1].decode('ascii', 'replace')}")
        return answer.decode("ascii", "replace").splitlines()

    def ask(self, command: str) -> list[str]:
        self._transport.write(f"{command}%".encode())
        return self.wait()

    def value(self, command: str, name: str) -> str:
        """Send a command and return the value in brackets in the line ``m-NAME-[...]``."""
        return _match_lines(self.ask(command), rf"m-{name}-\[([^]]*)\]")[0]

    def load(self, data: bytes) -> None:
        output = self.ask(f"db load {len(data)}")
        for start in range(0, len(data), _BYTES_PER_COMMAND):
            output = self.ask(f"db {data[start : start + _BYTES_PER_COMMAND].hex()}")
        _match_lines(output, "m-load-done")

    def infer(self, runs: int, warmups: int) -> Measurement:
        lines = self.ask(f"infer {runs} {warmups}")
        begin, end = (int(lap) for lap in _match_lines(lines, r"m-lap-us-(\d+)", 2))
        results = tuple(float(score) for score in _match_lines(lines, r"m-results-\[([^]]*)\]")[0].split(","))
        return Measurement(runs, int(_match_lines(lines, r"m-utvm-cycles-(\d+)")[0]), end - begin, results)


def _match_lines(lines: Sequence[str], pattern: str, count: int = 1) -> list[str]:
    values = [match[match.lastindex or 0] for line in lines if (match := re.fullmatch(pattern, line))]
    if len(values) != count:
        raise errors.BoardError(
            f"the board's answer has no {pattern}: {lines[-3:]}", "flash an image of firmware.build --mlperf"
        )
    return values


@contextlib.contextmanager
def start_runner(connection: drivers.Connection, image: firmware.Firmware) -> Iterator[Runner]:
    """Flash and start an image built for the benchmark."""
    with open_pipe(connection, image) as wire:
        connection.program(image)
        wire.restart()
        runner = Runner(wire.transport, connection)
        runner.wait()
        yield runner


@dataclass(frozen=True)
class Sample:
    """Input of one run, from a file of the benchmark or a window of the file, and its class."""

    name: str
    data: bytes
    label: int


def read_samples(folder: Path, size: int, limit: int = 0, windows: bool = False) -> list[Sample]:
    """Read the files listed in ``y_labels.csv``: rows of file, number of classes, class.

    An input has ``size`` bytes; at most ``limit`` files are read, all if 0. With ``windows``, rows also have
    window size and stride in bytes, and each file gives one sample per whole window.
    """
    table = folder / _LABELS
    rows = csv.reader(io.StringIO(read_text(table, f"--data is a folder with {_LABELS} and the files it names")))
    samples: list[Sample] = []
    files = 0
    for number, row in enumerate(rows, 1):
        words = [word.strip() for word in row]
        if not any(words):
            continue
        numbers = words[1 : 5 if windows else 3]
        is_valid = len(numbers) == (4 if windows else 2) and all(number.isdecimal() for number in numbers[1:])
        if not is_valid or "/" in words[0] or not words[0].strip("."):
            columns = "FILE, NUMBER OF CLASSES, CLASS"
            columns += ", BYTES OF A WINDOW, BYTES TO THE NEXT" if windows else ""
            raise errors.ConfigError(f"{table}: line {number} is not a row", columns)
        path, label = folder / words[0], int(numbers[1])
        with errors.ConfigError.on_os_error(f"{path}: cannot be read"):
            data = path.read_bytes()
        length, stride = (int(numbers[2]), int(numbers[3])) if windows else (len(data), size)
        if length != size or len(data) < size or stride == 0:
            content = f"windows of {length} bytes, {stride} apart" if windows else f"{len(data)} bytes"
            raise errors.ConfigError(f"{path}: has {content}, but the model's input has {size}")
        starts = range(0, len(data) - size + 1, stride)
        samples += [Sample(words[0], data[start : start + size], label) for start in starts]
        files += 1
        if files == limit:
            break
    if not samples:
        raise errors.ConfigError(f"{table}: names no file")
    return samples


def top_1(scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> float:
    """Return the top-1 accuracy of float64 scores, shape (samples, classes), for int64 labels, one per sample."""
    return float(np.mean(np.argmax(scores, axis=1) == labels))


def auc(scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> float | None:
    """Return the mean one-versus-rest area under the ROC curve; None if no class has samples inside and outside.

    The area is the fraction of pairs, one sample in the class and one not, where the first has the larger score;
    ties count half (Hanley and McNeil, 1982). Arguments as :func:`top_1`.
    """
    areas = []
    for column in range(scores.shape[1]):
        own, other = scores[labels == column, column], scores[labels != column, column]
        if own.size and other.size:
            difference = np.subtract.outer(own, other)
            areas.append(float(np.mean((difference > 0) + 0.5 * (difference == 0))))
    return statistics.fmean(areas) if areas else None
