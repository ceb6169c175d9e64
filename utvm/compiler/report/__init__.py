# SPDX-License-Identifier: Apache-2.0
"""The compile report as HTML and JSON: operators, float operators, and a plot of the memory plan."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import jinja2
from markupsafe import Markup

from utvm import errors, pages
from utvm.base import fields_of
from utvm.base.storage.files import write_whole
from utvm.compiler.library import Block, Library

_WIDTH, _HEIGHT = 820.0, 340.0  # Size of the plot in SVG units.
_SMALLEST = 1.5  # Minimum size of a rectangle, to stay visible.
_LETTERS = 13.0  # Height of a label.


@dataclass(frozen=True)
class Rectangle:
    """A block as a rectangle: position, size and label."""

    block: Block
    x: float
    y: float
    width: float
    height: float
    label: str = ""


def plots(library: Library) -> list[dict[str, object]]:
    used = [arena for arena in library.arenas if arena.size_bytes]
    bound = library.lower_bound_bytes if len(used) == 1 else None
    return [_plot(library, arena.region, arena.size_bytes, bound) for arena in used]


def _plot(library: Library, region: str, size: int, bound: int | None) -> dict[str, object]:
    columns = len(library.calls) + 2
    column, unit = _WIDTH / columns, _HEIGHT / size
    rectangles = []
    for block in library.blocks:
        if block.region != region:
            continue
        width, height = (block.last - block.first + 1) * column, max(block.size * unit, _SMALLEST)
        y = _HEIGHT - (block.offset + block.size) * unit
        rectangles.append(Rectangle(block, (block.first + 1) * column, max(y, 0.0), width, height))
    return {
        "region": region,
        "size": size,
        "width": _WIDTH,
        "height": _HEIGHT,
        "rectangles": [
            replace(rectangle, label=_label(rectangle, rectangles[n + 1 :])) for n, rectangle in enumerate(rectangles)
        ],
        "column": column,
        "steps": range(0, len(library.calls), -(-columns // 24)),
        # At most eleven, a power of two apart.
        "addresses": range(0, size + 1, 1 << ((size - 1) // 10).bit_length()),
        # A plan with several regions has no lower bound per region.
        "bound": None if bound is None else _HEIGHT - bound * unit,
    }


def _label(rectangle: Rectangle, later: Sequence[Rectangle]) -> str:
    if rectangle.height <= _LETTERS:
        return ""
    middle, end = rectangle.y + rectangle.height / 2, rectangle.x + rectangle.width
    for item in later:
        beside = item.x >= end or item.x + item.width <= rectangle.x
        if not beside and item.y < middle + _LETTERS / 2 and item.y + item.height > middle - _LETTERS / 2:
            end = item.x
    room, block = end - rectangle.x, rectangle.block
    name = pages.label_in(room, block.tensor)
    return name if name == block.tensor or block.first < 0 else pages.label_in(room, str(block.first))


FILES = ("compile.json", "compile.html")


@dataclass(frozen=True)
class RuleCount:
    """A MISRA C:2012 rule with findings, and the reason to keep them."""

    rule: str
    library: int
    runtime: int
    reason: str


def write_report(
    library: Library,
    directory: Path,
    misra: Sequence[RuleCount] | None = None,
    figures: Sequence[Mapping[str, object]] = (),
) -> tuple[Path, Path]:
    """Write ``compile.json`` and ``compile.html`` of a library; return their paths.

    ``figures`` as in :func:`layers_of`.
    """
    json_path, html_path = (directory / name for name in FILES)
    with errors.ConfigError.on_os_error(
        f"{directory}: the compile report cannot be written", "choose a directory that can be written"
    ):
        directory.mkdir(parents=True, exist_ok=True)
    content = json.dumps(as_json(library, misra), indent=2, ensure_ascii=False) + "\n"
    write_whole(json_path, content)
    write_whole(html_path, render(library, misra, figures))
    return json_path, html_path


def as_json(library: Library, misra: Sequence[RuleCount] | None = None) -> dict[str, object]:
    content = asdict(library)
    counted = {} if misra is None else {"misra": [asdict(item) for item in misra]}
    fields = ("inputs", "outputs", "arenas", "calls", "blocks", "leftovers", "removals")
    return {
        "model": library.name,
        "executor": library.executor,
        "target": library.target.fields,
        "macs": total_macs(library),
        **fields_of(library, "weights_bytes", "arena_bytes", "state_bytes", "lower_bound_bytes"),
        **{field: list(content[field]) for field in fields},
        **({"decisions": list(content["decisions"])} if library.decisions else {}),
        "digest": library.digest,
        **counted,
    }


def total_macs(library: Library) -> int:
    return sum(call.macs for call in library.calls)


def render(
    library: Library, misra: Sequence[RuleCount] | None = None, figures: Sequence[Mapping[str, object]] = ()
) -> str:
    """Return the page, self-contained with style, script and plot; ``figures`` as in :func:`layers_of`."""
    view = layers_of(library, figures=figures)
    template = _templates().get_template("report.html.j2")
    return template.render(library=library, view=view, macs=total_macs(library), misra=misra, **pages.layers_script())


def layers_of(
    library: Library, title: str = "", unit: str = "MACs", figures: Sequence[Mapping[str, object]] = (), note: str = ""
) -> dict[str, object]:
    """Return a model for ``layers.html.j2``.

    Args:
        unit: of a step's ``cost``, which is its multiply-accumulates by default.
        figures: further values of each step: ``cost``, ``waits``, ``live_bytes``, ``snr``.
    """
    steps = [
        {**asdict(call), "number": number, "key": call.key, "cost": call.macs, **(figures[number] if figures else {})}
        for number, call in enumerate(library.calls)
    ]
    plan = Markup(plan_svg(library))
    return {"title": title or library.name, "note": note, "unit": unit, "steps": steps, "plan": plan}


def plan_svg(library: Library) -> str:
    """Return the plot of the memory plan: an SVG element per region, with its own style."""
    return _templates().get_template("plan.svg.j2").render(plots=plots(library), library=library)


@functools.cache
def _templates() -> jinja2.Environment:
    return pages.pages_of("utvm.compiler.report")
