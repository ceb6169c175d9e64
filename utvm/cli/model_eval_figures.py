# SPDX-License-Identifier: Apache-2.0
"""Labels of ``model.eval``, and outputs of other libraries."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm import compiler, errors
from utvm.base.storage.arrays import read_arrays
from utvm.base.text.quoting import printable
from utvm.cli import model_inputs, output
from utvm.compiler.model import Sample
from utvm.compiler.read import evaluators
from utvm.session.evaluation import Confusion, ErrorStatistics

_MAX_CLASSES = 20  # Limit of a readable matrix.


def read_labels(path: str, count: int) -> list[int]:
    """Return the expected classes of samples, from the array ``labels`` of a file, or its only one."""
    arrays = read_arrays(path)
    array = arrays.get("labels", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if array is None:
        raise errors.ConfigError(f"{path}: has no array labels", f"it has: {', '.join(arrays)}")
    flat = array.ravel()
    if flat.dtype.kind not in "iuf" or (flat != np.floor(flat)).any():
        raise errors.ConfigError(f"{path}: labels are the numbers of classes, from 0")
    if len(flat) < count:
        raise errors.ConfigError(f"{path}: holds {len(flat)} labels, not {count}")
    return [int(label) for label in flat[:count]]


def rows_as(numbers: npt.NDArray[Any], tensor: compiler.Tensor) -> npt.NDArray[Any]:
    """Return one sample per row of a CSV file, in the shape of an input and, unless quantised, its type."""
    if numbers.shape[1] != math.prod(tensor.shape):
        raise errors.ConfigError(
            f"input {tensor.name} is {list(tensor.shape)}, and a row of the file has {numbers.shape[1]} numbers"
        )
    return model_inputs.convert_numbers(numbers.reshape(-1, *tensor.shape), tensor)


def print_confusion(matrix: Confusion) -> None:
    """Print the accuracy, the confusion matrix, and recall and precision of each class."""
    classes, total = len(matrix.counts), int(matrix.counts.sum())
    output.OUT.print(f"accuracy {matrix.accuracy:.4f}, {int(np.trace(matrix.counts))} of {total}")
    columns = range(classes) if classes <= _MAX_CLASSES else ()
    present = [kind for kind in range(classes) if matrix.counts[kind].any() or matrix.counts[:, kind].any()]
    output.OUT.table(
        *("class", *map(str, columns), "recall", "precision"),
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
        known = errors.did_you_mean(name, _REFERENCES, f"references: {', '.join(_REFERENCES)}")
        raise errors.ConfigError(f"there is no reference {name!r}", known)
    suffix, answers = _REFERENCES[name]
    if not model.endswith(suffix):
        raise errors.ConfigError(f"{name} reads {suffix} files only, not {model}", "choose another --reference")
    try:
        return answers(Path(model).read_bytes(), samples, outputs)
    except ImportError as error:
        raise errors.ConfigError(
            f"{name} cannot be loaded: {printable(str(error))}", "pip install utvm[references], or that library"
        ) from error
    except Exception as error:  # whatever another library raises
        raise errors.ConfigError(f"{name} does not run {model}: {printable(str(error))}") from error


def print_distance(name: str, statistics: ErrorStatistics, count: int) -> None:
    same = "" if statistics.same_class is None else f", same best class in {statistics.same_class} of {count}"
    output.OUT.print(
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
