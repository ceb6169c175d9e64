# SPDX-License-Identifier: Apache-2.0
"""An ONNX graph rewritten node by node: each is computed, replaced by a rule, expanded or kept."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
import onnx.shape_inference
from onnx import helper, numpy_helper

from utvm.compiler.frontend.rewrite.fold import compute_node, function_body, rename, worth_folding
from utvm.compiler.notes import note

Array = npt.NDArray[Any]
_LOG = logging.getLogger("utvm.compiler")
_FRESH = "utvm_"
OPSET_ATTRIBUTE = "utvm_opset"
"""Attribute of a node of another operator set than the model's."""

STANDARD = ("", "ai.onnx")
MICROSOFT = "com.microsoft"
_OPSET = 18
NOT_SUPPORTED = "the operator is not supported"
_MAX_NODES = 20_000


class Unsupported(Exception):
    """A node that no library can compute; the message is the reason."""


@dataclass(frozen=True)
class RuleNode:
    """A node as passed to a rule."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int

    def input(self, number: int) -> str:
        return self.inputs[number] if number < len(self.inputs) else ""

    def wants(self, number: int) -> bool:
        return number < len(self.outputs) and bool(self.outputs[number])


Rule = Callable[["RuleGraph", RuleNode], "Sequence[str] | None"]
"""Adds nodes that compute a node; returns the names of its results, or None if the rule does not apply."""


@dataclass
class RuleGraph:
    """A graph under construction."""

    opset: int
    rules: Mapping[str, Rule]
    foreign_rules: Mapping[str, Mapping[str, Rule]]
    known: frozenset[str]
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    added: dict[str, onnx.TensorProto] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    changed: bool = False
    _aliases: dict[str, str] = field(default_factory=dict)
    _producers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    _varying: set[str] = field(default_factory=set)
    _depth: int = 0
    _count: int = 0

    def name(self, value: str) -> str:
        return self._aliases.get(value, value)

    def shape(self, value: str) -> tuple[int, ...]:
        kind = self.types.get(self.name(value))
        if kind is None or not kind.tensor_type.HasField("shape"):
            raise Unsupported("a shape is not known while compiling")
        extents = kind.tensor_type.shape.dim
        if not all(extent.HasField("dim_value") for extent in extents):
            raise Unsupported("a shape is not known while compiling")
        return tuple(extent.dim_value for extent in extents)

    def dtype(self, value: str) -> np.dtype[Any]:
        kind = self.types.get(self.name(value))
        if kind is None or not kind.tensor_type.elem_type:
            raise Unsupported("an element type is not known while compiling")
        dtype: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        return dtype

    def value(self, value: str) -> Array | None:
        """Return a constant value, or None."""
        tensor = self._constant(self.name(value))
        return None if tensor is None else numpy_helper.to_array(tensor)

    def require(self, value: str, what: str) -> Array:
        array = self.value(value)
        if array is None:
            raise Unsupported(f"{what} must be constant: a library's shapes and loops are fixed")
        return array

    def constant(self, content: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        # numpy's ascontiguousarray would turn a scalar into a row.
        array = np.asarray(content, dtype, order="C")
        return self._keep(numpy_helper.from_array(array))

    def op(self, operator: str, *inputs: str, opset: int = _OPSET, **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        return self.ops(operator, 1, *inputs, opset=opset, **attributes)[0]

    def ops(self, operator: str, count: int, *inputs: str, opset: int = _OPSET, **attributes: Any) -> list[str]:
        names = [self._fresh(operator) for _ in range(count)]
        self.add(helper.make_node(operator, list(inputs), names, **attributes), opset)
        return [self.name(name) for name in names]

    def raw_op(self, operator: str, *inputs: str, opset: int = _OPSET, **attributes: Any) -> str:
        """Add a node without applying rules to it; its own rule uses this."""
        name = self._fresh(operator)
        node = helper.make_node(operator, [self.name(value) for value in inputs], [name], **attributes)
        self._infer(node, opset)
        self._append(node, opset)
        return name

    def body_of(self, node: RuleNode) -> list[str]:
        proto = helper.make_node(node.operator, list(node.inputs), list(node.outputs), **node.attributes)
        return self._expand(proto, node.opset)

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        if self.dtype(value) == np.dtype(dtype):
            return self.name(value)
        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def like(self, content: npt.ArrayLike, value: str) -> str:
        """Add a constant with the element type of another value."""
        return self.constant(np.asarray(content, self.dtype(value)))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        return self.op("Reshape", value, self.constant(shape, np.int64))

    def slice(self, value: str, axis: int, start: int, end: int, step: int = 1) -> str:
        bounds = (self.constant([item], np.int64) for item in (start, end, axis, step))
        return self.op("Slice", value, *bounds)

    def multiply(self, value: str, axis: int, weights: Array) -> str:
        """Add a product along an axis with a constant matrix; each row yields one element."""
        rank = len(self.shape(value))
        order = [place for place in range(rank) if place != axis] + [axis]
        moved = self.op("Transpose", value, perm=order)
        product = self.op("MatMul", moved, self.like(weights.T, value))
        return self.op("Transpose", product, perm=[order.index(place) for place in range(rank)])

    def inline(
        self,
        nodes: Sequence[onnx.NodeProto],
        names: Mapping[str, str],
        results: Sequence[str],
        stored: Sequence[onnx.TensorProto] = (),
        opset: int = 0,
    ) -> list[str]:
        """Add the nodes of a function or of a subgraph."""
        scope = {parameter: self.name(name) for parameter, name in names.items()}
        for tensor in stored:
            scope[tensor.name] = self.constant(numpy_helper.to_array(tensor))
        for node in nodes:
            for output in node.output:
                if output:
                    scope[output] = self._fresh(output)
            self.add(rename(node, scope), opset or self.opset)
        return [self.name(scope.get(result, result)) for result in results]

    def add(self, node: onnx.NodeProto, opset: int) -> None:
        if len(self.nodes) > _MAX_NODES:
            raise Unsupported(f"the model becomes more than {_MAX_NODES} operators")
        inputs = [self.name(name) for name in node.input]
        if inputs != list(node.input):
            renamed_node = onnx.NodeProto()
            renamed_node.CopyFrom(node)
            renamed_node.input[:] = inputs
            node = renamed_node
        self._depth += 1
        before = len(self.nodes)
        try:
            self._take(node, opset)
            if self._depth == 1:
                self._note(node, self.nodes[before:])
        except Unsupported as error:
            if self._depth > 1:
                raise
            self._refuse(node, str(error))
        except Exception as error:  # Rules rely on ONNX's checks, which are incomplete.
            if self._depth > 1:
                raise
            _LOG.debug("%s: %r", place(node), error)
            self._refuse(node, "it is used in a way that is not supported")
        finally:
            self._depth -= 1

    def _refuse(self, node: onnx.NodeProto, reason: str) -> None:
        self.reasons.append(f"{place(node)}: {reason}")
        self.refused.extend(node.output)

    def _note(self, node: onnx.NodeProto, results: Sequence[onnx.NodeProto]) -> None:
        kinds = list(dict.fromkeys(item.op_type for item in results))
        if not results:
            note("folded", f"{place(node)}: nothing is left to compute")
        elif kinds != [node.op_type]:
            note("rewritten", f"{place(node)}: as {', '.join(kinds)}")

    def _take(self, node: onnx.NodeProto, opset: int) -> None:
        if node.domain not in STANDARD:
            if self._apply_rule(node, opset, self.foreign_rules.get(node.domain, {})):
                return
            if node.domain != MICROSOFT or node.op_type not in self.known:
                raise Unsupported(NOT_SUPPORTED)
            self._append(node, opset)
            return
        self._infer(node, opset)
        # Fold nodes added by rules if possible; nodes of the model are mostly kept.
        deep = self._depth > 1
        is_folded = (deep or worth_folding(node, self)) and self._fold(node, opset)
        if is_folded or (deep and self._is_empty(node)) or self._apply_rule(node, opset, self.rules):
            return
        if node.op_type in self.known:
            self._append(node, opset)
        elif not self._fold(node, opset):
            # ONNX's function bodies turn scalars into rows of one element.
            results = self._expand(node, opset)
            for number, (name, result) in enumerate(zip(node.output, results, strict=False)):
                if self.shape_or_none(name) == () and self.shape_or_none(result) == (1,):
                    results[number] = self.reshape(result, ())
            self._replace(node, results)

    def _apply_rule(self, node: onnx.NodeProto, opset: int, rules: Mapping[str, Rule]) -> bool:
        rule = rules.get(node.op_type)
        rule_node = RuleNode(node.op_type, tuple(node.input), tuple(node.output), _attributes(node), opset)
        results = rule(self, rule_node) if rule else None
        if results is None:
            return False
        self._replace(node, results)
        return True

    def _is_empty(self, node: onnx.NodeProto) -> bool:
        """Drop operands without elements: some function bodies slice off possibly empty parts and join them."""
        shapes = [self.shape_or_none(name) for name in node.output if name]
        if any(shape is not None and 0 in shape for shape in shapes):
            if len(shapes) == 1:
                self._aliases[node.output[0]] = self.constant(np.zeros(shapes[0] or (), self.dtype(node.output[0])))
            elif node.op_type == "Split":
                self._slice_apart(node)
            else:
                raise Unsupported("a part without elements is not supported")
            return True
        if node.op_type == "Concat":
            nonempty = [name for name in node.input if 0 not in (self.shape_or_none(name) or ())]
            node.input[:] = nonempty
        return False

    def _slice_apart(self, node: onnx.NodeProto) -> None:
        rank = len(self.shape(node.input[0]))
        axis = next((item.i for item in node.attribute if item.name == "axis"), 0) % rank
        begin = 0
        for output in node.output:
            end = begin + self.shape(output)[axis]
            self._aliases[output] = self.slice(node.input[0], axis, begin, end)
            begin = end

    def _expand(self, node: onnx.NodeProto, opset: int) -> list[str]:
        body = function_body(node, opset, self.types)
        if body is None:
            raise Unsupported(NOT_SUPPORTED)
        names = dict(zip(body.input, [*node.input, *[""] * len(body.input)], strict=False))
        inner = next((item.version for item in body.opset_import if item.domain in STANDARD), opset)
        return self.inline(body.node, names, body.output, opset=inner)

    def _replace(self, node: onnx.NodeProto, results: Sequence[str]) -> None:
        self.changed = True
        for output, result in zip(node.output, results, strict=False):
            if output:
                self._aliases[output] = self.name(result)
        missing = [output for output in node.output[len(results) :] if output]
        if missing:
            raise Unsupported(f"its output {len(results)} is not supported")

    def _append(self, node: onnx.NodeProto, opset: int) -> None:
        if opset != self.opset:
            marked = onnx.NodeProto()
            marked.CopyFrom(node)
            marked.attribute.append(helper.make_attribute(OPSET_ATTRIBUTE, opset))
            node = marked
        for output in node.output:
            self._producers[output] = node
        self.nodes.append(node)

    def _fold(self, node: onnx.NodeProto, opset: int) -> bool:
        results = compute_node(node, opset, self._constant, self.types)
        if results is None:
            return False
        self.changed = True
        for output, tensor in zip(node.output, results, strict=True):
            if output:
                self._aliases[output] = self._keep(tensor)
        return True

    def _constant(self, name: str) -> onnx.TensorProto | None:
        if name in self.constants:
            return self.constants[name]
        node = None if name in self._varying else self._producers.get(name)
        results = None
        if node is not None and node.domain in STANDARD:
            opset = next((item.i for item in node.attribute if item.name == OPSET_ATTRIBUTE), self.opset)
            results = compute_node(node, opset, self._constant, self.types)
        if node is None or results is None:
            self._varying.add(name)
            return None
        for output, tensor in zip(node.output, results, strict=True):
            self.constants[output] = tensor
        return self.constants[name]

    def _keep(self, tensor: onnx.TensorProto) -> str:
        name = tensor.name = self._fresh("constant")
        self.constants[name] = self.added[name] = tensor
        self.types[name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        return name

    def _infer(self, node: onnx.NodeProto, opset: int) -> None:
        # onnx infers both sides of an STFT, whatever is wanted.
        if node.op_type == "STFT" or all(not output or output in self.types for output in node.output):
            return
        kinds = {name: self.types[name] for name in node.input if name in self.types}
        if any(name and name not in kinds for name in node.input):
            return
        small = {
            name: tensor
            for name in node.input
            if name and math.prod(self.shape_or_none(name) or (0,)) <= 1 << 12
            if (tensor := self._constant(name)) is not None
        }
        imports = [helper.make_opsetid("", opset)]
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
            kinds_of = onnx.shape_inference.infer_node_outputs(schema, node, kinds, small, None, imports)
        except Exception:  # onnx raises several kinds, some bound only in C++; unknown types are looked up later
            return
        for name, kind in kinds_of.items():
            # Branches and bodies may omit the types of their results.
            if kind.tensor_type.elem_type or kind.WhichOneof("value") not in (None, "tensor_type"):
                self.types.setdefault(name, kind)

    def shape_or_none(self, value: str) -> tuple[int, ...] | None:
        try:
            return self.shape(value)
        except Unsupported:
            return None

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{_FRESH}{self._count}_{stem}"


def is_fresh(value: str) -> bool:
    """True for the name of a value that a rule added."""
    return value.startswith(_FRESH)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value

    return {item.name: plain(helper.get_attribute_value(item)) for item in node.attribute}


def window_table(places: Sequence[Array], shape: Sequence[int]) -> Array:
    """Return element numbers seen by windows, (windows, elements), from indices per axis; -1 is outside."""
    rank = len(shape)
    number, inside = np.zeros((1,) * 2 * rank, np.int64), np.ones((1,) * 2 * rank, np.bool_)
    for axis, (place, extent) in enumerate(zip(places, shape, strict=True)):
        form = [1] * 2 * rank
        form[axis], form[rank + axis] = place.shape
        number = number * extent + place.reshape(form)
        inside = inside & ((place >= 0) & (place < extent)).reshape(form)
    return np.where(inside, number, -1).reshape(math.prod(len(place) for place in places), -1)


def place(node: onnx.NodeProto) -> str:
    return f"{node.op_type} (at {node.name or next(filter(None, node.output), '')})"
