# SPDX-License-Identifier: Apache-2.0
"""``model.tune``: the fastest kernel of each layer, by measurement on boards."""

import contextlib
import dataclasses
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from utvm import boards
from utvm.base.log import log_into
from utvm.base.process import Service, interpreter
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.boards import PATH_VARIABLE, Board
from utvm.cli.choices import CountingChoice, TuneChoice
from utvm.cli.compiling import check_counts, compile_for, find, load_model
from utvm.cli.output import OUT, logs_of, show_progress
from utvm.compiler import CompileOptions, Library, Model
from utvm.environment.remote import RemoteCommand
from utvm.errors import BoardError, ConfigError, ProvisionError
from utvm.firmware.inputs import random_inputs
from utvm.pages import pages_of
from utvm.selection import BoardFolders, BoardSelection, FarmChoice, parts
from utvm.session.board_holder import BoardHolder
from utvm.tuning.log import origin_of, read_log, tuned_target_for
from utvm.tuning.measure import Candidate, LocalMeasurer, Measurer
from utvm.tuning.tuner import Tuner
from utvm.tuning.worker import CandidateResult

_SERVED_MODEL = "models/digits/digits_int8.tflite"
"""Any model will do: candidates are uploaded."""

_TRACKER_READY = r"^the tracker listens on port (\d+)"
_SEED = 0


def tune_model(request: TuneChoice, where: CountingChoice) -> None:
    if request.trials < 1:
        raise ConfigError(f"--trials {request.trials}: nothing would be measured", "give the number of candidates")
    if request.count != 1:
        raise ConfigError(f"--count {request.count} is for boards of a farm", "use it with --in farm")
    if not request.tracker and boards.load(where.board).offered_timing:
        where = dataclasses.replace(where, cycles=True)
    board = boards.load(where.board)
    if not request.tracker:
        check_counts(find(where))
    origin = origin_of(board)
    model = load_model(request)
    log = Path(request.log or f"{model.name}-{board.name}.jsonl")
    check_writable(str(log))
    known = read_log(log, origin) if log.is_file() and log.stat().st_size else []
    before = compile_for(board, model)
    with log_into(logs_of("model.tune")), _measurer(board, where, request, model) as measurer:
        # TVM takes seconds to import.
        from utvm.tuning.tuner import layers_of

        tuner = Tuner(layers_of(model, board.target), measurer, origin, log, known, _SEED)
        if not tuner.layers:
            raise ConfigError(f"{model.origin}: no layer has more than one kernel", "there is nothing to tune")
        start = time.monotonic()
        is_complete = _search(tuner, request.trials)
        seconds = time.monotonic() - start
        _print_layers(tuner)
        page = log.with_name(f"{log.name}.html")
        write_whole(page, _render_page(tuner, model.name, board.full_name))
        OUT.print(f"log: {log}; it is used by --set tuned={log}; picture of the search: {page}")
        figures = _compare(board, model, before, log, measurer) if is_complete else {}
    content = {
        "board": board.name,
        "log": str(log),
        "page": str(page),
        "candidates": sum(entry.kind != "default" for entry in tuner.entries[len(known) :]),
        "unit": tuner.unit,
        "seconds": round(seconds, 2),
        "layers": [
            {"makes": layer.makes, "layer": layer.name, "before": before, "best": best, "kind": kind}
            for layer, before, best, kind in tuner.rows()
        ],
        **figures,
    }
    OUT.results(content)


@contextlib.contextmanager
def _measurer(board: Board, where: BoardSelection, request: TuneChoice, model: Model) -> Iterator[Measurer]:
    if request.tracker:
        # TrackerMeasurer's processes load TVM, which takes seconds.
        from utvm.tuning.measure import TrackerMeasurer, parse_address

        address, _, key = request.tracker.partition("/")
        key = key or board.name
        with TrackerMeasurer(parse_address(address), key, board, model) as measurer:
            OUT.print(f"{measurer.board_count()} boards with the key {key} at {address}")
            yield measurer
        return
    holder = BoardHolder(board, where, logs_of("model.tune"), OUT.print)
    try:
        OUT.print(holder.attach())
        # A virtual board's flash does not wear.
        yield LocalMeasurer(holder, in_ram=holder.connection.kind == "physical")
    finally:
        holder.release()


def _search(tuner: Tuner, trials: int) -> bool:
    """Run a search and print its progress; False if it was interrupted."""
    try:
        with show_progress(f"candidates: 0 of {trials}") as begin:
            for step in tuner.run(trials):
                count = f"{step.measured} of {step.trials}"
                faster = f"{step.before / step.best:.2f} times as fast" if step.best < step.before else "as before"
                begin("")
                OUT.print(f"{count}: {printable(step.layer.makes)}: {step.best:,} {tuner.unit}, {faster}")
                begin(f"candidates: {count}")
    except KeyboardInterrupt:
        OUT.print("interrupted: the log has all measurements, and the next model.tune continues from there")
        return False
    return True


def _print_layers(tuner: Tuner) -> None:
    labels = {"default": "as before", "trace": "other loops"}
    OUT.table(
        ("layer", "kernel", f">{tuner.unit}", ">before", ">times as fast"),
        rows=[
            (layer.makes, labels.get(kind, "another kernel"), least, before, f"{before / max(least, 1):.2f}")
            for layer, before, least, kind in tuner.rows()
        ],
    )
    errors = Counter(entry.error for entry in tuner.entries if entry.error)
    for error, count in errors.items():
        OUT.print(f"{count} candidates were refused: {printable(error)}")


def _compare(board: Board, model: Model, before: Library, log: Path, measurer: Measurer) -> dict[str, object]:
    after = compile_for(board, model, CompileOptions(tuned_target_for(board, str(log))))
    inputs = random_inputs(before, np.random.default_rng(_SEED))
    runs = [_run(measurer, Candidate(library, inputs)) for library in (before, after)]
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


def _run(measurer: Measurer, candidate: Candidate) -> CandidateResult:
    (measured,) = measurer.measure([candidate])
    if not measured.counts:
        raise BoardError(f"{candidate.library.name} does not run: {measured.error}")
    return measured


def tune_together(farm: FarmChoice, request: TuneChoice, where: CountingChoice) -> None:
    """Lease boards, serve each at its host to our tracker, tune on all of them, and return them."""
    if request.tracker or where.cycles:
        raise ConfigError("--count cannot be combined with --tracker or --cycles", "leave these out")
    board = boards.load(where.board)
    key = f"{board.name}-{secrets.token_hex(4)}"
    any_board = dataclasses.replace(where, kind="auto", serial="", wait=0.0)

    def serve_command(port: int, tracker: str, announced_port: int) -> RemoteCommand:
        words = [("board.serve",), (f"--model={_SERVED_MODEL}",), *parts(any_board), (f"--port={port}",)]
        words += [(f"--tracker={tracker}",), (f"--announce={announced_port}",), (f"--key={key}",)]
        return RemoteCommand((*words, *parts(BoardFolders(os.environ.get(PATH_VARIABLE, "")))), board, where)

    # Slow imports, for boards of a farm only.
    from utvm.farm.location import ServedBoards
    from utvm.tuning.measure import count_boards_at

    command = interpreter.python_command("utvm.tuning.tracker")
    log = logs_of("model.tune") / "tracker.log"
    with contextlib.ExitStack() as stack:
        tracker = Service("the tracker", command, log=log, health=_TRACKER_READY, error=ProvisionError)
        stack.enter_context(tracker)
        assert tracker.health_match
        port = int(tracker.health_match[1])
        say = lambda line: OUT.print(printable(line)) if line else None  # noqa: E731
        served = stack.enter_context(ServedBoards(farm, serve_command, port, request.count, say))
        served.wait(lambda: count_boards_at(("127.0.0.1", port), key))
        tune_model(dataclasses.replace(request, tracker=f"127.0.0.1:{port}/{key}", count=1), where)


def _render_page(tuner: Tuner, title: str, board: str) -> str:
    candidates = [
        row for row in tuner.entries if row.unit == tuner.unit and row.kind != "default" and row.count is not None
    ]
    searches = [
        {"makes": layer.makes, "before": before, "best": best, "entries": entries}
        for layer, before, best, _ in tuner.rows()
        if (entries := [entry for entry in candidates if entry.layer == layer.name])
    ]
    template = pages_of("utvm.cli").get_template("tune.html.j2")
    return template.render(searches=searches, title=title, board=board, unit=tuner.unit)
