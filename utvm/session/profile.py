# SPDX-License-Identifier: Apache-2.0
"""What each step of a model's run took on a board, and what it needed of the working memory."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from utvm.compiler import Library
from utvm.session.floors import floor_of


@dataclass(frozen=True)
class MeasuredStep:
    """One step of a run.

    Attributes:
        number: from 0, in the order in which they run.
        function: the C function, without the model's name in front.
        kind: what it computes.
        macs: multiply-accumulates, 0 where they are not known.
        count: what it took, in the profile's unit.
        live_bytes: bytes of the arenas that hold something during it.
        makes: the tensors that it writes.
        kernel: which one computed it, of several; empty where there is one.
        floor: instructions a multiply-accumulate that such a kernel takes at least; None where that is not known.
    """

    number: int
    function: str
    kind: str
    macs: int
    count: int
    live_bytes: int
    makes: tuple[str, ...] = ()
    kernel: str = ""
    floor: float | None = None

    @property
    def called(self) -> str:
        """What pictures call it: its number, and the tensors that it makes by the model's own names."""
        return f"{self.number} {', '.join(self.makes) or self.function}"


@dataclass(frozen=True)
class Profile:
    """One run of a model, step by step.

    Attributes:
        board: what it ran on, in words.
        unit: ``instructions``, ``cycles`` or ``ns``.
        arena_bytes: working memory that is reserved for it.
    """

    model: str
    executor: str
    board: str
    unit: str
    steps: tuple[MeasuredStep, ...]
    arena_bytes: int

    @property
    def total(self) -> int:
        """What all steps took together."""
        return sum(step.count for step in self.steps)

    def share(self, step: MeasuredStep) -> float:
        """Return a step's part of the whole, 0 to 1."""
        return step.count / self.total if self.total else 0.0

    def as_json(self) -> str:
        """Return the profile as JSON."""
        return json.dumps(asdict(self) | {"total": self.total}, indent=2) + "\n"

    def folded(self) -> str:
        """Return it as folded stacks, a line each: what flame graph tools read."""
        # The tools take a semicolon for the next frame.
        names = (step.called.replace(";", ",") for step in self.steps)
        lines = (
            f"{self.model};{step.kind};{name} {step.count}" for name, step in zip(names, self.steps, strict=True)
        )
        return "\n".join(lines) + "\n"


def profile_of(library: Library, board: str, unit: str, counts: Sequence[int]) -> Profile:
    """Join what a board has measured with what is known of the model.

    Args:
        counts: for each step of the library, what it took.
    """
    steps = tuple(
        MeasuredStep(
            number,
            call.function.removeprefix(f"{library.name}_"),
            call.kind,
            call.macs,
            count,
            _live_bytes(library, number),
            call.writes,
            call.kernel,
            floor_of(call, library.target),
        )
        for number, (call, count) in enumerate(zip(library.calls, counts, strict=True))
    )
    return Profile(library.name, library.executor, board, unit, steps, library.arena_bytes)


def _live_bytes(library: Library, step: int) -> int:
    """Return how many bytes hold something in a step; what shares bytes with another counts once."""
    total = 0
    for arena in library.arenas:
        places = sorted(
            (block.offset, block.offset + block.size)
            for block in library.blocks
            if block.region == arena.region and block.first <= step <= block.last
        )
        end = 0
        for first, last in places:
            total += max(0, last - max(first, end))
            end = max(end, last)
    return total
