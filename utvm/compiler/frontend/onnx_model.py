# SPDX-License-Identifier: Apache-2.0
"""Import an ONNX model as a Relax module: TVM's importer, with quantised operators of our own."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

from utvm.compiler import library, notes, refusal, tvm_types
from utvm.compiler.frontend.imported import Imported
from utvm.compiler.frontend.onnx_converters import CONVERTERS
from utvm.compiler.frontend.rewrite import Rewritten, rewrite_model
from utvm.compiler.frontend.rewrite.graph import NOT_SUPPORTED, OPSET_ATTRIBUTE, is_fresh, place
from utvm.compiler.model import Model
from utvm.compiler.names import identifier
from utvm.errors import CompileError, UtvmError

_LOG = logging.getLogger("utvm.compiler")


def import_onnx(model: Model) -> Imported:
    proto = onnx.load_from_string(model.content)
    read = rewrite_model(proto, {*_get_convert_map(), *CONVERTERS})
    opset = next(item.version for item in proto.opset_import if item.domain in ("", "ai.onnx"))
    importer = _Importer(read)
    try:
        module = importer.from_onnx(read.model.graph, opset)
    except Exception as error:  # If nodes were refused, their placeholders may cause further errors.
        if not read.reasons:
            raise
        _LOG.debug("%s: error after refused nodes: %r", model.origin, error)
    _refuse(model.origin, [*read.reasons, *importer.reasons])
    stored = {item.name for item in proto.graph.initializer}
    inputs = tuple(item.name for item in proto.graph.input if item.name not in stored)
    outputs = tuple(item.name for item in proto.graph.output)
    graph = read.model.graph
    return Imported(module, inputs, outputs, input_scalings(graph, inputs), output_scalings(graph, outputs))


def _refuse(origin: str, reasons: Sequence[str]) -> None:
    unknown = [reason.removesuffix(f": {NOT_SUPPORTED}") for reason in reasons if reason.endswith(NOT_SUPPORTED)]
    others = [reason for reason in reasons if not reason.endswith(NOT_SUPPORTED)]
    texts = [f"operators that are not supported: {', '.join(unknown)}"] if unknown else []
    help_ = "replace them in the model by supported operators; docs/compiler.md lists them"
    refusal.refuse(origin, [*texts, *others], help_)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """Imports one graph. Method names are those the base class calls."""

    def __init__(self, read: Rewritten) -> None:
        super().__init__({}, "float32")
        self.reasons: list[str] = []
        self._types = read.types
        self._following = list(read.model.graph.node)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Do nothing: this was checked before."""

    def _convert_operator(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        # A node made by an expansion is reported as the next output of the user's model.
        named = next((item for item in self._following if not is_fresh(item.output[0])), self._following[0])
        node = self._following.pop(0)  # The base class visits nodes in this order.
        where = f"{node.op_type} (at {named.output[0]})" if is_fresh(node.output[0]) else place(node)
        opset = attrs.pop(OPSET_ATTRIBUTE, opset)
        try:
            if op_name in CONVERTERS:
                result = self.bb.normalize(CONVERTERS[op_name](self.bb, inputs, attrs))
            else:
                result = super()._convert_operator(op_name, inputs, attrs, opset)
        except UtvmError as error:
            self.reasons.append(f"{where}: {error.message}")
        except Exception as error:  # TVM raises nearly every built-in kind, and its own
            _LOG.debug("%s: %r", place(node), error)
            self.reasons.append(f"{where}: {_use(node, inputs)} is not supported")
        else:
            wrong = _difference(node, result, self._types)
            if not wrong:
                return self._with_name(result, node)
            self.reasons.append(f"{where}: {wrong}")
        return self._stand_in(node)

    def _with_name(self, result: Any, node: onnx.NodeProto) -> Any:
        if isinstance(result, tvm.ir.GenericConst) and node.op_type != "Constant":
            notes.note("folded", f"{place(node)} is a constant")
        if not isinstance(result, tvm.ir.Call) or not isinstance(result.ty, relax.TensorType):
            return result
        return self.bb.emit(result, identifier(node.output[0], "tensor"))

    def _stand_in(self, node: onnx.NodeProto) -> Any:
        results = []
        for name in node.output:
            kind = self._types.get(name)
            if kind is None or not all(extent.HasField("dim_value") for extent in kind.tensor_type.shape.dim):
                raise CompileError("; ".join(self.reasons), refusal.HINT)
            dtype = str(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
            shape = [extent.dim_value for extent in kind.tensor_type.shape.dim]
            results.append(self.bb.normalize(relax.op.zeros(shape, dtype)))
        return results[0] if len(results) == 1 else relax.Tuple(results)


def _use(node: onnx.NodeProto, inputs: Sequence[Any]) -> str:
    kinds = [_kind(value) for value in inputs]
    settings = [f"{item.name}={_short(item)}" for item in node.attribute if item.name != OPSET_ATTRIBUTE]
    return f"{node.op_type}({', '.join([*kinds, *settings])})"


def _kind(value: Any) -> str:
    dtype = tvm_types.dtype_of(getattr(value, "ty", None))
    if not dtype or value.ty.shape is None:
        return "nothing" if value is None else "a shape"
    return f"{dtype}{list(tvm_types.shape_of(value.ty))}"


def _short(attribute: onnx.AttributeProto) -> str:
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else str(value).splitlines()[0]


def _difference(node: onnx.NodeProto, result: Any, types: Mapping[str, onnx.TypeProto]) -> str:
    kinds = list(result.ty.fields) if isinstance(result.ty, relax.TupleType) else [result.ty]
    for number, name in enumerate(node.output):
        stated = types.get(name)
        if not name or stated is None:
            continue
        if number >= len(kinds):
            return f"its output {number} is not supported"
        kind = kinds[number]
        if not isinstance(kind, relax.TensorType):
            continue
        dtype = str(helper.tensor_dtype_to_np_dtype(stated.tensor_type.elem_type))
        extents = [extent.dim_value if extent.HasField("dim_value") else -1 for extent in stated.tensor_type.shape.dim]
        known = stated.tensor_type.HasField("shape") and kind.shape is not None and -1 not in extents
        if tvm_types.dtype_of(kind) != dtype:
            return f"an output {number} of type {dtype} is not supported"
        if known and list(tvm_types.shape_of(kind)) != extents:
            return f"an output {number} of shape {tuple(extents)} is not supported"
    return ""


def input_scalings(graph: onnx.GraphProto, names: Sequence[str]) -> tuple[library.Scaling | None, ...]:
    """Return the scaling of each input that is dequantised in only one way; None for others."""
    constants = _constants(graph)

    def scaling(name: str) -> library.Scaling | None:
        users = [node for node in graph.node if name in node.input]
        ways = {
            _way(node, constants) if node.op_type == "DequantizeLinear" and node.input[0] == name else None
            for node in users
        }
        return ways.pop() if len(ways) == 1 else None

    return tuple(map(scaling, names))


def output_scalings(graph: onnx.GraphProto, names: Sequence[str]) -> tuple[library.Scaling | None, ...]:
    """Return the scaling of each output that is a quantised float; None for others."""
    constants = _constants(graph)
    scalings = {node.output[0]: _way(node, constants) for node in graph.node if node.op_type == "QuantizeLinear"}
    return tuple(map(scalings.get, names))


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    nodes = [node for node in graph.node if node.op_type == "Constant"]
    return {item.name: item for item in graph.initializer} | {
        node.output[0]: item.t for node in nodes for item in node.attribute if item.name == "value"
    }


def _way(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> library.Scaling | None:
    tensors = [constants.get(name) for name in node.input[1:3] if name]
    numbers = [numpy_helper.to_array(tensor).item() for tensor in tensors if tensor and math.prod(tensor.dims) == 1]
    if not numbers or len(numbers) < len(tensors):
        return None
    return library.Scaling(float(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0)
