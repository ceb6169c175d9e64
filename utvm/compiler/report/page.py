# SPDX-License-Identifier: Apache-2.0
"""The compiler's work on a model, as a page and as JSON: operators, those in float, the memory plan."""

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jinja2

from utvm.base.storage.files import write_whole
from utvm.compiler.library import Library
from utvm.compiler.report.picture import plots
from utvm.errors import ConfigError
from utvm.pages import pages_of

FILES = ("compile.json", "compile.html")


@dataclass(frozen=True)
class RuleCount:
    """A MISRA C:2012 rule that is broken, and why that stays.

    Attributes:
        rule: its number.
        library, runtime: findings in each.
        reason: from ``docs/misra.yaml``.
    """

    rule: str
    library: int
    runtime: int
    reason: str


def write_report(library: Library, directory: Path, misra: Sequence[RuleCount] | None = None) -> tuple[Path, Path]:
    """Write the compile report of a library: ``compile.json`` and ``compile.html``; return their paths."""
    json_path, html_path = (directory / name for name in FILES)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{directory}: the compile report cannot be written: {error.strerror or error}",
            "choose a directory that can be written",
        ) from error
    content = json.dumps(as_json(library, misra), indent=2, ensure_ascii=False) + "\n"
    write_whole(json_path, content)
    write_whole(html_path, render(library, misra))
    return json_path, html_path


def as_json(library: Library, misra: Sequence[RuleCount] | None = None) -> dict[str, object]:
    """The content of ``compile.json``: plain values, everything that the page shows."""
    content = asdict(library)
    counted = {} if misra is None else {"misra": [asdict(item) for item in misra]}
    fields = ("inputs", "outputs", "arenas", "calls", "blocks", "leftovers")
    return {
        "model": library.name,
        "executor": library.executor,
        "target": library.target.told,
        "macs": total_macs(library),
        "weights_bytes": library.weights_bytes,
        "arena_bytes": library.arena_bytes,
        "state_bytes": library.state_bytes,
        "lower_bound_bytes": library.lower_bound_bytes,
        **{field: list(content[field]) for field in fields},
        **({"decisions": list(content["decisions"])} if library.decisions else {}),
        "digest": library.digest,
        **counted,
    }


def total_macs(library: Library) -> int:
    """The multiply-accumulates of one run, where they are known."""
    return sum(call.macs for call in library.calls)


def render(library: Library, misra: Sequence[RuleCount] | None = None) -> str:
    """The page: style and picture are in it, so that it can be mailed and kept."""
    return (
        _templates()
        .get_template("report.html.j2")
        .render(library=library, plots=plots(library), macs=total_macs(library), misra=misra)
    )


def plan_svg(library: Library) -> str:
    """The picture of the memory plan as SVG elements, one a region, with their own style."""
    return _templates().get_template("plan.svg.j2").render(plots=plots(library), library=library)


@functools.cache
def _templates() -> jinja2.Environment:
    return pages_of("utvm.compiler.report")
