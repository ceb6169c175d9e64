# SPDX-License-Identifier: Apache-2.0
"""Post-training quantisation of ONNX models in QDQ form, with scales from samples.

:func:`quantize` follows TensorFlow Lite's int8 and 16x8 specifications: weights are symmetric with a scale for
each output channel, biases int32 with the product of the scales, activations int8 with a zero point, or int16
without one. Batch normalisations and biases are folded into the layers before them first, which reduces the error.
:func:`costs` gives the error of each tensor. ONNX's reference implementation computes the values.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from utvm.errors import ConfigError

Sample = Sequence[npt.NDArray[Any]]  # An array for each input, in the model's order.


@dataclass(frozen=True)
class Range:
    """Range of a tensor's values, including 0."""

    low: float
    high: float


@dataclass(frozen=True)
class Cost:
    """Quantisation error of a tensor; ``snr_db`` is infinite if there is none."""

    tensor: str
    operator: str
    snr_db: float


def model_outputs(model: onnx.ModelProto, samples: Sequence[Sample]) -> list[list[npt.NDArray[Any]]]:
    """Outputs of a model for each sample."""
    names = [output.name for output in model.graph.output]
    return [[values[name] for name in names] for values in _values(model, names, samples)]


def ranges(model: onnx.ModelProto, samples: Sequence[Sample]) -> dict[str, Range]:
    result: dict[str, Range] = {}
    for values in _values(model, _variable_names(model), samples):
        for name, array in values.items():
            if array.dtype.kind == "f" and array.size:
                before = result.get(name, Range(0.0, 0.0))
                low, high = float(np.min(array)), float(np.max(array))
                result[name] = Range(min(before.low, low), max(before.high, high))
    return result


def costs(model: onnx.ModelProto, quantised: onnx.ModelProto, samples: Sequence[Sample]) -> list[Cost]:
    """Quantisation error of each tensor that both models compute, in execution order."""
    operators = {name: node.op_type for node in model.graph.node for name in node.output}
    theirs = set(_variable_names(quantised))
    names = [name for name in _variable_names(model) if name in operators and name in theirs]
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for real, lossy in zip(_values(model, names, samples), _values(quantised, names, samples), strict=True):
        for name in names:
            if real[name].dtype.kind == "f":
                reference = np.asarray(real[name], np.float64)
                signal[name] += float(np.sum(reference**2))
                noise[name] += float(np.sum((reference - lossy[name]) ** 2))
    return [
        Cost(name, operators[name], 10 * math.log10(signal[name] / noise[name]) if noise[name] else math.inf)
        for name in names
        if signal[name] > 0
    ]


def input_names(model: onnx.ModelProto) -> list[str]:
    constants = {constant.name for constant in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in constants]


def _variable_names(model: onnx.ModelProto) -> list[str]:
    return [*input_names(model), *(name for node in model.graph.node for name in node.output if name)]


def _values(
    model: onnx.ModelProto, names: Sequence[str], samples: Sequence[Sample]
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    from onnx.reference import ReferenceEvaluator

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs = input_names(model)
    outputs = [name for name in names if name not in inputs]
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    evaluator: Any = ReferenceEvaluator(copy)
    for sample in samples:
        feed = dict(zip(inputs, sample, strict=True))
        yield feed | dict(zip(outputs, map(np.asarray, evaluator.run(None, feed)), strict=True))


Activations = Literal["int8", "int16"]

# The first ones in which ONNX's reference implementation quantises these types.
_OPSETS: Mapping[Activations, int] = {"int8": 19, "int16": 21}
# The dimension of the output channels in a layer's weights.
_LAYERS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}
# They only move numbers: the result has the scale of the operand.
_MOVES = {
    "AveragePool", "DepthToSpace", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Squeeze",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_COMPUTES = {
    "Add", "Clip", "Concat", "Elu", "GlobalAveragePool", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Pad",
    "ReduceMean", "Relu", "Resize", "Sigmoid", "Softmax", "Sub", "Tanh",
}  # fmt: skip
# Their other inputs are not activations, but shapes, bounds or axes.
_ONE_OPERAND = {"Clip", "Pad", "ReduceMean", "Resize", *_MOVES}
# Activation functions that are computed together with the operator before them.
_FUSED = {"Relu", "Clip"}
# Ranges fixed by TensorFlow Lite.
_FIXED = {"Sigmoid": Range(0.0, 255 / 256), "Softmax": Range(0.0, 255 / 256), "Tanh": Range(-1.0, 127 / 128)}


@dataclass(frozen=True)
class _Scaling:
    scale: float
    zero: int


def quantize(
    model: onnx.ModelProto, samples: Sequence[Sample], activations: Activations = "int8"
) -> onnx.ModelProto:
    """Quantise a float model.

    Args:
        samples: typical inputs, for the ranges of tensors.
        activations: ``int16`` for 16x8: more exact, still with int8 weights.
    """
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        raise ConfigError("the model is quantised already", "give the float model")
    observed = ranges(model, samples)
    quantised = _fold(_convert(model, _OPSETS[activations]), _ranks(model, samples))
    if not any(node.op_type in _LAYERS for node in quantised.graph.node):
        raise ConfigError(f"the model has no layer with weights: none of {', '.join(_LAYERS)}")
    _Writer(quantised, observed, activations).write()
    # An invalid model is refused here, not by the reader of the file.
    onnx.checker.check_model(quantised)
    return quantised


def _ranks(model: onnx.ModelProto, samples: Sequence[Sample]) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.value_info, *graph.input)}
    return ranks | {name: array.ndim for name, array in zip(input_names(model), samples[0], strict=True)}


def _convert(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    version = next((entry.version for entry in model.opset_import if not entry.domain), 0)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if version < opset:
        try:
            copy = onnx.version_converter.convert_version(copy, opset)
        except Exception as error:  # whatever onnx raises
            raise ConfigError(
                f"cannot convert the model from operator set {version} to {opset}: {error}",
                "export it with that operator set",
            ) from error
    copy.ir_version = max(copy.ir_version, 10 if opset >= 21 else 8)
    return copy


def _fold(model: onnx.ModelProto, ranks: dict[str, int]) -> onnx.ModelProto:
    graph = model.graph
    constants = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    uses = Counter(name for node in graph.node for name in node.input)
    uses.update(output.name for output in graph.output)
    makers: dict[str, onnx.NodeProto] = {}
    for node in list(graph.node):
        layer = next((makers[name] for name in node.input if name in makers), None)
        if layer is not None and uses[layer.output[0]] == 1:
            if layer.op_type == "Conv" and node.op_type == "BatchNormalization":
                folded = _fold_normalization(graph, constants, layer, node)
            elif layer.op_type == "MatMul" and node.op_type == "Add":
                folded = _fold_bias(constants, ranks, layer, node)
            else:
                folded = False
            if folded:
                layer.output[0] = node.output[0]
                graph.node.remove(node)
                node = layer  # noqa: PLW2901  the maker of these outputs now
        for name in node.output:
            makers[name] = node
    return model


def _fold_normalization(
    graph: onnx.GraphProto, constants: dict[str, npt.NDArray[Any]], layer: onnx.NodeProto, node: onnx.NodeProto
) -> bool:
    names = [*layer.input[1:], *node.input[1:]]
    if not all(name in constants for name in names) or len(node.output) > 1:
        return False
    scale, shift, mean, variance = (constants[name] for name in node.input[1:5])
    epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
    factor = scale / np.sqrt(variance + epsilon)
    weights = constants[layer.input[1]]
    bias = constants[layer.input[2]] if len(layer.input) > 2 else np.zeros(len(weights), weights.dtype)
    folded = {
        f"{layer.output[0]}_weights": weights * factor.reshape(-1, *[1] * (weights.ndim - 1)),
        f"{layer.output[0]}_bias": shift + (bias - mean) * factor,
    }
    for name, values in folded.items():
        constants[name] = values.astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(constants[name], name))
    inputs = [layer.input[0], *folded]
    layer.ClearField("input")
    layer.input.extend(inputs)
    return True


def _fold_bias(
    constants: dict[str, npt.NDArray[Any]], ranks: dict[str, int], layer: onnx.NodeProto, node: onnx.NodeProto
) -> bool:
    bias = next((name for name in node.input if name != layer.output[0]), "")
    if bias not in constants or layer.input[1] not in constants:
        return False
    if constants[bias].ndim != 1 or ranks.get(layer.input[0]) != 2:
        return False
    layer.CopyFrom(helper.make_node("Gemm", [*layer.input, bias], list(layer.output), name=layer.name))
    return True


class _Writer:
    def __init__(self, model: onnx.ModelProto, observed: Mapping[str, Range], activations: Activations) -> None:
        self._graph = model.graph
        self._ranges = observed
        self._activations = activations
        self._constants = {constant.name: numpy_helper.to_array(constant) for constant in model.graph.initializer}
        self._uses = Counter(name for node in model.graph.node for name in node.input)
        self._uses.update(output.name for output in model.graph.output)
        self._users = {name: node for node in model.graph.node for name in node.input}
        self._scalings = self._choose_scalings()
        self._nodes: list[onnx.NodeProto] = []
        self._renamed: dict[str, str] = {}

    def write(self) -> None:
        for value in self._graph.input:
            if value.name in self._scalings:
                self._renamed[value.name] = f"{value.name}_dequantized"
                self._round_trip(value.name, self._renamed[value.name])
        for node in self._graph.node:
            self._write(node)
        used = {name for node in self._nodes for name in node.input}
        constants = [constant for constant in self._graph.initializer if constant.name in used]
        del self._graph.node[:], self._graph.initializer[:], self._graph.value_info[:]
        self._graph.node.extend(self._nodes)
        self._graph.initializer.extend(constants)

    def _choose_scalings(self) -> dict[str, _Scaling]:
        scalings: dict[str, _Scaling] = {}
        for node in filter(self._is_quantised, self._graph.node):
            for name in self._operands(node):
                if name not in self._constants and name not in scalings:
                    scalings[name] = self._scaling(self._ranges[name])
            output = node.output[0]
            if node.op_type in _MOVES:
                scalings[output] = scalings[node.input[0]]
            elif not self._is_fused(node):
                scalings[output] = self._scaling(_FIXED.get(node.op_type, self._ranges[output]))
        return scalings

    def _is_quantised(self, node: onnx.NodeProto) -> bool:
        if node.op_type in _LAYERS:
            factors = (attribute for attribute in node.attribute if attribute.name in ("alpha", "beta"))
            plain = all(factor.f == 1.0 for factor in factors)
            return plain and node.input[1] in self._constants and self._is_real(node.input[0])
        if node.op_type in _MOVES or node.op_type in _COMPUTES:
            return all(self._is_real(name) for name in self._operands(node)) and self._is_real(node.output[0])
        return False

    def _is_real(self, name: str) -> bool:
        constant = self._constants.get(name)
        return name in self._ranges if constant is None else constant.dtype.kind == "f"

    def _operands(self, node: onnx.NodeProto) -> list[str]:
        if node.op_type in _LAYERS or node.op_type in _ONE_OPERAND:
            return [node.input[0]]
        return [name for name in node.input if name]

    def _is_fused(self, node: onnx.NodeProto) -> bool:
        """True if the next node is computed together with this one, without rounding between them."""
        output = node.output[0]
        after = self._users.get(output)
        return (
            after is not None
            and self._uses[output] == 1
            and after.op_type in _FUSED
            and (node.op_type in _LAYERS or node.op_type in ("Add", "Sub", "Mul"))
        )

    def _scaling(self, values: Range) -> _Scaling:
        low, high = min(values.low, 0.0), max(values.high, 0.0)
        if self._activations == "int16":
            return _Scaling(float(np.float32(max(-low, high) / 32767)) or 1.0, 0)
        scale = float(np.float32((high - low) / 255)) or 1.0
        return _Scaling(scale, round(-128 - low / scale))

    def _write(self, node: onnx.NodeProto) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for place, name in enumerate(node.input):
            copy.input[place] = self._renamed.get(name, name)
        if self._is_quantised(node):
            self._write_constants(node, copy)
        self._nodes.append(copy)
        output = node.output[0]
        if output in self._scalings:
            # Readers of the tensor get it rounded, under its own name.
            copy.output[0] = f"{output}_real"
            self._round_trip(copy.output[0], output)

    def _write_constants(self, node: onnx.NodeProto, copy: onnx.NodeProto) -> None:
        if node.op_type not in _LAYERS:
            for place, name in enumerate(node.input):
                if name in self._constants and name in self._operands(node):
                    copy.input[place] = self._quantise_constant(name)
            return
        weights, axis = self._constants[node.input[1]], self._axis(node)
        others = tuple(dimension for dimension in range(weights.ndim) if dimension != axis)
        scales = np.asarray(np.abs(weights).max(axis=others) / 127, np.float32)
        scales[scales == 0] = 1.0
        shape = [-1 if dimension == axis else 1 for dimension in range(weights.ndim)]
        rounded = np.clip(np.rint(weights / scales.reshape(shape)), -127, 127).astype(np.int8)
        copy.input[1] = self._dequantize(node.input[1], rounded, scales, axis)
        if len(node.input) > 2 and node.input[2] in self._constants:
            steps = np.asarray(np.float64(self._scalings[node.input[0]].scale) * scales, np.float32)
            bias = np.broadcast_to(self._constants[node.input[2]].ravel(), steps.shape)
            whole = np.clip(np.rint(bias / steps.astype(np.float64)), -(2**31), 2**31 - 1).astype(np.int32)
            copy.input[2] = self._dequantize(node.input[2], whole, steps, 0)

    def _axis(self, node: onnx.NodeProto) -> int:
        rank = self._constants[node.input[1]].ndim
        if node.op_type == "Gemm" and any(entry.name == "transB" and entry.i for entry in node.attribute):
            return 0
        return int(_LAYERS[node.op_type] % rank)

    def _quantise_constant(self, name: str) -> str:
        values = self._constants[name]
        scaling = self._scaling(Range(float(values.min()), float(values.max())))
        limits = np.iinfo(self._activations)
        whole = np.clip(np.rint(values / scaling.scale) + scaling.zero, limits.min, limits.max)
        scale = np.float32(scaling.scale)
        return self._dequantize(name, whole.astype(self._activations), scale, None, scaling.zero)

    def _dequantize(self, name: str, whole: npt.NDArray[Any], scales: Any, axis: int | None, zero: int = 0) -> str:
        output = f"{name}_dequantized"
        if output not in {known for node in self._nodes for known in node.output}:
            inputs = [
                self._initializer(f"{name}_quantized", whole),
                self._initializer(f"{name}_scale", np.asarray(scales, np.float32)),
                self._initializer(f"{name}_zero", np.full(np.shape(scales), zero, whole.dtype)),
            ]
            attributes = {} if axis is None else {"axis": axis}
            self._nodes.append(helper.make_node("DequantizeLinear", inputs, [output], **attributes))
        return output

    def _initializer(self, name: str, values: npt.NDArray[Any]) -> str:
        self._graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def _round_trip(self, source: str, target: str) -> None:
        known = target if target in self._scalings else source
        scaling = self._scalings[known]
        numbers = [
            self._initializer(f"{known}_scale", np.asarray(scaling.scale, np.float32)),
            self._initializer(f"{known}_zero", np.asarray(scaling.zero, self._activations)),
        ]
        whole = f"{known}_quantized"
        self._nodes.append(helper.make_node("QuantizeLinear", [source, *numbers], [whole]))
        self._nodes.append(helper.make_node("DequantizeLinear", [whole, *numbers], [target]))
