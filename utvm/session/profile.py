# SPDX-License-Identifier: Apache-2.0
"""Cost and memory use of each step of a model's run."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from utvm.compiler import Library
from utvm.compiler.library import Call
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Floor:
    """The floor of one kind of kernel.

    Attributes:
        kernels: expression for how their names begin; of what has none, an empty name.
        rows: expression for what the toolchain's row of a core has in it.
        a_mac: instructions a multiply-accumulate.
        source: by what, and where that is said.
    """

    kernels: str
    rows: str
    a_mac: float
    source: str


FLOORS = (
    Floor("MVE", "", 1 / 16, "VMLADAVA.S8: 16 products and their sum (ARM DDI 0553, C2.4)"),
    Floor("NEON", "", 1 / 8, "VMULL.S8: eight products (ARM DDI 0406C, A8.8)"),
    Floor("DSP", "", 1 / 2, "SMLAD: two products and their sum (ARM DDI 0403E, A7.7)"),
    Floor("plain C", "cortex-m0|cortex-m23", 1.0, "MULS of two packed numbers, ADDS (ARM DDI 0419, A6.7)"),
    Floor("plain C", "rv32|rv64", 1.0, "MUL of two packed numbers, ADD (RISC-V, volume I)"),
    Floor("plain C", "", 1 / 2, "MLA of two packed numbers (ARM DDI 0403E, A7.7)"),
    Floor("", "fpv|cortex-a|rv32imaf|rv64imaf", 2.0, "a product and a sum, rounded each: no fused multiply-add"),
)
"""The first that fits is a kernel's. Floats on a core without a unit for them have none."""


def floor_of(call: Call, target: Target) -> float | None:
    """Return the instructions that a multiply-accumulate of a step takes at least; None where not known."""
    if not call.macs or ("int8" in call.kind and not call.kernel):
        return None
    return next(
        (
            floor.a_mac
            for floor in FLOORS
            if re.match(floor.kernels, call.kernel) and re.search(floor.rows, target.row)
        ),
        None,
    )


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
    def label(self) -> str:
        """Label in pictures: its number and its output tensors."""
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
        """Sum over all steps."""
        return sum(step.count for step in self.steps)

    def share(self, step: MeasuredStep) -> float:
        """Return a step's part of the whole, 0 to 1."""
        return step.count / self.total if self.total else 0.0

    def as_json(self) -> str:
        """Return the profile as JSON."""
        return json.dumps(asdict(self) | {"total": self.total}, indent=2) + "\n"

    def folded_stacks(self) -> str:
        """Return it as folded stacks, a line each: what flame graph tools read."""
        # The tools take a semicolon for the next frame.
        names = (step.label.replace(";", ",") for step in self.steps)
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
    """Bytes in use during a step; shared bytes count once."""
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
