# SPDX-License-Identifier: Apache-2.0
"""Drawing small ONNX models at random: their version, their numbers, which operands are constants, their nodes."""

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
_KEPT = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
_EDGES = (0.0, -0.0, 0.5, -1.5, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan)


def versions(operator: str) -> list[int]:
    """Return the versions of operator sets in which the definition of an operator of ONNX changed."""
    return _history().get(operator, [])


@functools.cache
def _history() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in onnx.defs.get_all_schemas_with_history():
        if not each.domain and not each.deprecated:
            found.setdefault(each.name, []).append(each.since_version)
    return {name: sorted(numbers) for name, numbers in found.items()}


@dataclass
class Draw(Chance):
    """A model that is being drawn.

    Attributes:
        opset: the version of the operator set that it is written in.
        steps: by how many steps of a quantised result an answer may be off: the library rounds as TensorFlow Lite
            does, which is not always as ONNX does.
        misread: whether ONNX's evaluator is known to compute something else than ONNX's text says.
    """

    opset: int
    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    given: dict[str, Array] = field(default_factory=dict)
    stored: dict[str, Array] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    steps: float = 0
    misread: bool = False
    count: int = 0

    def chance(self, one_of: int = 2) -> bool:
        """Return True once in so many times."""
        return self.integer(1, one_of) == 1

    def extents(self, low: int = 1, high: int = 4) -> tuple[int, ...]:
        """Return a shape of any rank from low to high."""
        return self.shape(self.integer(low, high), 5)

    def dtype_for(self, operator: str, operand: int = 0, among: Sequence[str] = _KEPT) -> str:
        """Return an element type that an operator may have there; mostly float32, where it may."""
        schema = onnx.defs.get_schema(operator, self.opset, "")
        name = schema.inputs[min(operand, len(schema.inputs) - 1)].type_str
        allowed = next(
            (each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == name), [name]
        )
        named = {"tensor(float)": "float32", "tensor(double)": "float64"}
        kinds = [named.get(each, each[7:-1]) for each in allowed]
        kinds = [each for each in among if each in kinds]
        return "float32" if "float32" in kinds and self.chance() else str(self.pick(*kinds))

    def array(self, shape: Sequence[int], dtype: str = "float32", low: float = -50, high: float = 50) -> Array:
        """Return numbers: real ones around zero, whole ones from low to high."""
        shape = tuple(shape)
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        if dtype.startswith("float"):
            return self.random.normal(0, 2, shape).astype(dtype)
        limits = np.iinfo(dtype)
        return self.random.integers(max(int(low), limits.min), min(int(high), limits.max) + 1, shape).astype(dtype)

    def edged(self, array: Array) -> Array:
        """Put the ends of a type among numbers: infinities, no numbers, the largest and the smallest."""
        if array.dtype.kind == "f":
            edges = np.array(_EDGES, array.dtype)
        elif array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            edges = np.array([limits.min, limits.max, 0, 1], array.dtype)
        else:
            return array
        return np.where(self.random.random(array.shape) < 0.3, self.random.choice(edges, array.shape), array)

    def input(self, array: Array) -> str:
        """Add an input of the model that is given these numbers."""
        name = f"x{len(self.given)}"
        self.given[name] = np.asarray(array)
        return name

    def constant(self, array: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Add a constant: stored, or a node's."""
        name = f"c{len(self.stored)}_{len(self.nodes)}"
        content = np.asarray(array, dtype, order="C")
        if self.chance(6):
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(content)))
        else:
            self.stored[name] = content
        return name

    def either(self, array: Array, constant: int = 3) -> str:
        """Add numbers as an input, or once in a few times as a constant."""
        return self.constant(array) if self.given and self.chance(constant) else self.input(array)

    def maybe(self, array: Array) -> str:
        """Add a constant, or leave that operand out."""
        return self.constant(array) if self.chance() else ""

    def ints(self, *values: int) -> str:
        """Add a constant of shapes, axes or places."""
        return self.constant(np.array(values, np.int64))

    def node(
        self, operator: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node; return the names of its outputs. Operands that are left out at the end are dropped."""
        names = list(inputs)
        while names and not names[-1] and self.chance():
            names.pop()
        self.count += 1
        made = [f"y{self.count}_{each}" for each in range(outputs)]
        kept = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(operator, names, made, domain=domain, **kept))
        return made

    def give(self, *names: str) -> None:
        """Say what the model's outputs are."""
        self.results.extend(names)

    def finish(self, name: str) -> onnx.ModelProto:
        """Return the model; its outputs have no types yet."""
        inputs = [
            helper.make_tensor_value_info(each, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for each, array in self.given.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            name,
            inputs,
            [helper.make_empty_tensor_value_info(each) for each in dict.fromkeys(self.results)],
            [numpy_helper.from_array(array, each) for each, array in self.stored.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in self.nodes):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)
