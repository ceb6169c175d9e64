# SPDX-License-Identifier: Apache-2.0
"""Import an ONNX model as a Relax module: TVM's importer, with quantised operators and those that it lacks.

Operators are defined by ``docs/Operators.md`` of onnx/onnx.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import ir, relax, topi
from tvm.relax.frontend.onnx.onnx_frontend import Cast as _Cast
from tvm.relax.frontend.onnx.onnx_frontend import Conv as _Conv
from tvm.relax.frontend.onnx.onnx_frontend import MatMul as _MatMul
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map, get_type, onnx_input

from utvm.compiler import library, notes, refusal, tvm_types
from utvm.compiler.frontend import imported, rewrite
from utvm.compiler.frontend.rewrite.fold import saturate
from utvm.compiler.frontend.rewrite.graph import NOT_SUPPORTED, OPSET_ATTRIBUTE, is_fresh, place
from utvm.compiler.library import Model
from utvm.compiler.names import identifier
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import dtype_of, shape_of
from utvm.errors import CompileError, UtvmError

_STATIC = "quantise the model statically, with a calibration data set"
Converter = Callable[[Any, Sequence[Any], dict[str, Any]], Any]


def cumulative_product(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    data, axis = inputs[0], _number(inputs[1], "its axis")
    backwards = attributes.get("reverse", 0)
    if backwards:
        data = builder.emit_te(topi.flip, data, axis=axis)
    product = builder.emit(relax.op.cumprod(data, axis, exclusive=bool(attributes.get("exclusive", 0))))
    return builder.emit_te(topi.flip, product, axis=axis) if backwards else product


def cast(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert Cast; a float outside an integer's range is limited to it, which ONNX leaves undefined."""
    value, target = inputs[0], str(get_type(attributes["to"]))
    source = dtype_of(getattr(value, "ty", None)) or ""
    if not source.startswith("float") or not target.startswith(("int", "uint")):
        return _Cast.get_converter(13)(builder, onnx_input(inputs), attributes, [{}, {}])
    if _is_constant(value):
        return relax.const(saturate(value.value.numpy(), target), target)
    return relax.op.astype(value, target)


def best(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert TopK; if any order is allowed, keep the order of the elements."""
    count = int(attributes["k"]) if len(inputs) == 1 else _number(inputs[1], "its number of elements")
    largest = bool(attributes.get("largest", 1))
    return relax.op.topk(inputs[0], count, attributes.get("axis", -1), "both", largest, "int64")


def _number(value: Any, what: str) -> int:
    if not hasattr(value, "value"):
        raise CompileError(f"{what} must be constant: a library's shapes and loops are fixed")
    return int(value.value.numpy().reshape(-1)[0])


def quantize_linear(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    data, scale, zero = _operands(inputs, 3)
    _refuse_blocks(attributes)
    if attributes.get("output_dtype", 0) and zero is None:
        raise CompileError("QuantizeLinear with an output type but without a zero point is not supported")
    dtype = "uint8" if zero is None else _dtype(zero)
    return _quantize(data, scale, zero, dtype, _axis(data, attributes))


def dequantize_linear(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert DequantizeLinear; run-time scales must be one number for the whole tensor."""
    data, scale, zero = _operands(inputs, 3)
    _refuse_blocks(attributes)
    if not _is_constant(scale) or not _is_constant(zero):
        if _rank(scale):
            raise CompileError(
                "scales of each channel that are computed while the model runs are not supported", _STATIC
            )
        centred = builder.emit(_subtract_zero(data, zero, ()))
        return relax.op.multiply(relax.op.astype(centred, _dtype(scale)), scale)
    return _dequantize(data, scale, zero, _axis(data, attributes))


def qlinear_conv(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert QLinearConv; its bias is int32 with the scale of the sums."""
    data, data_scale, data_zero, weights, weight_scale, weight_zero, scale, zero, bias = _operands(inputs, 9)
    real = builder.emit(_dequantize(data, data_scale, data_zero, 0))
    real_weights = builder.emit(_dequantize(weights, weight_scale, weight_zero, 0))
    real_bias = None
    if bias is not None:
        sums = relax.const(_value(data_scale).reshape(()) * _value(weight_scale), "float32")
        real_bias = builder.emit(_dequantize(bias, sums, None, 0))
    summed = _convolve(builder, [real, real_weights, real_bias], attributes)
    return _quantize(summed, scale, zero, _dtype(zero), 1)


def qlinear_matmul(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert QLinearMatMul; scales may be per row of the left or per column of the right operand."""
    left, left_scale, left_zero, right, right_scale, right_zero, scale, zero = _operands(inputs, 8)
    real_left = builder.emit(_dequantize(left, left_scale, left_zero, max(_rank(left) - 2, 0)))
    real_right = builder.emit(_dequantize(right, right_scale, right_zero, _rank(right) - 1))
    product = _matmul(builder, [real_left, real_right])
    return _quantize(product, scale, zero, _dtype(zero), max(_rank(product) - 2, 0))


def conv_integer(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert ConvInteger; padding has the value of the zero point."""
    data, weights, data_zero, weight_zero = _operands(inputs, 4)
    wide = builder.emit(_subtract_zero(data, data_zero, ()))
    wide_weights = builder.emit(_subtract_zero(weights, weight_zero, (-1, *([1] * (_rank(weights) - 1)))))
    return _convolve(builder, [wide, wide_weights, None], attributes)


def matmul_integer(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert MatMulInteger; zero points may be per row of the left or per column of the right operand."""
    left, right, left_zero, right_zero = _operands(inputs, 4)
    wide_left = builder.emit(_subtract_zero(left, left_zero, (-1, 1)))
    wide_right = builder.emit(_subtract_zero(right, right_zero, (-1,)))
    return _matmul(builder, [wide_left, wide_right])


CONVERTERS: dict[str, Converter] = {
    "Cast": cast,
    "CumProd": cumulative_product,
    "TopK": best,
    "QuantizeLinear": quantize_linear,
    "DequantizeLinear": dequantize_linear,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "ConvInteger": conv_integer,
    "MatMulInteger": matmul_integer,
}


def _operands(inputs: Sequence[Any], count: int) -> list[Any]:
    return [*inputs, *([None] * count)][:count]


def _convolve(builder: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    return builder.normalize(_Conv.get_converter(11)(builder, onnx_input(inputs), attributes, [{}, {}]))


def _matmul(builder: Any, inputs: list[Any]) -> Any:
    return builder.normalize(_MatMul.get_converter(13)(builder, onnx_input(inputs), {}, [{}, {}]))


def _subtract_zero(data: Any, zero: Any, shape: tuple[int, ...]) -> Any:
    wide = relax.op.astype(data, "int32")
    if zero is None:
        return wide
    if not _is_constant(zero):
        # As from DynamicQuantizeLinear.
        row = shape if _rank(zero) == 1 and shape_of(zero.ty) != (1,) else ()
        offset = relax.op.astype(zero, "int32")
        return relax.op.subtract(wide, relax.op.reshape(offset, row) if _rank(zero) == 1 else offset)
    value = _value(zero).astype(np.int32)
    if not value.any():
        return wide
    spread = value.reshape(()) if value.size == 1 else value.reshape(shape)
    return relax.op.subtract(wide, relax.const(spread, "int32"))


def _quantize(data: Any, scale: Any, zero: Any, dtype: str, axis: int) -> Any:
    return relax.op.quantize(data, *_parameters(scale, zero), axis=axis, out_dtype=dtype)


def _dequantize(data: Any, scale: Any, zero: Any, axis: int) -> Any:
    return relax.op.dequantize(data, *_parameters(scale, zero), axis=axis, out_dtype="float32")


def _parameters(scale: Any, zero: Any) -> tuple[Any, Any]:
    scales = _value(scale).astype(np.float32)
    if not np.all(np.isfinite(scales)) or not np.all(scales > 0):
        raise CompileError("a scale is not a positive number")
    zeros = np.zeros(1, np.int32) if zero is None else _value(zero).astype(np.int32)
    if (zeros == zeros.ravel()[0]).all():
        zeros = zeros.ravel()[:1]
    return relax.const(_scalar_or_row(scales), "float32"), relax.const(_scalar_or_row(zeros), "int32")


def _scalar_or_row(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.reshape(()) if values.size == 1 else values.ravel()


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, ir.GenericConst)


def _value(constant: Any) -> npt.NDArray[Any]:
    if not _is_constant(constant):
        raise CompileError("a scale or zero point is computed while the model runs, which is not supported", _STATIC)
    value: npt.NDArray[Any] = constant.value.numpy()
    return value


def _axis(data: Any, attributes: dict[str, Any]) -> int:
    rank = _rank(data)
    axis = int(attributes.get("axis", 1))
    return (axis + rank if axis < 0 else axis) if rank > 1 else 0


def _rank(data: Any) -> int:
    return int(data.ty.ndim)


def _dtype(expression: Any) -> str:
    return str(getattr(expression.ty.dtype, "dtype", expression.ty.dtype))


def _refuse_blocks(attributes: dict[str, Any]) -> None:
    if attributes.get("block_size", 0):
        raise CompileError("quantisation in blocks is not supported", "quantise for each tensor or each channel")


_LOG = logging.getLogger("utvm.compiler")


def import_onnx(model: Model, _: Target) -> imported.Imported:
    proto = onnx.load_from_string(model.content)
    read = rewrite.rewrite_model(proto, {*_get_convert_map(), *CONVERTERS})
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
    return imported.Imported(module, inputs, outputs, input_scalings(graph, inputs), output_scalings(graph, outputs))


def _refuse(origin: str, reasons: Sequence[str]) -> None:
    unknown = [reason.removesuffix(f": {NOT_SUPPORTED}") for reason in reasons if reason.endswith(NOT_SUPPORTED)]
    others = [reason for reason in reasons if not reason.endswith(NOT_SUPPORTED)]
    texts = [f"operators that are not supported: {', '.join(unknown)}"] if unknown else []
    help_ = "replace them in the model by supported operators; docs/compiler.md lists them"
    refusal.refuse(origin, [*texts, *others], help_)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """Imports one graph. Method names are those the base class calls."""

    def __init__(self, read: rewrite.Rewritten) -> None:
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
