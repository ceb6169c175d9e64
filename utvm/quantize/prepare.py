# SPDX-License-Identifier: Apache-2.0
"""Writes a float model so that it loses less in integers: what is linear behind a layer becomes part of it."""

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from utvm.errors import ConfigError

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
