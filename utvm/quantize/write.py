# SPDX-License-Identifier: Apache-2.0
"""Writes a float model in QDQ form: between two operators a tensor is made integers, and real numbers again.

Weights are symmetric with a scale for each output channel, biases int32 with the product of the scales, and
activations int8 with a zero point, or int16 without one, as TensorFlow Lite's specification has it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from utvm.errors import ConfigError
from utvm.quantize.observe import Range, Sample, ranges

_Floats = npt.NDArray[np.floating[Any]]


def prepared(model: onnx.ModelProto, opset: int, ranks: dict[str, int]) -> onnx.ModelProto:
    """Return a model of at least an operator set, with batch normalisations and biases in the layers before them.

    Args:
        ranks: dimensions of each tensor.
    """
    found = next((each.version for each in model.opset_import if not each.domain), 0)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if found < opset:
        try:
            copy = onnx.version_converter.convert_version(copy, opset)
        except Exception as error:  # whatever onnx raises
            raise ConfigError(
                f"the model is of operator set {found}, and cannot be written in {opset}: {error}",
                "export it with that operator set",
            ) from error
    copy.ir_version = max(copy.ir_version, 10 if opset >= 21 else 8)
    _Folding(copy, ranks).fold()
    return copy


class _Folding:
    """Goes through a graph, and changes it in place."""

    def __init__(self, model: onnx.ModelProto, ranks: dict[str, int]) -> None:
        self._graph = model.graph
        self._ranks = ranks
        self.constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
        self._uses = Counter(name for node in model.graph.node for name in node.input)
        self._uses.update(each.name for each in model.graph.output)

    def fold(self) -> None:
        makers: dict[str, onnx.NodeProto] = {}
        for node in list(self._graph.node):
            layer = next((makers[name] for name in node.input if name in makers), None)
            if layer is not None and self._uses[layer.output[0]] == 1 and self._absorbed(layer, node):
                layer.output[0] = node.output[0]
                self._graph.node.remove(node)
                node = layer  # noqa: PLW2901  what makes it now
            for name in node.output:
                makers[name] = node

    def _absorbed(self, layer: onnx.NodeProto, node: onnx.NodeProto) -> bool:
        """Make a node part of the layer that it follows, if it can be."""
        if layer.op_type == "Conv" and node.op_type == "BatchNormalization":
            return self._absorb_normalization(layer, node)
        if layer.op_type == "MatMul" and node.op_type == "Add":
            return self._absorb_bias(layer, node)
        return False

    def _absorb_normalization(self, layer: onnx.NodeProto, node: onnx.NodeProto) -> bool:
        names = [*layer.input[1:], *node.input[1:]]
        if not all(name in self.constants for name in names) or len(node.output) > 1:
            return False
        scale, shift, mean, variance = (self.constants[name] for name in node.input[1:5])
        epsilon = next((each.f for each in node.attribute if each.name == "epsilon"), 1e-5)
        factor = scale / np.sqrt(variance + epsilon)
        weights = self.constants[layer.input[1]]
        bias = self.constants[layer.input[2]] if len(layer.input) > 2 else np.zeros(len(weights), weights.dtype)
        made = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
        inputs = [layer.input[0], self._constant(f"{layer.output[0]}_weights", made)]
        inputs.append(self._constant(f"{layer.output[0]}_bias", shift + (bias - mean) * factor))
        layer.ClearField("input")
        layer.input.extend(inputs)
        return True

    def _absorb_bias(self, layer: onnx.NodeProto, node: onnx.NodeProto) -> bool:
        bias = next((name for name in node.input if name != layer.output[0]), "")
        if bias not in self.constants or layer.input[1] not in self.constants:
            return False
        if self.constants[bias].ndim != 1 or self._ranks.get(layer.input[0]) != 2:
            return False
        made = helper.make_node("Gemm", [*layer.input, bias], list(layer.output), name=layer.name)
        layer.CopyFrom(made)
        return True

    def _constant(self, name: str, values: _Floats) -> str:
        array = values.astype(np.float32)
        self.constants[name] = array
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name


Activations = Literal["int8", "int16"]

# The first ones in which ONNX's reference implementation quantises so.
_OPSETS: Mapping[Activations, int] = {"int8": 19, "int16": 21}
# Where the weights of a layer are, and along which dimension its output channels lie.
_LAYERS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}
# They move numbers, and make none: what comes out has the scale of what went in.
_MOVES = {
    "AveragePool", "DepthToSpace", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Squeeze",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_COMPUTES = {
    "Add", "Clip", "Concat", "Elu", "GlobalAveragePool", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Pad",
    "ReduceMean", "Relu", "Resize", "Sigmoid", "Softmax", "Sub", "Tanh",
}  # fmt: skip
# Their other inputs are no activations: shapes, bounds, axes.
_ONE_OPERAND = {"Clip", "Pad", "ReduceMean", "Resize", *_MOVES}
# The activation that such an operator may have after it is computed with it.
_FUSED = {"Relu", "Clip"}
# As TensorFlow Lite has them, whatever was seen.
_KNOWN = {"Sigmoid": Range(0.0, 255 / 256), "Softmax": Range(0.0, 255 / 256), "Tanh": Range(-1.0, 127 / 128)}


@dataclass(frozen=True)
class _Scaling:
    scale: float
    zero: int


def quantize(
    model: onnx.ModelProto, samples: Sequence[Sample], activations: Activations = "int8"
) -> onnx.ModelProto:
    """Return a model of real numbers as one of integers.

    Args:
        samples: what it is usually given; the ranges of its tensors are taken from them.
        activations: ``int16`` for 16x8: more exact, with weights of int8 as well.
    """
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        raise ConfigError("the model is quantised already", "give the model of real numbers that it was made from")
    seen = ranges(model, samples)
    made = prepared(model, _OPSETS[activations], _ranks(model, samples))
    if not any(node.op_type in _LAYERS for node in made.graph.node):
        raise ConfigError(f"the model has no layer with weights: none of {', '.join(_LAYERS)}")
    _Writer(made, seen, activations).write()
    # Refused here, and not by whoever reads the file.
    onnx.checker.check_model(made)
    return made


def _ranks(model: onnx.ModelProto, samples: Sequence[Sample]) -> dict[str, int]:
    told = onnx.shape_inference.infer_shapes(model).graph
    found = {each.name: len(each.type.tensor_type.shape.dim) for each in (*told.value_info, *told.input)}
    constants = {each.name for each in model.graph.initializer}
    given = [each.name for each in model.graph.input if each.name not in constants]
    return found | {name: array.ndim for name, array in zip(given, samples[0], strict=True)}


class _Writer:
    """Writes the nodes of a graph anew, in place."""

    def __init__(self, model: onnx.ModelProto, seen: Mapping[str, Range], activations: Activations) -> None:
        self._graph = model.graph
        self._seen = seen
        self._activations = activations
        self._constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
        self._uses = Counter(name for node in model.graph.node for name in node.input)
        self._uses.update(each.name for each in model.graph.output)
        self._users = {name: node for node in model.graph.node for name in node.input}
        self._scalings = self._choose()
        self._nodes: list[onnx.NodeProto] = []
        self._called: dict[str, str] = {}

    def write(self) -> None:
        for given in self._graph.input:
            if given.name in self._scalings:
                self._called[given.name] = f"{given.name}_dequantized"
                self._round_trip(given.name, self._called[given.name])
        for node in self._graph.node:
            self._write(node)
        used = {name for node in self._nodes for name in node.input}
        kept = [each for each in self._graph.initializer if each.name in used]
        del self._graph.node[:], self._graph.initializer[:], self._graph.value_info[:]
        self._graph.node.extend(self._nodes)
        self._graph.initializer.extend(kept)

    def _choose(self) -> dict[str, _Scaling]:
        """Return the scaling of each activation that becomes integers."""
        chosen: dict[str, _Scaling] = {}
        for node in self._graph.node:
            if not self._is_quantised(node):
                continue
            for name in self._operands(node):
                if name not in self._constants and name not in chosen:
                    chosen[name] = self._scaling(self._seen[name])
            output = node.output[0]
            if node.op_type in _MOVES:
                chosen[output] = chosen[node.input[0]]
            elif not self._is_fused(node):
                chosen[output] = self._scaling(_KNOWN.get(node.op_type, self._seen[output]))
        return chosen

    def _is_quantised(self, node: onnx.NodeProto) -> bool:
        if node.op_type in _LAYERS:
            plain = all(each.f == 1.0 for each in node.attribute if each.name in ("alpha", "beta"))
            return plain and node.input[1] in self._constants and self._is_real(node.input[0])
        if node.op_type in _MOVES or node.op_type in _COMPUTES:
            return all(self._is_real(name) for name in self._operands(node)) and self._is_real(node.output[0])
        return False

    def _is_real(self, name: str) -> bool:
        constant = self._constants.get(name)
        return name in self._seen if constant is None else constant.dtype.kind == "f"

    def _operands(self, node: onnx.NodeProto) -> list[str]:
        if node.op_type in _LAYERS or node.op_type in _ONE_OPERAND:
            return [node.input[0]]
        return [name for name in node.input if name]

    def _is_fused(self, node: onnx.NodeProto) -> bool:
        """Say whether what follows is computed with a node, so that nothing is rounded between them."""
        output = node.output[0]
        after = self._users.get(output)
        return (
            after is not None
            and self._uses[output] == 1
            and after.op_type in _FUSED
            and (node.op_type in _LAYERS or node.op_type in ("Add", "Sub", "Mul"))
        )

    def _scaling(self, seen: Range) -> _Scaling:
        low, high = min(seen.low, 0.0), max(seen.high, 0.0)
        if self._activations == "int16":
            return _Scaling(float(np.float32(max(-low, high) / 32767)) or 1.0, 0)
        scale = float(np.float32((high - low) / 255)) or 1.0
        return _Scaling(scale, round(-128 - low / scale))

    def _write(self, node: onnx.NodeProto) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for place, name in enumerate(node.input):
            copy.input[place] = self._called.get(name, name)
        if self._is_quantised(node):
            self._write_constants(node, copy)
        output = node.output[0]
        if output in self._scalings:
            # Whoever reads the tensor reads it rounded, under its own name.
            copy.output[0] = f"{output}_real"
            self._nodes.append(copy)
            self._round_trip(copy.output[0], output)
        else:
            self._nodes.append(copy)

    def _write_constants(self, node: onnx.NodeProto, copy: onnx.NodeProto) -> None:
        if node.op_type not in _LAYERS:
            for place, name in enumerate(node.input):
                if name in self._constants and name in self._operands(node):
                    copy.input[place] = self._constant(name)
            return
        weights, axis = self._constants[node.input[1]], self._axis(node)
        others = tuple(each for each in range(weights.ndim) if each != axis)
        scales = np.asarray(np.abs(weights).max(axis=others) / 127, np.float32)
        scales[scales == 0] = 1.0
        shape = [-1 if each == axis else 1 for each in range(weights.ndim)]
        rounded = np.clip(np.rint(weights / scales.reshape(shape)), -127, 127).astype(np.int8)
        copy.input[1] = self._dequantized(node.input[1], rounded, scales, axis)
        if len(node.input) > 2 and node.input[2] in self._constants:
            steps = np.asarray(np.float64(self._scalings[node.input[0]].scale) * scales, np.float32)
            bias = np.broadcast_to(self._constants[node.input[2]].ravel(), steps.shape)
            whole = np.clip(np.rint(bias / steps.astype(np.float64)), -(2**31), 2**31 - 1).astype(np.int32)
            copy.input[2] = self._dequantized(node.input[2], whole, steps, 0)

    def _axis(self, node: onnx.NodeProto) -> int:
        rank = self._constants[node.input[1]].ndim
        if node.op_type == "Gemm" and any(each.name == "transB" and each.i for each in node.attribute):
            return 0
        return int(_LAYERS[node.op_type] % rank)

    def _constant(self, name: str) -> str:
        """Return what an operand that does not change is called, rounded to the type of activations."""
        values = self._constants[name]
        scaling = self._scaling(Range(float(values.min()), float(values.max())))
        limits = np.iinfo(self._activations)
        whole = np.clip(np.rint(values / scaling.scale) + scaling.zero, limits.min, limits.max)
        return self._dequantized(
            name, whole.astype(self._activations), np.float32(scaling.scale), None, scaling.zero
        )

    def _dequantized(
        self, name: str, whole: npt.NDArray[Any], scales: Any, axis: int | None, zero: int = 0
    ) -> str:
        """Add integers and what makes real numbers of them; returns what those are called."""
        made = f"{name}_dequantized"
        if made not in {output for node in self._nodes for output in node.output}:
            inputs = [
                self._initializer(f"{name}_quantized", whole),
                self._initializer(f"{name}_scale", np.asarray(scales, np.float32)),
                self._initializer(f"{name}_zero", np.full(np.shape(scales), zero, whole.dtype)),
            ]
            attributes = {} if axis is None else {"axis": axis}
            self._nodes.append(helper.make_node("DequantizeLinear", inputs, [made], **attributes))
        return made

    def _initializer(self, name: str, values: npt.NDArray[Any]) -> str:
        self._graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def _round_trip(self, source: str, target: str) -> None:
        """Add what makes integers of a tensor, and real numbers of those."""
        known = target if target in self._scalings else source
        scaling = self._scalings[known]
        numbers = [
            self._initializer(f"{known}_scale", np.asarray(scaling.scale, np.float32)),
            self._initializer(f"{known}_zero", np.asarray(scaling.zero, self._activations)),
        ]
        whole = f"{known}_quantized"
        self._nodes.append(helper.make_node("QuantizeLinear", [source, *numbers], [whole]))
        self._nodes.append(helper.make_node("DequantizeLinear", [whole, *numbers], [target]))
