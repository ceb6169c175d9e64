# SPDX-License-Identifier: Apache-2.0
"""What ``model.quantize`` does and prints."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.table import Table

from utvm.base.storage.arrays import read_arrays
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.cli.choices import JsonChoice, QuantizeChoice
from utvm.cli.model_eval_figures import print_distance, read_labels
from utvm.cli.model_inputs import check_scale, input_for_pictures
from utvm.cli.model_library import load_named
from utvm.cli.output import OUT, check_json, write_json
from utvm.cli.progress import working
from utvm.compiler import Tensor
from utvm.compiler.model import Sample
from utvm.errors import ConfigError
from utvm.firmware.inputs import are_pictures, read_pictures
from utvm.quantize import Activations, Cost, costs, model_outputs, quantize
from utvm.session.evaluation import as_samples, confusion, distance

_KINDS: Mapping[str, Activations] = {"int8": "int8", "16x8": "int16"}


class _Told(list[Sample]):
    """Samples that tell how far somebody is who goes through them."""

    def __init__(self, samples: Sequence[Sample], step: Callable[[str], None], what: str) -> None:
        super().__init__(samples)
        self._step, self._what = step, what

    def __iter__(self) -> Iterator[Sample]:
        for number, sample in enumerate(super().__iter__()):
            self._step(f"{self._what}: {number} of {len(self)}")
            yield sample


def quantize_model(asked: QuantizeChoice, output: str, wanted: JsonChoice) -> None:
    """Quantise a model by samples, write it, and print what that cost."""
    if asked.to not in _KINDS:
        raise ConfigError(f"--to {asked.to!r} is nothing that is written", f"one of {', '.join(_KINDS)}")
    if not asked.samples:
        raise ConfigError(
            "--samples is missing", "an .npz with what the model is usually given, as for model.eval"
        )
    path = Path(output or f"{Path(asked.model).stem}_{asked.to}.onnx")
    check_writable(path)
    check_json(wanted)
    model = load_named(asked)
    if model.format != "onnx":
        raise ConfigError(
            f"{asked.model}: is no ONNX model", "convert it to ONNX, or quantise it where it was trained"
        )
    real = onnx.load_from_string(model.content)
    tensors = _inputs(real)
    arrays = _read(asked, tensors)
    labels_in_it = arrays.pop("labels", None) is not None
    samples = _samples(tensors, arrays)
    source = asked.labels or (asked.samples if labels_in_it else "")
    labels = read_labels(source, len(samples)) if source else []
    with working("model.quantize", "ranges of tensors:") as step:
        made = quantize(real, _Told(samples, step, "ranges of tensors"), _KINDS[asked.to])
        before = model_outputs(real, _Told(samples, step, "answers before"))
        after = model_outputs(made, _Told(samples, step, "answers after"))
        layers = costs(real, made, _Told(samples, step, "what layers have lost"))
    content = made.SerializeToString(deterministic=True)
    write_whole(path, content)
    apart = distance(after, before)
    _print(layers)
    print_distance("the model of real numbers", apart, len(samples))
    figures: dict[str, Any] = {}
    if labels:
        right = [confusion(each, labels).accuracy for each in (before, after)]
        figures = {"accuracy_before": right[0], "accuracy_after": right[1]}
        OUT.print(f"accuracy on {len(samples)} samples: {right[0]:.1%} before, {right[1]:.1%} after")
    OUT.print(f"wrote {path}, {len(content):,} bytes ({len(model.content):,} before)")
    OUT.print(f"what stays in float, if anything: ./inv model.report {path}")
    write_json(
        wanted,
        {
            "model": asked.model,
            "written": str(path),
            "samples": len(samples),
            **figures,
            "snr_db": _finite(apart.snr_db),
            "layers": [
                {"tensor": each.tensor, "operator": each.operator, "snr_db": _finite(each.snr_db)}
                for each in layers
            ],
        },
    )


def _read(asked: QuantizeChoice, tensors: Sequence[Tensor]) -> dict[str, Any]:
    if are_pictures(asked.samples):
        return {"": read_pictures(asked.samples, input_for_pictures(asked.samples, tensors), asked.scale)}
    check_scale(asked.scale)
    return read_arrays(asked.samples)


def _inputs(model: onnx.ModelProto) -> list[Tensor]:
    constants = {each.name for each in model.graph.initializer}
    tensors = []
    for given in model.graph.input:
        if given.name not in constants:
            told = given.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(told.elem_type)
            tensors.append(Tensor(given.name, tuple(each.dim_value or 1 for each in told.shape.dim), dtype.name))
    return tensors


def _samples(tensors: Sequence[Tensor], arrays: dict[str, Any]) -> list[Sample]:
    """Take a file of samples apart, as ``model.eval`` does."""
    if len(tensors) == 1 and "x" in arrays and tensors[0].name != "x":
        arrays = {"": arrays["x"]}
    types = {tensor.name: tensor.dtype for tensor in tensors} | {"": tensors[0].dtype if tensors else ""}
    fitting = {
        name: array.astype(types[name])
        if name in types and array.dtype.kind == "f" and np.dtype(types[name]).kind == "f"
        else array
        for name, array in arrays.items()
    }
    samples = as_samples(fitting, tensors)
    if not samples:
        raise ConfigError("the file holds no samples", "a hundred or so, of all kinds, are enough")
    return samples


def _print(layers: Sequence[Cost]) -> None:
    table = Table("operator", "makes", box=None)
    table.add_column("signal to noise", justify="right")
    for each in layers:
        lost = "exact" if each.snr_db == math.inf else f"{each.snr_db:.1f} dB"
        table.add_row(each.operator, printable(each.tensor), lost)
    OUT.print(table)


def _finite(snr_db: float) -> float | None:
    return round(snr_db, 2) if math.isfinite(snr_db) else None
