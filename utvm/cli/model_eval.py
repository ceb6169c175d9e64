# SPDX-License-Identifier: Apache-2.0
"""``model.eval``: a model on many samples, its accuracy, and a bitwise comparison with another board.

``model.compare``: models on boards, in one table and one picture.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from models.catalogue import CATALOGUE
from utvm import compiler, drivers, selection
from utvm.base.storage.arrays import read_arrays
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.boards import Board
from utvm.cli import choices, compiling
from utvm.cli.compiling import check_counts, compile_for, find, image_for, load_model, require_model_file
from utvm.cli.output import OUT, logs_of, say, show_progress
from utvm.compiler import Library
from utvm.compiler.library import Sample
from utvm.compiler.read import evaluators
from utvm.compiler.report import layers_of
from utvm.errors import ConfigError, DoesNotFitError, ExitCode, did_you_mean
from utvm.firmware import Firmware
from utvm.firmware.inputs import are_pictures, as_bytes, as_integers, random_inputs, read_pictures, read_pixels
from utvm.hil import figures, limits, report
from utvm.session import RunResult, board_holder, evaluation, profile, rpc
from utvm.session.board_holder import open_session

_SAMPLES = 10
_SEED = 0
_MAX_CLASSES = 20  # Limit of a readable matrix.


@dataclass(frozen=True)
class Runs:
    """Results of all samples on one board; ``description`` is the board's own text."""

    board: Board
    description: str
    identity: drivers.BoardIdentity
    image: Firmware
    results: list[RunResult]


def evaluate(request: choices.SampleChoice, where: selection.BoardSelection, validate_against: str) -> ExitCode:
    """Run a model on samples and print each prediction; FAILED if any output bit differs on another board.

    Args:
        validate_against: the other board; empty for none.
    """
    if request.inputs and request.source != request.inputs:
        raise ConfigError(
            "--samples and --inputs both name samples", "give one; --samples may also be a number of samples"
        )
    if request.labels == choices.IN_SAMPLES and not Path(request.source).is_file():
        raise ConfigError("--labels names no file, and there is no samples file with labels", "give --labels FILE")
    board = find(where).board
    other = selection.BoardSelection(validate_against) if validate_against else None
    if other:
        find(other)  # reject a wrong name before the first board runs
    library, samples = prepare(request, board)
    # Reject wrong options before the board runs.
    file = request.source if request.labels == choices.IN_SAMPLES else request.labels
    labels = read_labels(file, len(samples)) if file else []
    answers = (
        reference_answers(request.reference, request.model, samples, len(library.outputs)) if request.reference else []
    )
    runs = run_samples(where, library, samples, show=True)
    ours = [list(result.outputs) for result in runs.results]
    measured: dict[str, Any] = {}
    if labels:
        matrix = evaluation.confusion(ours, labels)
        print_confusion(matrix)
        measured["accuracy"], measured["confusion"] = matrix.accuracy, matrix.counts.tolist()
    if answers:
        statistics = evaluation.distance(ours, answers)
        print_distance(request.reference, statistics, len(samples))
        measured["reference"] = {"name": request.reference, **asdict(statistics)}
    _remember(request, runs, labels)
    mismatches: list[evaluation.Mismatch] = []
    reference = None
    if other:
        reference = run_samples(other, library, samples, show=False)
        for number, (result, theirs) in enumerate(zip(runs.results, reference.results, strict=True)):
            mismatches += evaluation.compare(number, library.outputs, result.outputs, theirs.outputs)
        _print_verdict(runs, reference, mismatches)
    OUT.results(_content(request, library, runs, reference, mismatches) | measured)
    return ExitCode.FAILED if mismatches else ExitCode.PASSED


def _remember(request: choices.SampleChoice, runs: Runs, labels: list[int]) -> None:
    name = Path(request.model).stem
    summary = figures.summarise(name, runs.image, runs.results, executor="model.eval", labels=labels or None)
    if why := limits.remember_model(runs.identity, summary):
        OUT.print(f"warning: {why}")


def prepare(request: choices.SampleChoice, board: Board) -> tuple[Library, list[Sample]]:
    """Build or load the model, compile it for the board, and draw or read the samples."""
    if request.count is not None and request.count < 1:
        raise ConfigError("--samples must be 1 or more", "leave it out for 10, or for all samples of a file")
    if request.model not in CATALOGUE:
        return _prepare_file(request, board)
    entry, weights = CATALOGUE[request.model], request.settings.get("weights", "")
    if weights and not entry.takes_weights:
        takers = ", ".join(name for name, other in CATALOGUE.items() if other.takes_weights)
        raise ConfigError(f"{request.model} takes no file of weights", f"these do: {takers}")
    if request.values:
        raise ConfigError(f"{request.model} has no input that --set can fix", "leave it out")
    arrays = _read(request)
    network = entry.make(_SEED, Path(weights) if weights else None)
    if network.read and arrays is not None and len(arrays) != 1 and not are_pictures(request.source):
        raise ConfigError(f"{request.source}: holds {len(arrays)} arrays", "give one, with all samples in it")
    library = compile_for(board, network.model)
    if entry.random and not weights:
        give = " (give a file with --set weights=FILE)" if entry.takes_weights else ""
        OUT.print(f"weights: random, seed {_SEED}{give}")
    if arrays is not None:
        return library, _select_samples(request, library, arrays, network.read)
    OUT.print("samples: the model's own (give yours with --inputs)")
    return library, _check_enough(network.samples(request.count or _SAMPLES), request, request.model)


def _prepare_file(request: choices.SampleChoice, board: Board) -> tuple[Library, list[Sample]]:
    path = require_model_file(request.model)
    if not path.exists():
        names = [*CATALOGUE, *(file.name for file in path.parent.glob("*.*"))]
        known = f"name a model file, or one of: {', '.join(CATALOGUE)}"
        raise ConfigError(f"there is no model {request.model!r}", did_you_mean(path.name, names, known))
    if "weights" in request.settings:
        raise ConfigError(f"{path}: a model file has its own weights", "leave --set weights out")
    arrays = _read(request)
    library = compile_for(board, load_model(request))
    if arrays is not None:
        return library, _select_samples(request, library, arrays)
    OUT.print(f"samples: random values, seed {_SEED} (give yours with --inputs)")
    generator = np.random.default_rng(_SEED)
    return library, [random_inputs(library, generator) for _ in range(request.count or _SAMPLES)]


def _read(request: choices.SampleChoice) -> Mapping[str, Any] | None:
    """Read a file of samples, if any; pictures are read once the model's input is known."""
    if request.source and are_pictures(request.source):
        return {}
    compiling.check_scale(request.settings.get("scale", ""))
    return read_arrays(request.source) if request.source else None


def _select_samples(
    request: choices.SampleChoice,
    library: Library,
    arrays: Mapping[str, Any],
    read: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None,
) -> list[Sample]:
    """Return the first samples of a file, converted by ``read`` if given."""
    if are_pictures(request.source):
        tensor = compiling.input_for_pictures(request.source, library.inputs)
        scale = request.settings.get("scale", "")
        if read and scale:
            raise ConfigError(f"{request.model} has its own scale of colours", "leave --set scale out")
        arrays = {"": read_pixels(request.source, tensor) if read else read_pictures(request.source, tensor, scale)}
    if read:
        arrays = {"": read(*arrays.values())}
    if len(library.inputs) == 1:
        (tensor,) = library.inputs
        # Format of a samples file in docs/own-project.md.
        if "x" in arrays and tensor.name not in arrays:
            arrays = {"": arrays["x"]}
        if request.source.endswith(".csv"):
            arrays = {"": rows_as(arrays[""], tensor)}
        arrays = {name: as_integers(array, tensor) for name, array in arrays.items()}
    samples = _check_enough(evaluation.as_samples(arrays, library.inputs), request, request.source)
    return samples[: request.count]


def _check_enough(samples: list[Sample], request: choices.SampleChoice, source: str) -> list[Sample]:
    minimum = request.count or 1
    if len(samples) < minimum:
        raise ConfigError(f"{source}: holds {len(samples)} samples, not {minimum}", "ask for fewer, or give more")
    return samples


def run_samples(where: selection.BoardSelection, library: Library, samples: list[Sample], show: bool) -> Runs:
    """Run all samples on a board; print each if ``show``."""
    reachable = find(where)
    for sample in samples:
        as_bytes(sample, library.inputs)  # reject wrong samples before the board runs
    image = image_for(reachable, [library])
    lines: list[str] = []

    def describe(line: str) -> None:
        lines.append(line)
        say(line)

    logs = logs_of("model.eval")
    results = []
    with show_progress("connecting and flashing") as step, open_session(reachable, image, logs, describe) as session:
        for number, sample in enumerate(samples):
            result = session.run(library.name, sample)
            results.append(result)
            step(f"samples: {number + 1} of {len(samples)}")
            if show:
                say(_line(number, result, reachable.board))
    # The last line describes the board; earlier ones name its holder.
    return Runs(reachable.board, lines[-1], reachable.identity, image, results)


def _line(number: int, result: RunResult, board: Board) -> str:
    predicted = evaluation.prediction(result.outputs)
    message = "" if predicted is None else f"  predicted {predicted}"
    time = board.describe_time(result.count, result.unit)
    outputs = " ".join(np.array2string(array, threshold=20, max_line_width=sys.maxsize) for array in result.outputs)
    cost = "".join(f"  {count:,} {unit}" for unit, count in result.count_by_unit.items())
    cost += f" ({time})" if time else ""
    return f"sample {number}{message}{cost}  {outputs}"


def _print_verdict(runs: Runs, reference: Runs, mismatches: list[evaluation.Mismatch]) -> None:
    count, ours, theirs = len(runs.results), runs.board.name, reference.board.name
    for mismatch in mismatches:
        say(
            f"MISMATCH in sample {mismatch.sample}: {printable(mismatch.output)}{list(mismatch.index)} "
            f"is {mismatch.value!r} on {ours}, {mismatch.expected!r} on {theirs}; "
            f"{mismatch.differing} of {mismatch.elements} elements differ"
        )
    differing = len({mismatch.sample for mismatch in mismatches})
    if differing:
        OUT.print(f"{differing} of {count} samples differ between {ours} and {theirs}")
    else:
        OUT.print(f"{count} of {count} samples agree with {theirs}, bit for bit")


def _content(
    request: choices.SampleChoice,
    library: Library,
    runs: Runs,
    reference: Runs | None,
    mismatches: list[evaluation.Mismatch],
) -> dict[str, Any]:
    def sample_content(result: RunResult) -> dict[str, Any]:
        time = runs.board.milliseconds(result.count, result.unit)
        return {
            "prediction": evaluation.prediction(result.outputs),
            **result.count_by_unit,
            **({} if time is None else {"ms": time}),
            "outputs": {
                tensor.name: array.tolist() for tensor, array in zip(library.outputs, result.outputs, strict=True)
            },
        }

    return {
        "model": request.model,
        "library_sha256": library.digest,
        "board": runs.board.name,
        "description": runs.description,
        "environment": report.checkout_digest(),
        "samples": [sample_content(result) for result in runs.results],
        "validated_against": reference and reference.board.name,
        "mismatches": mismatches,
    }


def read_labels(path: str, count: int) -> list[int]:
    """Return the expected classes of samples, from the array ``labels`` of a file, or its only one."""
    arrays = read_arrays(path)
    array = arrays.get("labels", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if array is None:
        raise ConfigError(f"{path}: has no array labels", f"it has: {', '.join(arrays)}")
    flat = array.ravel()
    if flat.dtype.kind not in "iuf" or (flat != np.floor(flat)).any():
        raise ConfigError(f"{path}: labels are the numbers of classes, from 0")
    if len(flat) < count:
        raise ConfigError(f"{path}: holds {len(flat)} labels, not {count}")
    return [int(label) for label in flat[:count]]


def rows_as(numbers: npt.NDArray[Any], tensor: compiler.Tensor) -> npt.NDArray[Any]:
    """Return one sample per row of a CSV file, in the shape of an input and, unless quantised, its type."""
    if numbers.shape[1] != math.prod(tensor.shape):
        raise ConfigError(
            f"input {tensor.name} is {list(tensor.shape)}, and a row of the file has {numbers.shape[1]} numbers"
        )
    return compiling.convert_numbers(numbers.reshape(-1, *tensor.shape), tensor)


def print_confusion(matrix: evaluation.Confusion) -> None:
    """Print the accuracy, the confusion matrix, and recall and precision of each class."""
    classes, total = len(matrix.counts), int(matrix.counts.sum())
    OUT.print(f"accuracy {matrix.accuracy:.4f}, {int(np.trace(matrix.counts))} of {total}")
    columns = range(classes) if classes <= _MAX_CLASSES else ()
    present = [kind for kind in range(classes) if matrix.counts[kind].any() or matrix.counts[:, kind].any()]
    OUT.table(
        ("class", *map(str, columns), "recall", "precision"),
        rows=[
            (str(kind), *(str(matrix.counts[kind, other]) for other in columns), _percent(matrix.recall(kind)),
             _percent(matrix.precision(kind)))
            for kind in present
        ],
    )  # fmt: skip


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f} %"


def reference_answers(name: str, model: str, samples: Sequence[Sample], outputs: int) -> list[Sample]:
    if name not in _REFERENCES:
        known = did_you_mean(name, _REFERENCES, f"references: {', '.join(_REFERENCES)}")
        raise ConfigError(f"there is no reference {name!r}", known)
    suffix, answers = _REFERENCES[name]
    if not model.endswith(suffix):
        raise ConfigError(f"{name} reads {suffix} files only, not {model}", "choose another --reference")
    try:
        return answers(Path(model).read_bytes(), samples, outputs)
    except ImportError as error:
        raise ConfigError(
            f"{name} cannot be loaded: {printable(str(error))}", "pip install utvm[references], or that library"
        ) from error
    except Exception as error:  # whatever another library raises
        raise ConfigError(f"{name} does not run {model}: {printable(str(error))}") from error


def print_distance(name: str, statistics: evaluation.ErrorStatistics, count: int) -> None:
    same = "" if statistics.same_class is None else f", same best class in {statistics.same_class} of {count}"
    OUT.print(
        f"against {name}: largest difference {statistics.largest:g}, RMSE {statistics.rmse:g}, "
        f"signal to noise {statistics.snr_db:.1f} dB{same}"
    )


def _tflm(content: bytes, samples: Sequence[Sample], outputs: int) -> list[Sample]:
    from models.tflite_reference import tflite_micro

    return tflite_micro(content, samples, outputs)


def _onnx(content: bytes, samples: Sequence[Sample], _: int) -> list[Sample]:
    import onnx

    evaluator = evaluators.definition(onnx.load_from_string(content))
    names = evaluator.input_names
    return [list(evaluator.run(None, dict(zip(names, sample, strict=True)))) for sample in samples]


def _onnxruntime(content: bytes, samples: Sequence[Sample], _: int) -> list[Sample]:
    session = evaluators.runtime(content)
    names = [tensor.name for tensor in session.get_inputs()]
    return [list(session.run(None, dict(zip(names, sample, strict=True)))) for sample in samples]


def _litert(content: bytes, samples: Sequence[Sample], _: int) -> list[Sample]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    answers = []
    for sample in samples:
        for detail, array in zip(inputs, sample, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        answers.append([interpreter.get_tensor(detail["index"]) for detail in outputs])
    return answers


_REFERENCES: Mapping[str, tuple[str, Callable[[bytes, Sequence[Sample], int], list[Sample]]]] = {
    "tflm": (".tflite", _tflm),
    "litert": (".tflite", _litert),
    "onnx": (".onnx", _onnx),
    "onnxruntime": (".onnx", _onnxruntime),
}


def compare_models(request: choices.CompareChoice, output: str) -> None:
    # A comma before NAME= separates settings of one board.
    names = [name.strip() for name in re.split(r",(?![^,:]*=)", request.boards) if name.strip()]
    models = [name.strip() for name in request.models.split(",") if name.strip()]
    if not names:
        raise ConfigError("--boards is missing", "names with commas between them; ./inv board.list shows them")
    check_writable(output)
    for name in names:
        find(selection.BoardSelection(name))  # reject a wrong name before the first board runs
    views: list[dict[str, object]] = []
    rows = [_row(request, model, name, views) for model in models for name in names]
    _print_rows(rows)
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
        library, samples = prepare(choice, find(selection.BoardSelection(board)).board)
        labels = read_labels(request.labels, len(samples)) if request.labels else []
        runs = run_samples(selection.BoardSelection(board), library, samples, show=False)
    except DoesNotFitError as error:
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
    except (ConfigError, DoesNotFitError) as error:
        return layers_of(library, title, note=f"{note}; steps are not measured: {error.message}")
    finally:
        holder.release()


def _print_rows(rows: Sequence[evaluation.Row]) -> None:
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
            OUT.print(f"{printable(row.model)} on {row.board}: {printable(row.why)}")
