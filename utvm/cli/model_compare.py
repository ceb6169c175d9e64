# SPDX-License-Identifier: Apache-2.0
"""``model.compare``: models on boards, in one table and one picture."""

import re
from collections.abc import Sequence
from pathlib import Path

from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text import quoting
from utvm.cli import choices, model_eval
from utvm.cli.compiling import find
from utvm.cli.output import OUT
from utvm.compiler.report import layers_of
from utvm.errors import ConfigError, DoesNotFitError
from utvm.selection import BoardSelection
from utvm.session.evaluation import Row, draw, row_of
from utvm.session.profile import render_models


def compare_models(request: choices.CompareChoice, output: str) -> None:
    # A comma before NAME= separates settings of one board.
    names = [name.strip() for name in re.split(r",(?![^,:]*=)", request.boards) if name.strip()]
    models = [name.strip() for name in request.models.split(",") if name.strip()]
    if not names:
        raise ConfigError("--boards is missing", "names with commas between them; ./inv board.list shows them")
    check_writable(output)
    for name in names:
        find(BoardSelection(name))  # reject a wrong name before the first board runs
    views: list[dict[str, object]] = []
    rows = [_row(request, model, name, views) for model in models for name in names]
    _print(rows)
    write_whole(Path(output), draw(rows))
    OUT.print(f"picture: {output}")
    if views:
        page = Path(output).with_suffix(".html")
        write_whole(page, render_models(", ".join(dict.fromkeys(Path(model).name for model in models)), views))
        OUT.print(f"layers beside each other: {page}")
    OUT.results(rows)


def _row(request: choices.CompareChoice, model: str, board: str, views: list[dict[str, object]]) -> Row:
    """Return the figures of a model on a board; append its layers to ``views`` if it runs."""
    choice = choices.SampleChoice(
        model=model, inputs=request.inputs, set_=request.set_, samples="" if request.inputs else "1"
    )
    try:
        library, samples = model_eval.prepare(choice, find(BoardSelection(board)).board)
        labels = model_eval.read_labels(request.labels, len(samples)) if request.labels else []
        runs = model_eval.run_samples(BoardSelection(board), library, samples, show=False)
    except DoesNotFitError as error:
        return Row(model, board, why=error.message)
    row = row_of(model, board, runs.image, runs.results, labels)
    note = f"one run: {row.count:,} {row.unit}" if row.count else ""
    views.append(layers_of(library, f"{Path(model).name} on {board}", note=note))
    return row


def _print(rows: Sequence[Row]) -> None:
    OUT.table(
        ("model", "board", ">one run", "time", ">flash", ">RAM", ">accuracy"),
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
