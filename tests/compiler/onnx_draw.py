# SPDX-License-Identifier: Apache-2.0
"""Random small ONNX models: operator set, numbers, constant operands, nodes."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
from onnx import helper, numpy_helper
from tflite_draw import Draw as Chance

Array = npt.NDArray[Any]
MICROSOFT = "com.microsoft"
OLDEST, NEWEST = 7, onnx.defs.onnx_opset_version()
_DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
_EDGES = (0.0, -0.0, 0.5, -1.5, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan)


def versions(operator: str) -> list[int]:
    """Operator-set versions in which the definition of an ONNX operator changed."""
    return _history().get(operator, [])


@functools.cache
def _history() -> dict[str, list[int]]:
    versions_by_name: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and not schema.deprecated:
            versions_by_name.setdefault(schema.name, []).append(schema.since_version)
    return {name: sorted(numbers) for name, numbers in versions_by_name.items()}


@dataclass
class Draw(Chance):
    """A random model under construction.

    Attributes:
        opset: version of the operator set.
        steps: allowed difference in steps of a quantised result: the library rounds as TensorFlow Lite does, which
            sometimes differs from ONNX.
        misread: ONNX's evaluator is known to differ from ONNX's text for this model.
    """

    opset: int
    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    input_values: dict[str, Array] = field(default_factory=dict)
    stored: dict[str, Array] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    steps: float = 0
    misread: bool = False
    count: int = 0

    def chance(self, one_of: int = 2) -> bool:
        """True with a probability of 1 in ``one_of``."""
        return self.integer(1, one_of) == 1

    def extents(self, low: int = 1, high: int = 4) -> tuple[int, ...]:
        """A shape with a random rank from low to high."""
        return self.shape(self.integer(low, high), 5)

    def dtype_for(self, operator: str, operand: int = 0, among: Sequence[str] = _DTYPES) -> str:
        """A valid element type of an operator's input; mostly float32 if that is valid."""
        schema = onnx.defs.get_schema(operator, self.opset, "")
        name = schema.inputs[min(operand, len(schema.inputs) - 1)].type_str
        allowed = next(
            (
                constraint.allowed_type_strs
                for constraint in schema.type_constraints
                if constraint.type_param_str == name
            ),
            [name],
        )
        named = {"tensor(float)": "float32", "tensor(double)": "float64"}
        kinds = [named.get(kind, kind[7:-1]) for kind in allowed]
        kinds = [kind for kind in among if kind in kinds]
        return "float32" if "float32" in kinds and self.chance() else str(self.pick(*kinds))

    def array(self, shape: Sequence[int], dtype: str = "float32", low: float = -50, high: float = 50) -> Array:
        """Random numbers: floats around zero, or integers from low to high."""
        shape = tuple(shape)
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        if dtype.startswith("float"):
            return self.random.normal(0, 2, shape).astype(dtype)
        limits = np.iinfo(dtype)
        return self.random.integers(max(int(low), limits.min), min(int(high), limits.max) + 1, shape).astype(dtype)

    def edged(self, array: Array) -> Array:
        """Replace some numbers with limits of their type: infinities, NaN, the largest and the smallest."""
        if array.dtype.kind == "f":
            edges = np.array(_EDGES, array.dtype)
        elif array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            edges = np.array([limits.min, limits.max, 0, 1], array.dtype)
        else:
            return array
        return np.where(self.random.random(array.shape) < 0.3, self.random.choice(edges, array.shape), array)

    def input(self, array: Array) -> str:
        """Add a model input with these values."""
        name = f"x{len(self.input_values)}"
        self.input_values[name] = np.asarray(array)
        return name

    def constant(self, array: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Add a constant: an initializer, or a Constant node."""
        name = f"c{len(self.stored)}_{len(self.nodes)}"
        content = np.asarray(array, dtype, order="C")
        if self.chance(6):
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(content)))
        else:
            self.stored[name] = content
        return name

    def either(self, array: Array, constant: int = 3) -> str:
        """Add numbers as an input, or sometimes as a constant."""
        return self.constant(array) if self.input_values and self.chance(constant) else self.input(array)

    def maybe(self, array: Array) -> str:
        """Add a constant, or omit the operand."""
        return self.constant(array) if self.chance() else ""

    def ints(self, *values: int) -> str:
        """Add a constant of shapes, axes or indices."""
        return self.constant(np.array(values, np.int64))

    def node(
        self, operator: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node and return the names of its outputs. Some omitted trailing operands are dropped."""
        names = list(inputs)
        while names and not names[-1] and self.chance():
            names.pop()
        self.count += 1
        output_names = [f"y{self.count}_{index}" for index in range(outputs)]
        present = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(operator, names, output_names, domain=domain, **present))
        return output_names

    def output(self, *names: str) -> None:
        """Add names to the model's outputs."""
        self.results.extend(names)

    def finish(self, name: str) -> onnx.ModelProto:
        """Build the model; its outputs have no types yet."""
        inputs = [
            helper.make_tensor_value_info(input_name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for input_name, array in self.input_values.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            name,
            inputs,
            [helper.make_empty_tensor_value_info(output_name) for output_name in dict.fromkeys(self.results)],
            [numpy_helper.from_array(array, stored_name) for stored_name, array in self.stored.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in self.nodes):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)
