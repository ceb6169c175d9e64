# SPDX-License-Identifier: Apache-2.0
"""Measuring candidates on a board: many in one image, each run on the same inputs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from utvm.compiler import Library
from utvm.errors import BoardError, DoesNotFitError, ToolchainError, UtvmError
from utvm.firmware import Firmware, build
from utvm.session.board_holder import BoardHolder
from utvm.session.open_session import executor_for

REPEATS = {"instructions": 1, "modelled cycles": 1, "cycles": 3, "ns": 7}
"""How often a candidate is run, by the unit: a virtual board counts the same each time."""


@dataclass(frozen=True)
class Candidate:
    """A library of one layer, and what it is run on."""

    library: Library
    inputs: Sequence[npt.NDArray[Any]]


@dataclass(frozen=True)
class CandidateResult:
    """What a candidate took and gave; without counts, why it could not be run."""

    unit: str
    counts: tuple[int, ...]
    outputs: bytes
    error: str = ""

    @property
    def count(self) -> int:
        """The median of the counts; raises IndexError where there are none."""
        return sorted(self.counts)[len(self.counts) // 2]


class Measurer(Protocol):
    """Something that runs candidates on boards."""

    def measure(self, asked: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """Run each candidate; what it answers is in their order, each as soon as it is known.

        Candidates may still be made while the first ones run.
        """


class OnBench:
    """Measures on one board, here.

    Args:
        keeper: has the board, attached.
        in_ram: whether images are put into RAM where they fit and code may run there: flash wears, and is slow
            to write.
    """

    def __init__(self, keeper: BoardHolder, in_ram: bool) -> None:
        self._keeper = keeper
        self._in_ram = in_ram

    def measure(self, asked: Iterable[Candidate]) -> Iterator[CandidateResult]:
        """Run each candidate; as :meth:`Measurer.measure`. What is too much for one image is measured in two."""
        chosen = list(asked)
        if not chosen:
            return
        try:
            image = self._image([each.library for each in chosen])
        except (DoesNotFitError, ToolchainError) as error:
            if len(chosen) == 1:
                yield CandidateResult(self._keeper.bench.count_unit, (), b"", _short(error))
                return
            half = len(chosen) // 2
            yield from self.measure(chosen[:half])
            yield from self.measure(chosen[half:])
            return
        for each in chosen:
            yield self._run(image, each)

    def _image(self, libraries: Sequence[Library]) -> Firmware:
        capabilities = self._keeper.capabilities
        executor = executor_for(capabilities)
        if self._in_ram and executor == "host_driven":
            try:
                return build(self._keeper.board, libraries, executor, in_ram=True, able=capabilities)
            except DoesNotFitError:
                pass
        return build(self._keeper.board, libraries, executor, able=capabilities)

    def _run(self, image: Firmware, asked: Candidate) -> CandidateResult:
        unit = self._keeper.bench.count_unit
        counts: list[int] = []
        outputs = b""
        try:
            session = self._keeper.session(image)
            for _ in range(REPEATS[unit]):
                result = session.run(asked.library.name, asked.inputs)
                counts.append(result.count)
                outputs = b"".join(each.tobytes() for each in result.outputs)
        except BoardError as error:
            if trouble := self._keeper.trouble_behind(error):
                raise BoardError(f"the board is gone: {trouble}", "go on with the same --log") from error
            self._keeper.distrust()
            return CandidateResult(unit, (), b"", _short(error))
        return CandidateResult(unit, tuple(counts), outputs)


def _short(error: UtvmError) -> str:
    return error.message.splitlines()[0][:200]
