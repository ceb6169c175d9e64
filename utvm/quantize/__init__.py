# SPDX-License-Identifier: Apache-2.0
"""Post-training quantisation of ONNX models in QDQ form, by ONNX Runtime's quantiser.

Weights are symmetric with a scale for each output channel, biases int32 with the product of the scales,
activations int8 with a zero point, or int16 without one. :func:`costs` gives the error of each tensor.
"""

import contextlib
import io
import logging
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx

from utvm.compiler.read.evaluators import runtime
from utvm.errors import ConfigError

Array = npt.NDArray[Any]
Sample = Sequence[Array]  # An array for each input, in the model's order.
Activations = Literal["int8", "int16"]
KINDS: Mapping[str, Activations] = {"int8": "int8", "16x8": "int16"}

# The first operator sets of ONNX with these types.
_OPSETS: Mapping[Activations, int] = {"int8": 19, "int16": 21}
# Quantised in addition to ONNX Runtime's own list.
_MORE = ["DepthToSpace", "Elu", "HardSigmoid", "HardSwish", "ReduceMean", "SpaceToDepth", "Sub", "Tanh"]
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# TensorFlow Lite's fixed scale, with which Softmax runs in integers.
_SOFTMAX = {"scale": np.array(1 / 256, np.float32), "zero_point": np.array(-128, np.int8)}


@dataclass(frozen=True)
class Cost:
    """Quantisation error of a tensor; ``snr_db`` is infinite if the error is zero."""

    tensor: str
    operator: str
    snr_db: float


def model_outputs(model: onnx.ModelProto, samples: Sequence[Sample]) -> list[list[Array]]:
    """Outputs of a model for each sample."""
    names = [output.name for output in model.graph.output]
    return [[values[name] for name in names] for values in _values(model, names, samples)]


def costs(model: onnx.ModelProto, quantised: onnx.ModelProto, samples: Sequence[Sample]) -> list[Cost]:
    """Quantisation error of each tensor that both models compute, in execution order."""
    operators = {name: node.op_type for node in model.graph.node for name in node.output}
    theirs = {name for node in quantised.graph.node for name in node.output}
    rounded = {name: f"{name}_DequantizeLinear_Output" for name in operators}
    lossy = {name: other if other in theirs else name for name, other in rounded.items() if {name, other} & theirs}
    signal, noise = dict.fromkeys(lossy, 0.0), dict.fromkeys(lossy, 0.0)
    pairs = zip(_values(model, list(lossy), samples), _values(quantised, list(lossy.values()), samples), strict=True)
    for real, other in pairs:
        for name, source in lossy.items():
            if real[name].dtype.kind == "f" and real[name].shape == other[source].shape:
                reference = np.asarray(real[name], np.float64)
                signal[name] += float(np.sum(reference**2))
                noise[name] += float(np.sum((reference - other[source]) ** 2))
    return [
        Cost(name, operators[name], 10 * math.log10(signal[name] / noise[name]) if noise[name] else math.inf)
        for name in lossy
        if signal[name] > 0
    ]


def input_names(model: onnx.ModelProto) -> list[str]:
    constants = {constant.name for constant in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in constants]


def _values(model: onnx.ModelProto, names: Sequence[str], samples: Sequence[Sample]) -> Iterator[dict[str, Array]]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs = input_names(model)
    known = {output.name for output in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in {*known, *inputs})
    wanted = [name for name in names if name not in inputs]
    with _named_errors("run"):
        session = runtime(copy)
    for sample in samples:
        feed = dict(zip(inputs, sample, strict=True))
        for name, array in feed.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ConfigError(f"a sample of {name} has a NaN or an infinity", "leave it out")
        with _named_errors("run"):
            results = session.run(wanted, feed)
        yield feed | dict(zip(wanted, map(np.asarray, results), strict=True))


@contextlib.contextmanager
def _named_errors(action: str) -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # ONNX Runtime's words for its own developers.
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # ONNX Runtime has no common base class of errors.
        reason = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+ |\s+", " ", str(error)).strip()[:200]
        raise ConfigError(
            f"ONNX Runtime cannot {action} the model: {reason}",
            "does the model run in ONNX Runtime with these samples?",
        ) from error
    finally:
        logging.disable(before)


def quantize(
    model: onnx.ModelProto,
    samples: Sequence[Sample],
    activations: Activations = "int8",
    calibration: str = "minmax",
    least_db: float = 0.0,
) -> onnx.ModelProto:
    """Quantise a float model.

    Args:
        samples: typical inputs, for the ranges of tensors.
        activations: ``int16`` for 16x8: more exact, still with int8 weights.
        calibration: method for the range of a tensor: one of :data:`CALIBRATIONS`.
        least_db: tensors whose signal-to-noise ratio in 8 bits is lower get 16 bits.
    """
    from onnxruntime import quantization

    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        raise ConfigError("the model is quantised already", "give the float model")
    prepared = _prepare(model, 21 if least_db else _OPSETS[activations])
    if not any(node.op_type in _LAYERS for node in prepared.graph.node):
        raise ConfigError(f"the model has no layer with weights: none of {', '.join(_LAYERS)}")
    operators = [*quantization.registry.QLinearOpsRegistry, *quantization.registry.QDQRegistry, *_MORE]
    ranges, means, wide = _calibrate(prepared, samples, calibration, least_db)
    types = {"int8": quantization.QuantType.QInt8, "int16": quantization.QuantType.QInt16}
    overrides: dict[str, list[dict[str, Any]]] = {}
    if activations == "int8":
        overrides |= {name: [{"quant_type": types["int16"], "symmetric": True}] for name in wide}
        softmaxes = [node.output[0] for node in prepared.graph.node if node.op_type == "Softmax"]
        overrides |= {name: [_SOFTMAX] for name in softmaxes if name not in wide}
    method = quantization.CalibrationMethod.MinMax
    quantizer = quantization.QDQQuantizer(
        prepared,
        True,
        False,
        types["int8"],
        types[activations],
        quantization.TensorsData(method, ranges),
        [],
        [],
        operators,
        {"ActivationSymmetric": activations == "int16", "TensorQuantOverrides": overrides},
    )
    with _named_errors("quantise"):
        quantizer.quantize_model()
        quantizer.model.topological_sort()
    quantised: onnx.ModelProto = quantizer.model.model
    quantised.producer_name, quantised.producer_version = "utvm", ""
    # An invalid model is refused here, not by the reader of the file.
    onnx.checker.check_model(quantised)
    few = samples[:: -(-len(samples) // _FEW)]
    real = model_outputs(prepared, few)
    candidates = (quantised, _correct_biases(prepared, quantised, means))
    return min(candidates, key=lambda candidate: _error(model_outputs(candidate, few), real))


def _error(results: Sequence[Sample], real: Sequence[Sample]) -> float:
    pairs = [pair for sample in zip(results, real, strict=True) for pair in zip(*sample, strict=True)]
    return sum(float(np.sum((a.astype(np.float64) - b) ** 2)) for a, b in pairs if a.dtype.kind == "f")


def _correct_biases(model: onnx.ModelProto, quantised: onnx.ModelProto, means: Mapping[str, Array]) -> onnx.ModelProto:
    """Subtract from biases what rounding the weights adds to the mean of a layer's output.

    A layer is linear: the mean of its error is its output for the mean of its input and the error of its weights.
    """
    corrected = onnx.ModelProto()
    corrected.CopyFrom(quantised)
    graph, biases, sources = onnx.GraphProto(name="errors"), [], set()
    real, stored = ({item.name: item for item in owner.graph.initializer} for owner in (model, corrected))
    constants = {node.output[0]: node for node in quantised.graph.node if node.input and node.input[0] in stored}
    for node in quantised.graph.node:
        source, *rest = [name.removesuffix("_DequantizeLinear_Output") for name in node.input] or [""]
        known = len(rest) == 2 and source in means and {*node.input[1:]} <= constants.keys()
        if known and node.op_type in _LAYERS:
            weights, error = constants.pop(node.input[1]), f"error of {rest[0]}"
            graph.initializer.extend([*(stored[name] for name in weights.input), real[rest[0]]])
            graph.node.extend([weights, onnx.helper.make_node("Sub", [node.input[1], rest[0]], [error]), node])
            graph.node[-1].input[:] = [f"mean of {source}", error]
            graph.output.add(name=node.output[0])
            sources.add(source)
            biases.append(constants[node.input[2]].input[:2])
    if not biases:
        return corrected
    graph.initializer.extend(onnx.numpy_helper.from_array(means[name], f"mean of {name}") for name in sources)
    copy = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    for names, error in zip(biases, runtime(copy).run(None, {}), strict=True):
        bias, scale = (stored[name] for name in names)
        steps = np.round(error.mean(axis=(0, *range(2, error.ndim))) / onnx.numpy_helper.to_array(scale))
        values = onnx.numpy_helper.to_array(bias) - steps.astype(np.int32)
        bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))
    return corrected


def _prepare(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Fold normalisations and constants, and convert to an operator set with the quantised types."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, 8)
    stored = {constant.name for constant in copy.graph.initializer}
    for value in [value for value in copy.graph.input if value.name in stored]:
        copy.graph.input.remove(value)  # Before version 4, constants had to be inputs; those are not folded.
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "folded.onnx")
        with _named_errors("fold"):
            runtime(copy, file)
        copy = onnx.load(file)
    rows = {node.input[2] for node in copy.graph.node if node.op_type == "Gemm" and len(node.input) > 2}
    for constant in copy.graph.initializer:
        if constant.name in rows and len(constant.dims) == 2 and constant.dims[0] == 1:
            constant.dims.pop(0)  # ONNX Runtime's quantiser fails on a bias of two dimensions.
    used = {node.domain for node in copy.graph.node}
    version = next((entry.version for entry in copy.opset_import if not entry.domain), opset)
    if version < opset:
        with ConfigError.on(
            Exception,  # onnx raises many kinds of errors.
            f"the model of operator set {version} cannot be converted to {opset}, which is needed",
            "export it with that operator set",
        ):
            copy = onnx.version_converter.convert_version(copy, opset)
    imports = [entry for entry in copy.opset_import if entry.domain in used or not entry.domain]
    del copy.opset_import[:]
    copy.opset_import.extend(imports)
    copy.ir_version = max(copy.ir_version, 10 if opset >= 21 else 8)
    return onnx.shape_inference.infer_shapes(copy)


def _calibrate(
    model: onnx.ModelProto, samples: Sequence[Sample], method: str, least_db: float
) -> tuple[dict[str, tuple[Any, Any]], dict[str, Array], list[str]]:
    """Return the range of each float tensor, means of layers' inputs, tensors below ``least_db`` in 8 bits."""
    names = [*input_names(model), *(name for node in model.graph.node for name in node.output if name)]
    ends: dict[str, tuple[float, float]] = {}
    means: dict[str, Array] = {}
    sources = {node.input[0] for node in model.graph.node if node.op_type in _LAYERS}
    for values in _values(model, names, samples):
        for name in sources & values.keys():
            means[name] = means.get(name, 0) + values[name] / np.float32(len(samples))
        for name, array in _finite(values).items():
            low, high = ends.get(name, (0.0, 0.0))
            ends[name] = min(low, float(array.min(initial=low))), max(high, float(array.max(initial=high)))
    if method in _BINS:
        ends = _ranges_by_runtime(method, ends, _values(model, list(ends), samples))
    wide: list[str] = []
    if method == "mse" or least_db:
        counts = {name: np.zeros(2048, np.int64) for name in ends}
        bounds = {name: max(-low, high) or 1.0 for name, (low, high) in ends.items()}
        for values in _values(model, list(ends), samples):
            for name, array in values.items():
                counts[name] += np.histogram(array, counts[name].size, (-bounds[name], bounds[name]))[0]
        for name, count in counts.items():
            edges = np.linspace(-bounds[name], bounds[name], count.size + 1)
            centres = (edges[1:] + edges[:-1]) / 2
            if method == "mse":
                ends[name] = _least_square(count, centres, *ends[name])
            noise = _noise(count, centres, *ends[name])
            if 10 * math.log10(max(float(count @ centres**2), 1e-30) / max(noise, 1e-30)) < least_db:
                wide.append(name)
    return {name: (np.float32(low), np.float32(high)) for name, (low, high) in ends.items()}, means, wide


def _finite(values: Mapping[str, Array]) -> dict[str, Array]:
    floats = ((name, array, np.isfinite(array)) for name, array in values.items() if array.dtype.kind == "f")
    return {name: array if finite.all() else array[finite] for name, array, finite in floats}


def _ranges_by_runtime(
    method: str, ends: Mapping[str, tuple[float, float]], samples: Iterator[dict[str, Array]]
) -> dict[str, tuple[float, float]]:
    """Ranges by ONNX Runtime's calibration. It gets the extreme values first, since they determine its bins."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    collector = HistogramCollector(method, False, _BINS[method], 128, _PERCENT, "same")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        collector.collect({name: np.array(pair, np.float32) for name, pair in ends.items()})
        for histogram, *_ in collector.histogram_dict.values():
            histogram[:] = 0
        for values in samples:
            collector.collect(_finite(values))
        found = collector.compute_collection_result()
    return {name: (min(0.0, float(row[0])), max(0.0, float(row[1]))) for name, row in found.items()}


def _noise(count: Array, centres: Array, low: float, high: float) -> float:
    """Sum of square errors of a histogram's values after clipping to a range and rounding to 8 bits."""
    outside = centres - np.clip(centres, low, high)
    return float(count @ np.where(outside == 0, ((high - low) / 255) ** 2 / 12, outside**2))


def _least_square(count: Array, centres: Array, low: float, high: float) -> tuple[float, float]:
    for _ in range(2):
        low = min((low * part for part in _PARTS), key=lambda end: _noise(count, centres, end, high))
        high = min((high * part for part in _PARTS), key=lambda end: _noise(count, centres, low, end))
    return low, high


_PARTS = np.linspace(1, 0.3, 36)
_BINS = {"entropy": 128, "percentile": 2048}  # ONNX Runtime's own numbers
_PERCENT = 99.999
_FEW = 4  # Samples by which a correction is judged.
CALIBRATIONS = ("minmax", *_BINS, "mse")
