# SPDX-License-Identifier: Apache-2.0
"""``firmware.build --mlperf`` and ``mlperf.run``."""

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from utvm import boards, drivers, errors, firmware, selection
from utvm.base.log import log_into
from utvm.base.storage.files import check_writable, write_whole
from utvm.cli.choices import CompiledChoice
from utvm.cli.compiling import check_counts, compile_choice, find, require_model_file
from utvm.cli.output import OUT, logs_of, say
from utvm.firmware.build import ship_sources
from utvm.firmware.sources import TASKS
from utvm.session.mlperf import Runner, Sample, auc, read_samples, start_runner, top_1

_WINDOWS = 5  # The benchmark's rules: the median of five.
_WARMUPS = 1
_SEED = 0


def write_image(request: CompiledChoice, board: str, task: str, output: str) -> None:
    """Build firmware for the benchmark's own runner, and write it as an ELF file."""
    if not output:
        raise errors.ConfigError("no file is named", "--output FILE.elf")
    check_writable(output)
    chip = boards.load_chip(board)
    image = _build(chip, chip.capabilities, request, task)
    write_whole(Path(output), image.elf.read_bytes())
    ship_sources(image, "mlperf", (), Path(output))
    channel = f"on {chip.line.name}, {chip.line.baud} baud" if image.pipe == "console" and chip.line else "over RTT"
    OUT.print(f"wrote {output}: on {chip.full_name}, it prints m-ready {channel}")


def run_task(
    request: CompiledChoice,
    where: selection.BoardSelection,
    task: str,
    mode: str,
    data: str,
    samples: int,
    iterations: int,
) -> None:
    if mode not in ("performance", "accuracy"):
        raise errors.ConfigError(f"there is no mode {mode!r}", "--mode performance or --mode accuracy")
    if mode == "accuracy" and not data:
        raise errors.ConfigError("accuracy needs files with labels", "--data FOLDER, with y_labels.csv in it")
    if samples < 0 or iterations < 1:
        raise errors.ConfigError(
            "--samples must be 0 or more, and --iterations 1 or more", "leave them out: 5 windows of 10 runs"
        )
    reachable = find(where)
    if mode == "performance":
        check_counts(reachable)
    image = _build(reachable.board, reachable.capabilities, request, task)
    kind = TASKS[task]
    size = kind.window_bytes(image.libraries[0])
    windows = samples or _WINDOWS
    if data:
        samples_read = read_samples(Path(data), size, windows if mode == "performance" else samples, kind.distance)
    else:
        random = np.random.default_rng(_SEED)
        values = random.standard_normal(size // 4, np.float32).tobytes() if kind.distance else random.bytes(size)
        samples_read = [Sample("random", values, 0)]
        OUT.print(f"input: random values, seed {_SEED} (give the benchmark's own with --data)")
    logs = logs_of("mlperf.run")
    with log_into(logs), reachable.open(logs, say) as connection:
        say(connection.describe())
        with start_runner(connection, image) as runner:
            names = {"name": runner.value("name", "name-dut"), "task": runner.value("profile", "model")}
            if mode == "performance":
                first = [next(group) for _, group in itertools.groupby(samples_read, lambda sample: sample.name)]
                window_samples = [first[number % len(first)] for number in range(windows)]
                figures = _performance(runner, connection, window_samples, iterations)
            else:
                figures = (_distances if kind.distance else _accuracy)(runner, samples_read)
    OUT.print("this is not an official result: those come from EEMBC's runner, under MLCommons' rules")
    OUT.results({**names, "board": reachable.board.full_name, "kind": connection.kind, "mode": mode, **figures})


def _build(board: boards.Board, able: frozenset[str], request: CompiledChoice, task: str) -> firmware.Firmware:
    require_model_file(request.model)
    if task not in TASKS:
        known = errors.did_you_mean(task, TASKS, f"--task {', '.join(TASKS)}")
        raise errors.ConfigError(f"there is no task {task!r}", known)
    # The board reports the name of its library as its task.
    library = compile_choice(board, request, name=task)
    return firmware.build(board, [library], "mlperf", able=able)


def _performance(
    runner: Runner, connection: drivers.Connection, samples: Sequence[Sample], iterations: int
) -> dict[str, object]:
    counts = []
    rates = []
    for number, sample in enumerate(samples, 1):
        runner.load(sample.data)
        window = runner.infer(iterations, _WARMUPS)
        counts.append(window.cycles / window.runs)
        line = f"window {number}: {window.runs} inferences, {counts[-1]:,.0f} {connection.count_unit} each"
        if connection.kind != "virtual" and window.microseconds:
            rates.append(1e6 * window.runs / window.microseconds)
            line += f", {rates[-1]:,.3f} a second"
        OUT.print(f"{line}: {sample.name}")
    median = statistics.median(counts)
    spread = (max(counts) - min(counts)) / median if median else 0.0
    OUT.print(f"median of {len(counts)} windows: {median:,.0f} {connection.count_unit}, spread {100 * spread:.3f} %")
    if not rates:
        OUT.print("the board is VIRTUAL: instructions are not time, so there is no throughput")
    figures: dict[str, object] = {"unit": connection.count_unit, "per_inference": counts, "median": median}
    return figures | {"inferences_per_second": statistics.median(rates) if rates else None}


def _accuracy(runner: Runner, samples: Sequence[Sample]) -> dict[str, object]:
    rows = []
    for sample in samples:
        runner.load(sample.data)
        rows.append(runner.infer(1, 0).results)
    scores, labels = np.array(rows, np.float64), np.array([sample.label for sample in samples], np.int64)
    if labels.max() >= scores.shape[1]:
        raise errors.ConfigError(
            f"a label is {labels.max()}, and the model has {scores.shape[1]} classes", "classes count from 0"
        )
    accuracy, area = top_1(scores, labels), auc(scores, labels)
    OUT.print(f"{len(samples)} samples: top-1 {100 * accuracy:.2f} %")
    OUT.print("AUC: needs two classes" if area is None else f"AUC: {area:.4f}, each class against the others")
    return {"samples": len(samples), "top_1": accuracy, "auc": area}


def _distances(runner: Runner, samples: Sequence[Sample]) -> dict[str, object]:
    """Return the distance of each file: the mean of its windows; class 1 is anomalies."""
    by_file: dict[tuple[str, int], list[float]] = {}
    for sample in samples:
        runner.load(sample.data)
        by_file.setdefault((sample.name, sample.label), []).append(runner.infer(1, 0).results[0])
    distances, labels = (
        np.array([statistics.fmean(values) for values in by_file.values()]),
        np.array([key[1] for key in by_file]),
    )
    area = auc(np.stack([-distances, distances], axis=1), labels)
    OUT.print(f"{len(by_file)} files, {len(samples)} windows")
    OUT.print("AUC: needs two classes" if area is None else f"AUC: {area:.4f}, of the mean distance of a file")
    return {"samples": len(by_file), "windows": len(samples), "distances": distances.tolist(), "auc": area}
