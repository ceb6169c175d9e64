# SPDX-License-Identifier: Apache-2.0
"""The figures reported per model, which ``figures.yaml`` describes.

``report.json`` and its schema, ``index.html``, ``junit.xml``, the terminal output, the nightly report and
docs/boards.md are generated from :data:`FIGURES`.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from utvm.base.storage.config import read_yaml
from utvm.firmware import Firmware
from utvm.hil.results import ModelResult
from utvm.session import RunResult

Schema = Mapping[str, object]


@dataclass(frozen=True)
class ModelRuns:
    """Inputs of the figures of a model: the image, its runs, one per sample, and the labels."""

    firmware: Firmware
    runs: Sequence[RunResult]
    labels: Sequence[int] | None


@dataclass(frozen=True)
class Figure:
    """A figure of a model.

    Attributes:
        title: column heading, and the unit after a value in a line of text.
        find: computes the value; None if the model has none.
        only: the kind of board that has this figure; empty if all have it.
        optional: whether reports omit it without a value.
    """

    name: str
    title: str
    means: str
    schema: Schema
    find: Callable[[ModelRuns], Any]
    render: Callable[[Any], str]
    only: Literal["", "virtual", "physical", "process"] = ""
    optional: bool = False

    def format(self, value: Any) -> str:
        return "-" if value is None else self.render(value)


def _accuracy(source: ModelRuns) -> float | None:
    if source.labels is None:
        return None
    return float(np.mean(np.array(source.labels) == np.array(_predictions(source.runs))))


def _median_count(source: ModelRuns, *units: str) -> int | None:
    if units and source.runs[0].unit not in units:
        return None
    # An observed count, not an average of two; 0 means not counted.
    return sorted(run.count for run in source.runs)[len(source.runs) // 2] or None


_VALUES: Mapping[str, Callable[[ModelRuns], Any]] = {
    "samples": lambda source: len(source.runs),
    "accuracy": _accuracy,
    "instructions": lambda source: _median_count(source, "instructions"),
    "modelled_cycles": lambda source: _median_count(source, "modelled cycles"),
    "cycles": _median_count,
    "ns": _median_count,
    "ms": lambda source: source.firmware.board.milliseconds(_median_count(source), source.runs[0].unit),
    "ms_error": lambda source: source.firmware.board.error_of(source.runs[0].unit),
    "flash_bytes": lambda source: source.firmware.flash_bytes,
    "ram_bytes": lambda source: source.firmware.ram_bytes,
}


def _read_figure(name: str, format: str, **row: Any) -> Figure:  # noqa: A002  the key in the file
    return Figure(name, find=_VALUES[name], render=lambda value: format.format(value, percent=100 * value), **row)


FIGURES = tuple(_read_figure(name, **row) for name, row in read_yaml(Path(__file__).with_suffix(".yaml"))[0].items())


def present_figures(models: Iterable[Mapping[str, Any]]) -> tuple[Figure, ...]:
    """Return the figures that at least one model has, in table order."""
    known = {name for model in models for name in model}
    return tuple(figure for figure in FIGURES if figure.name in known)


def figures_line(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{row.format(figures[row.name])} {row.title}" for row in FIGURES if figures.get(row.name) is not None
    )


def summarise(
    name: str, firmware: Firmware, runs: Sequence[RunResult], *, executor: str, labels: Sequence[int] | None = None
) -> ModelResult:
    """Compute the figures of a model from its runs on a board, one per sample.

    Args:
        executor: for example ``host-driven``.
        labels: correct class per sample; the prediction is the argmax of the first output.
    """
    if not runs:
        raise ValueError("a model without runs has no figures")
    if labels is not None and len(labels) != len(runs):
        raise ValueError(f"{len(labels)} labels for {len(runs)} runs")
    outputs = hashlib.sha256()
    for run in runs:
        for output in run.outputs:
            outputs.update(np.ascontiguousarray(output).tobytes())
    source = ModelRuns(firmware, runs, labels)
    # The unit of a run is the name of a figure that only one kind of board has.
    kind = next(figure.only for figure in FIGURES if figure.name == runs[0].unit.replace(" ", "_"))
    values = [(figure, figure.find(source)) for figure in FIGURES if figure.only in ("", kind)]
    confusion: tuple[tuple[int, ...], ...] = ()
    if labels is not None:
        table = np.zeros((runs[0].outputs[0].size,) * 2, dtype=int)
        np.add.at(table, (np.array(labels), np.array(_predictions(runs))), 1)
        confusion = tuple(tuple(row) for row in table.tolist())
    return ModelResult(
        id=next((library.model for library in firmware.libraries if library.name == name), "") or None,
        name=name,
        executor=executor,
        outputs_sha256=outputs.hexdigest(),
        figures={figure.name: value for figure, value in values if value is not None or not figure.optional},
        firmware=firmware,
        confusion=confusion,
    )


def _predictions(runs: Sequence[RunResult]) -> list[int]:
    return [int(np.argmax(run.outputs[0])) for run in runs]
