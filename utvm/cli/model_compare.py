# SPDX-License-Identifier: Apache-2.0
"""``model.compare``: models on boards, in one table and one picture."""

import re
from collections.abc import Sequence
from pathlib import Path

from utvm import errors, selection
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text import quoting
from utvm.cli import choices, model_eval
from utvm.cli.compiling import check_counts, find
from utvm.cli.output import OUT, logs_of
from utvm.compiler import Library
from utvm.compiler.library import Sample
from utvm.compiler.report import layers_of
from utvm.session import board_holder, evaluation, profile, rpc


def compare_models(request: choices.CompareChoice, output: str) -> None:
    # A comma before NAME= separates settings of one board.
    names = [name.strip() for name in re.split(r",(?![^,:]*=)", request.boards) if name.strip()]
    models = [name.strip() for name in request.models.split(",") if name.strip()]
    if not names:
        raise errors.ConfigError("--boards is missing", "names with commas between them; ./inv board.list shows them")
    check_writable(output)
    for name in names:
        find(selection.BoardSelection(name))  # reject a wrong name before the first board runs
    views: list[dict[str, object]] = []
    rows = [_row(request, model, name, views) for model in models for name in names]
    _print(rows)
    write_whole(Path(output), evaluation.draw(rows))
    OUT.print(f"picture: {output}")
    if views:
        page = Path(output).with_suffix(".html")
        write_whole(page, profile.render_models(", ".join(dict.fromkeys(Path(model).name for model in models)), views))
        OUT.print(f"layers beside each other: {page}")
    OUT.results(rows)


def _row(request: choices.CompareChoice, model: str, board: str, views: list[dict[str, object]]) -> evaluation.Row:
    """Return the figures of a model on a board; append its layers to ``views`` if it runs."""
    choice = choices.SampleChoice(
        model=model, inputs=request.inputs, set_=request.set_, samples="" if request.inputs else "1"
    )
    try:
        library, samples = model_eval.prepare(choice, find(selection.BoardSelection(board)).board)
        labels = model_eval.read_labels(request.labels, len(samples)) if request.labels else []
        runs = model_eval.run_samples(selection.BoardSelection(board), library, samples, show=False)
    except errors.DoesNotFitError as error:
        return evaluation.Row(model, board, why=error.message)
    row = evaluation.row_of(model, board, runs.image, runs.results, labels)
    note = f"one run: {row.count:,} {row.unit}" if row.count else ""
    views.append(_layers(library, samples[0], f"{Path(model).name} on {board}", board, note))
    return row


def _layers(library: Library, sample: Sample, title: str, board: str, note: str) -> dict[str, object]:
    """Return the layers with their costs on a board, or with MACs if the board cannot measure them."""
    where = selection.BoardSelection(board)
    holder = board_holder.BoardHolder(find(where).board, where, logs_of("model.compare"))
    try:
        check_counts(find(where))
        holder.attach()
        with holder.serve([library]) as served, rpc.RpcSession(served, [library]) as session:
            _, counts = session.profile(library.name, sample)
        steps = profile.profile_of(library, served.description, served.unit, counts)
        return profile.layers(steps, library, title, note)
    except (errors.ConfigError, errors.DoesNotFitError) as error:
        return layers_of(library, title, note=f"{note}; steps are not measured: {error.message}")
    finally:
        holder.release()


def _print(rows: Sequence[evaluation.Row]) -> None:
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
