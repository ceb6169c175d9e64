# SPDX-License-Identifier: Apache-2.0
"""``model.quantize``: an ONNX model in int8 or 16x8, and the error of each layer."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from utvm.base.storage.arrays import read_arrays
from utvm.base.storage.files import check_writable, write_whole
from utvm.cli import choices, compiling, model_eval
from utvm.cli.output import OUT, show_progress
from utvm.compiler import Tensor, compile_model, load, reference
from utvm.compiler.library import Model, Sample
from utvm.compiler.report import write_report
from utvm.errors import CompileError, ConfigError, UtvmError, did_you_mean
from utvm.firmware.inputs import are_pictures, read_pictures
from utvm.quantize import CALIBRATIONS, KINDS, Cost, costs, model_outputs, quantize
from utvm.session.evaluation import as_samples, confusion, distance

_SAME_DB = 40.0  # Least signal-to-noise ratio between two correct evaluators of float32.
_SOME = 32  # First samples, by which layers are compared.


class _CountedSamples(list[Sample]):
    def __init__(self, samples: Sequence[Sample], step: Callable[[str], None], name: str) -> None:
        super().__init__(samples)
        self._step, self._name = step, name

    def __iter__(self) -> Iterator[Sample]:
        for number, sample in enumerate(super().__iter__()):
            self._step(f"{self._name}: {number} of {len(self)}")
            yield sample


def quantize_model(request: choices.QuantizeChoice, output: str) -> None:
    _check(request)
    path = Path(output or f"{Path(request.model).stem}_{request.to}.onnx")
    check_writable(path)
    model = compiling.load_model(request)
    if model.format != "onnx":
        raise ConfigError(
            f"{request.model}: is not an ONNX model", "convert it to ONNX, or quantise it where it was trained"
        )
    float_model = onnx.load_from_string(model.content)
    tensors = _inputs(float_model)
    arrays = _read(request, tensors)
    has_labels = arrays.pop("labels", None) is not None
    samples = _samples(tensors, arrays)
    source = request.labels or (request.samples if has_labels else "")
    labels = model_eval.read_labels(source, len(samples)) if source else []
    with show_progress("ranges of tensors:") as step:
        before = model_outputs(float_model, _CountedSamples(samples, step, "outputs before"))
        step("a second evaluator")
        agreement = _compare_evaluators(model, samples[:1], before[:1])
        quantised = quantize(
            float_model,
            _CountedSamples(samples, step, "ranges of tensors"),
            KINDS[request.to],
            request.calibration,
            request.least_snr,
        )
        after = model_outputs(quantised, _CountedSamples(samples, step, "outputs after"))
        layers = costs(float_model, quantised, _CountedSamples(samples[:_SOME], step, "errors of layers"))
    content = quantised.SerializeToString(deterministic=True)
    write_whole(path, content)
    error = distance(after, before)
    _print_layers(layers)
    OUT.print(agreement)
    model_eval.print_distance("the float model", error, len(samples))
    figures: dict[str, Any] = {}
    if labels:
        accuracy = [confusion(outputs, labels).accuracy for outputs in (before, after)]
        figures = {"accuracy_before": accuracy[0], "accuracy_after": accuracy[1]}
        OUT.print(f"accuracy on {len(samples)} samples: {accuracy[0]:.1%} before, {accuracy[1]:.1%} after")
    OUT.print(f"wrote {path}, {len(content):,} bytes ({len(model.content):,} before)")
    OUT.print(_write_page(path, {layer.tensor: layer.snr_db for layer in layers}))
    OUT.results(
        {
            "model": request.model,
            "written": str(path),
            "samples": len(samples),
            "calibration": request.calibration,
            **figures,
            "snr_db": _finite(error.snr_db),
            "layers": [
                {"tensor": layer.tensor, "operator": layer.operator, "snr_db": _finite(layer.snr_db)}
                for layer in layers
            ],
        }
    )


def _print_layers(layers: Sequence[Cost]) -> None:
    OUT.table(
        ("operator", "makes", ">signal to noise"),
        rows=[
            (layer.operator, layer.tensor, "exact" if layer.snr_db == math.inf else f"{layer.snr_db:.1f} dB")
            for layer in layers
        ],
    )


def _write_page(path: Path, snr_db: Mapping[str, float]) -> str:
    """Write the report of the quantised model with the error of each layer; return a line of output."""
    try:
        with compiling.compiling(path):
            library = compile_model(load(path))
    except UtvmError as error:
        return f"no report, because the compiler refuses the model: {error.message}"
    tensors = [[name.removesuffix("_QuantizeLinear_Output") for name in call.writes] for call in library.calls]
    texts = {name: "exact" if value == math.inf else f"{value:.1f} dB" for name, value in snr_db.items()}
    figures = [{"snr": next((texts[name] for name in names if name in texts), "")} for names in tensors]
    _, page = write_report(library, path.with_name(f"{path.stem}-report"), figures=figures)
    return f"report with the error of each layer: {page}; {len(library.leftovers)} operators stay in float"


def _check(request: choices.QuantizeChoice) -> None:
    if request.to not in KINDS:
        raise ConfigError(f"--to {request.to!r} is not a type of quantised models", f"one of {', '.join(KINDS)}")
    if request.calibration not in CALIBRATIONS:
        known = did_you_mean(request.calibration, CALIBRATIONS, f"one of {', '.join(CALIBRATIONS)}")
        raise ConfigError(f"--calibration {request.calibration!r} is not a method", known)
    if not 0 <= request.least_snr < math.inf or (request.least_snr and request.to != "int8"):
        raise ConfigError(
            f"--least-snr {request.least_snr:g} is not possible", "give 0 dB or more, and only with --to int8"
        )
    if not request.samples:
        raise ConfigError("--samples is missing", "an .npz of typical inputs, as for model.eval")


def _compare_evaluators(model: Model, samples: Sequence[Sample], others: Sequence[Sample]) -> str:
    try:
        run = reference(model)
    except UtvmError as error:
        return f"float model: run by ONNX Runtime only, because the compiler refuses it: {error.message}"
    snr_db = distance([run(list(sample)) for sample in samples], others).snr_db
    if not snr_db >= _SAME_DB:  # also if it is not a number
        raise CompileError(
            f"{model.name}: ONNX Runtime and the compiler compute this float model differently ({snr_db:.1f} dB)",
            "one of them is wrong: please report the model",
        )
    return f"float model: ONNX Runtime and the compiler agree, signal to noise {snr_db:.1f} dB"


def _read(request: choices.QuantizeChoice, tensors: Sequence[Tensor]) -> dict[str, Any]:
    scale = request.settings.get("scale", "")
    if are_pictures(request.samples):
        return {"": read_pictures(request.samples, compiling.input_for_pictures(request.samples, tensors), scale)}
    compiling.check_scale(scale)
    return read_arrays(request.samples)


def _inputs(model: onnx.ModelProto) -> list[Tensor]:
    constants = {constant.name for constant in model.graph.initializer}
    tensors = []
    for tensor in model.graph.input:
        if tensor.name not in constants:
            kind = tensor.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            tensors.append(Tensor(tensor.name, tuple(size.dim_value or 1 for size in kind.shape.dim), dtype.name))
    return tensors


def _samples(tensors: Sequence[Tensor], arrays: dict[str, Any]) -> list[Sample]:
    if len(tensors) == 1 and "x" in arrays and tensors[0].name != "x":
        arrays = {"": arrays["x"]}
    types = {tensor.name: tensor.dtype for tensor in tensors} | {"": tensors[0].dtype if tensors else ""}
    arrays_as_floats = {
        name: array.astype(types[name])
        if name in types and array.dtype.kind == "f" and np.dtype(types[name]).kind == "f"
        else array
        for name, array in arrays.items()
    }
    samples = as_samples(arrays_as_floats, tensors)
    if not samples:
        raise ConfigError("the file holds no samples", "about a hundred, of all kinds, are enough")
    return samples


def _finite(snr_db: float) -> float | None:
    return round(snr_db, 2) if math.isfinite(snr_db) else None
