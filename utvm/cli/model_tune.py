# SPDX-License-Identifier: Apache-2.0
"""What ``model.tune`` does and prints."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.table import Table

from utvm import boards
from utvm.base.log import log_into
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.boards import Board
from utvm.cli.choices import JsonChoice, TuneChoice
from utvm.cli.compiling import compile_for
from utvm.cli.model_inputs import random_inputs
from utvm.cli.model_library import load_named
from utvm.cli.model_tune_page import render
from utvm.cli.opening import check_counts, find
from utvm.cli.output import OUT, check_json, logs_of, write_json
from utvm.compiler import CompileOptions, Library, Model
from utvm.errors import BoardError, ConfigError
from utvm.selection import BoardSelection
from utvm.session.board_holder import BoardHolder
from utvm.tuning.log import origin_of, read_log, tuned_target_for
from utvm.tuning.measure import Candidate, LocalMeasurer, Measurer
from utvm.tuning.tuner import Tuner
from utvm.tuning.worker import CandidateResult


def tune_model(asked: TuneChoice, where: BoardSelection, wanted: JsonChoice) -> None:
    """Measure candidates of a model's layers on a board, and print what is best."""
    if asked.trials < 1:
        raise ConfigError(f"--trials {asked.trials}: nothing would be measured", "give how many candidates are")
    if asked.count != 1:
        raise ConfigError(f"--count {asked.count} is for boards of a farm", "use it with --in farm")
    board = boards.load(where.board)
    if not asked.tracker:
        check_counts(find(where))
    origin = origin_of(board)
    model = load_named(asked)
    log = Path(asked.log or f"{model.name}-{board.name}.jsonl")
    check_writable(str(log))
    check_json(wanted)
    known = read_log(log, origin) if log.is_file() and log.stat().st_size else []
    before = compile_for(board, model, explain=False)
    with log_into(logs_of("model.tune")), _measurer(board, where, asked, model) as measurer:
        # TVM takes seconds to import.
        from utvm.tuning.tuner import layers_of

        tuner = Tuner(layers_of(model, board.target), measurer, origin, log, known, asked.seed)
        if not tuner.layers:
            raise ConfigError(
                f"{model.origin}: no layer of it can be computed in more than one way",
                "it is as fast as it gets here",
            )
        begun = time.monotonic()
        ended = _search(tuner, asked.trials)
        seconds = time.monotonic() - begun
        _print_layers(tuner)
        page = log.with_name(f"{log.name}.html")
        write_whole(page, render(tuner, model.name, board.full_name))
        OUT.print(f"log: {log}; it is used by --tuned {log}; picture of the search: {page}")
        figures = _whole(board, model, before, log, measurer, asked.seed) if ended else {}
    content = {
        "board": board.name,
        "log": str(log),
        "page": str(page),
        "candidates": sum(each.kind != "default" for each in tuner.entries[len(known) :]),
        "unit": tuner.unit,
        "seconds": round(seconds, 2),
        "layers": [
            {"makes": layer.makes, "layer": layer.name, "before": before, "best": best, "kind": kind}
            for layer, before, best, kind in tuner.rows()
        ],
        **figures,
    }
    write_json(wanted, content)


@contextlib.contextmanager
def _measurer(board: Board, where: BoardSelection, asked: TuneChoice, model: Model) -> Iterator[Measurer]:
    if asked.tracker:
        # Its processes load TVM, which takes seconds.
        from utvm.tuning.measure import TrackerMeasurer, parse_address

        key = asked.key or board.name
        with TrackerMeasurer(parse_address(asked.tracker), key, board, model) as boards_there:
            OUT.print(f"{boards_there.board_count()} boards with the key {key} at {asked.tracker}")
            yield boards_there
        return
    keeper = BoardHolder(board, where, logs_of("model.tune"), OUT.print)
    try:
        OUT.print(keeper.attach())
        # A virtual board's flash does not wear.
        yield LocalMeasurer(keeper, in_ram=keeper.connection.kind == "physical")
    finally:
        keeper.release()


def _search(tuner: Tuner, trials: int) -> bool:
    """Let a search go on, and tell how far it is; return whether it came to its end."""
    try:
        for each in tuner.run(trials):
            faster = f"{each.before / each.best:.2f} times as fast" if each.best < each.before else "as before"
            OUT.print(
                f"{each.measured} of {each.trials}: {printable(each.layer.makes)}: "
                f"{each.best:,} {tuner.unit}, {faster}"
            )
    except KeyboardInterrupt:
        OUT.print("interrupted: what was measured is in the log, and the next model.tune goes on from there")
        return False
    return True


def _print_layers(tuner: Tuner) -> None:
    table = Table("layer", "by", box=None)
    for heading in (tuner.unit, "before", "times as fast"):
        table.add_column(heading, justify="right")
    for layer, before, least, kind in tuner.rows():
        by = {"default": "as before", "trace": "other loops"}.get(kind, "another kernel")
        table.add_row(printable(layer.makes), by, f"{least:,}", f"{before:,}", f"{before / max(least, 1):.2f}")
    OUT.print(table)
    refused = [each for each in tuner.entries if each.error]
    for error in dict.fromkeys(each.error for each in refused):
        OUT.print(f"{sum(each.error == error for each in refused)} candidates were refused: {printable(error)}")


def _whole(
    board: Board, model: Model, before: Library, log: Path, measurer: Measurer, seed: int
) -> dict[str, object]:
    """Run the whole model on the board without and with what was found, and compare."""
    after = compile_for(board, model, CompileOptions(tuned_target_for(board, str(log))), explain=False)
    inputs = random_inputs(before, np.random.default_rng(seed))
    runs = [_run(measurer, Candidate(each, inputs)) for each in (before, after)]
    if runs[0].outputs != runs[1].outputs:
        raise BoardError("the tuned model's outputs differ from those without tuning", "please report this")
    first, second = runs[0].count, runs[1].count
    OUT.print(
        f"the whole model: {first:,} {runs[0].unit} before, {second:,} tuned, "
        f"{first / max(second, 1):.2f} times as fast; outputs are equal bit for bit"
    )
    OUT.print(f"working memory: {before.arena_bytes:,} bytes before, {after.arena_bytes:,} tuned")
    return {
        "before": first,
        "tuned": second,
        "arena_bytes_before": before.arena_bytes,
        "arena_bytes": after.arena_bytes,
        "outputs_equal": True,
    }


def _run(measurer: Measurer, asked: Candidate) -> CandidateResult:
    (measured,) = measurer.measure([asked])
    if not measured.counts:
        raise BoardError(f"{asked.library.name} does not run: {measured.error}")
    return measured
