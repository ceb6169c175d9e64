# SPDX-License-Identifier: Apache-2.0
"""Cost and memory use of each step of a model, and their page."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from utvm import pages
from utvm.compiler import Library
from utvm.compiler.library import Call
from utvm.compiler.report import layers_of
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Floor:
    """Lower bound for one kind of kernel.

    Attributes:
        kernels: pattern for the beginning of kernel names; a step without a kernel has an empty name.
        rows: pattern to search in the target's toolchain row.
        per_mac: instructions per multiply-accumulate.
        source: the instructions, and their manual.
    """

    kernels: str
    rows: str
    per_mac: float
    source: str


FLOORS = (
    Floor("MVE", "", 1 / 16, "VMLADAVA.S8: 16 products and their sum (ARM DDI 0553, C2.4)"),
    Floor("NEON", "", 1 / 8, "VMULL.S8: eight products (ARM DDI 0406C, A8.8)"),
    Floor("DSP", "", 1 / 2, "SMLAD: two products and their sum (ARM DDI 0403E, A7.7)"),
    Floor("plain C", "cortex-m0|cortex-m23", 1.0, "MULS of two packed numbers, ADDS (ARM DDI 0419, A6.7)"),
    Floor("plain C", "rv32|rv64", 1.0, "MUL of two packed numbers, ADD (RISC-V, volume I)"),
    Floor("plain C", "", 1 / 2, "MLA of two packed numbers (ARM DDI 0403E, A7.7)"),
    Floor("", "fpv|cortex-a|rv32imaf|rv64imaf", 2.0, "a product and a sum, each rounded: no fused multiply-add"),
)
"""The first match applies. Float operators on a core without an FPU have no bound."""


def floor_of(call: Call, target: Target) -> float | None:
    """Return the minimum of instructions per multiply-accumulate of a step; None if unknown."""
    if not call.macs or ("int8" in call.kind and not call.kernel):
        return None
    return next(
        (
            floor.per_mac
            for floor in FLOORS
            if re.match(floor.kernels, call.kernel) and re.search(floor.rows, target.row)
        ),
        None,
    )


@dataclass(frozen=True)
class MeasuredStep:
    """One step of a run.

    Attributes:
        number: index in execution order.
        function: the C function, without the model's prefix.
        macs: multiply-accumulates; 0 if unknown.
        count: cost in the profile's unit.
        live_bytes: arena bytes in use during the step.
        makes: names of the output tensors.
        kernel: the selected kernel; empty if there is only one.
        floor: minimum of instructions per multiply-accumulate for such a kernel; None if unknown.
        waits: modelled cycles by reason: ``issue``, or the name of a wait; empty if cycles are not modelled.
        reads: names of the input tensors.
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
    waits: Mapping[str, int] = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """As :attr:`utvm.compiler.library.Call.key`."""
        return ", ".join(self.makes) or self.function

    @property
    def label(self) -> str:
        """Label in figures: number and output tensors."""
        return f"{self.number} {self.key}"


@dataclass(frozen=True, repr=False)
class Profile:
    """One run of a model, step by step; ``unit`` is ``instructions``, ``cycles`` or ``ns``."""

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

    @property
    def waits(self) -> Mapping[str, int]:
        """Sum of each kind of wait over all steps; empty if cycles are not modelled."""
        names = self.steps[0].waits if self.steps else ()
        return {name: sum(step.waits[name] for step in self.steps) for name in names}

    def share(self, step: MeasuredStep) -> float:
        """Return a step's fraction of the total, 0 to 1."""
        return step.count / self.total if self.total else 0.0

    def __repr__(self) -> str:
        return f"<{self.model} on {self.board}: {self.total:,} {self.unit} in {len(self.steps)} steps>"

    def _repr_html_(self) -> str:
        """The page of ``model.profile`` in a notebook."""
        return pages.frame(render(self))

    def as_json(self) -> str:
        """Return the profile as JSON."""
        return json.dumps(asdict(self) | {"total": self.total}, indent=2) + "\n"

    def folded_stacks(self) -> str:
        """Return folded stacks, one per line, for flame graph tools."""
        # A semicolon separates frames.
        names = (step.label.replace(";", ",") for step in self.steps)
        lines = (f"{self.model};{step.kind};{name} {step.count}" for name, step in zip(names, self.steps, strict=True))
        return "\n".join(lines) + "\n"


def profile_of(
    library: Library, board: str, unit: str, counts: Sequence[int], waits: Mapping[str, Sequence[int]] | None = None
) -> Profile:
    """Combine the counts of each step, and its waits, with the library's metadata."""
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
            _split(count, {name: values[number] for name, values in (waits or {}).items()}),
            call.reads,
        )
        for number, (call, count) in enumerate(zip(library.calls, counts, strict=True))
    )
    return Profile(library.name, library.executor, board, unit, steps, library.arena_bytes)


def _split(count: int, waits: Mapping[str, int]) -> Mapping[str, int]:
    """Add ``issue``, the cycles that are not waits."""
    return {"issue": count - sum(waits.values()), **waits} if waits else {}


def _live_bytes(library: Library, step: int) -> int:
    """Bytes in use during a step; shared bytes count once."""
    total = 0
    for arena in library.arenas:
        intervals = sorted(
            (block.offset, block.offset + block.size)
            for block in library.blocks
            if block.region == arena.region and block.first <= step <= block.last
        )
        end = 0
        for first, last in intervals:
            total += max(0, last - max(first, end))
            end = max(end, last)
    return total


def render(profile: Profile, library: Library | None = None) -> str:
    """Return the page; without the library, it has no memory plan."""
    return _render("profile.html.j2", profile=profile, views=[layers(profile, library)])


def render_models(title: str, views: Sequence[Mapping[str, object]]) -> str:
    """Return the page of several models, from :func:`layers` or ``layers_of``, two beside each other."""
    return _render("compare.html.j2", title=title, views=views)


def _render(template: str, **values: object) -> str:
    return pages.pages_of("utvm.session").get_template(template).render(**values, **pages.layers_script())


def layers(profile: Profile, library: Library | None = None, title: str = "", note: str = "") -> dict[str, object]:
    """Return a profile for :func:`render_models`."""
    figures = [asdict(step) | {"cost": step.count, "writes": step.makes, "key": step.key} for step in profile.steps]
    if library:
        return layers_of(library, title, profile.unit, figures, note)
    return {"title": title or profile.model, "note": profile.board, "unit": profile.unit, "steps": figures}
