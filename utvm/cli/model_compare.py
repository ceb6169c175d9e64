# SPDX-License-Identifier: Apache-2.0
"""``model.compare``: models on boards, in one table and one picture."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len

from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text import quoting, templates
from utvm.cli import choices, model_eval, model_eval_figures
from utvm.cli.compiling import find
from utvm.cli.output import OUT
from utvm.errors import ConfigError, DoesNotFitError
from utvm.selection import BoardSelection
from utvm.session.evaluation import confusion

_WIDTH = 48  # Columns of text for a model's name in the picture.


@dataclass(frozen=True)
class Row:
    """A model on a board.

    Attributes:
        count: cost of one run in ``unit``: instructions of a virtual board, cycles of a physical one.
        flash_bytes, ram_bytes: sizes of the image; None if the board is a process.
        accuracy: 0 to 1, if the classes are known.
        why: reason if it does not fit; then there are no figures.
        time, ms: duration as text with its range, and as a number; only if cycles were counted.
    """

    model: str
    board: str
    count: int | None = None
    unit: str = ""
    flash_bytes: int | None = None
    ram_bytes: int | None = None
    accuracy: float | None = None
    why: str = ""
    time: str = ""
    ms: float | None = None


@dataclass(frozen=True)
class Panel:
    """A figure in the picture: title with unit, and per row the text and the length, 0 to 1."""

    title: str
    bars: Sequence[tuple[Row, str, float]]


def compare_models(request: choices.CompareChoice, output: str) -> None:
    # A comma before NAME= separates settings of one board.
    names = [name.strip() for name in re.split(r",(?![^,:]*=)", request.boards) if name.strip()]
    models = [name.strip() for name in request.models.split(",") if name.strip()]
    if not names:
        raise ConfigError("--boards is missing", "names with commas between them; ./inv board.list shows them")
    check_writable(output)
    for name in names:
        find(BoardSelection(name))  # reject a wrong name before the first board runs
    rows = [_row(request, model, name) for model in models for name in names]
    _print(rows)
    write_whole(Path(output), draw(rows))
    OUT.print(f"picture: {output}")
    OUT.results(rows)


def _row(request: choices.CompareChoice, model: str, board: str) -> Row:
    choice = choices.SampleChoice(
        model=model, inputs=request.inputs, set_=request.set_, samples="" if request.inputs else "1"
    )
    try:
        library, samples = model_eval.prepare(choice, find(BoardSelection(board)).board)
        labels = model_eval_figures.read_labels(request.labels, len(samples)) if request.labels else []
        runs = model_eval.run_samples(BoardSelection(board), library, samples, show=False)
    except DoesNotFitError as error:
        return Row(model, board, why=error.message)
    # The maximum: users wait for the slowest.
    slowest = max(runs.results, key=lambda result: result.count)
    own_memory = bool(runs.board.memory)
    answers = [list(result.outputs) for result in runs.results]
    return Row(
        model,
        board,
        slowest.count or None,
        slowest.unit,
        runs.image.flash_bytes if own_memory else None,
        runs.image.ram_bytes if own_memory else None,
        confusion(answers, labels).accuracy if labels else None,
        time=runs.board.describe_time(slowest.count, slowest.unit),
        ms=runs.board.milliseconds(slowest.count, slowest.unit),
    )


def _print(rows: Sequence[Row]) -> None:
    OUT.table(
        *("model", "board", ">one run", "time", ">flash", ">RAM", ">accuracy"),
        rows=[
            (
                row.model,
                row.board,
                "does not fit" if row.why else f"{row.count:,} {row.unit}" if row.count else "",
                row.time,
                row.flash_bytes,
                row.ram_bytes,
                "" if row.accuracy is None else f"{row.accuracy:.1%}",
            )
            for row in rows
        ],
    )
    for row in rows:
        if row.why:
            OUT.print(f"{quoting.printable(row.model)} on {row.board}: {quoting.printable(row.why)}")


def draw(rows: Sequence[Row]) -> str:
    """Return the picture as SVG: a panel per figure, with a bar for each row that has it."""
    units = list(dict.fromkeys(row.unit for row in rows if row.count))
    panels = [
        *(
            _panel(f"{unit} of one run", [(row, row.count if row.unit == unit else None) for row in rows])
            for unit in units
        ),
        _panel("ms of one run", [(row, row.ms) for row in rows]),
        _panel("flash, bytes", [(row, row.flash_bytes) for row in rows]),
        _panel("RAM, bytes", [(row, row.ram_bytes) for row in rows]),
        _panel("accuracy, %", [(row, None if row.accuracy is None else 100 * row.accuracy) for row in rows]),
    ]
    models = list(dict.fromkeys(row.model for row in rows))
    panels_drawn = [panel for panel in panels if panel.bars]
    return (
        templates.templates_of("utvm.cli", html=True)
        .get_template("compare.svg.j2")
        .render(
            panels=panels_drawn,
            models=models,
            height=sum(40 + 36 * len(panel.bars) for panel in panels_drawn),
            shortened=_shorten,
        )
    )


def _shorten(name: str, width: int = _WIDTH) -> str:
    """Return the end of a name or path that fits, with an ellipsis if cut."""
    text = name
    while cell_len(text) > width:
        text = f"…{text[2:]}"
    return text


def _panel(title: str, values: Sequence[tuple[Row, float | None]]) -> Panel:
    known = [(row, value) for row, value in values if value is not None]
    largest = max((value for _, value in known), default=0.0) or 1.0
    return Panel(title, [(row, f"{value:,.1f}".removesuffix(".0"), value / largest) for row, value in known])
