# SPDX-License-Identifier: Apache-2.0
"""Import a TensorFlow Lite model as Relax: our kernels, else TVM's importer, quantised operators in float."""

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import ir, relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, TensorWrapper

from utvm.compiler import library, refusal
from utvm.compiler.frontend.imported import Control, Imported
from utvm.compiler.frontend.tflite_view import BufferView, ModelView, OperatorView, TensorView
from utvm.compiler.kernels import Unfit, kernels
from utvm.compiler.kernels.requantise import rounding
from utvm.compiler.kernels.use import IntegerLayer, Use, activation_bounds, call_layer
from utvm.compiler.library import Model
from utvm.compiler.names import identifier
from utvm.compiler.read import tflite_graph, tflite_state
from utvm.compiler.read.tflite_records import TfliteGraph, TfliteOperator, TfliteTensor
from utvm.compiler.read.tflite_validate import AS_FLOAT, place
from utvm.compiler.target import Target
from utvm.errors import CompileError, UtvmError

_LOG = logging.getLogger("utvm.compiler")
_RESHAPES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")

_COUNTS = {"int32", "int64"}  # Interchangeable element types of indices and sizes.


def import_tflite(model: Model, target: Target) -> Imported:
    graph = tflite_graph.read(model.content, model.origin)
    return _import_graph(graph, graph.graphs, model.content, target)


def _import_graph(graph: TfliteGraph, graphs: Sequence[TfliteGraph], content: bytes, target: Target) -> Imported:
    layers: dict[str, IntegerLayer] = {}
    converter = functools.partial(_Converter, layers=layers, target=target)
    module = from_tflite(ModelView(graph, content), op_converter=converter)
    return Imported(
        module,
        tuple(_name(graph, number, "input", count) for count, number in enumerate(graph.inputs)),
        tuple(_name(graph, number, "output", count) for count, number in enumerate(graph.outputs)),
        tuple(_scaling(graph.tensors[number]) for number in graph.inputs),
        tuple(_scaling(graph.tensors[number]) for number in graph.outputs),
        graph.states,
        {
            _control_name(graph, operator): _control(operator, graphs, content, target)
            for operator in graph.operators
            if operator.name in tflite_state.CONTROL
        },
        layers,
    )


def _control(operator: TfliteOperator, graphs: Sequence[TfliteGraph], content: bytes, target: Target) -> Control:
    called = tflite_state.graphs_of(operator)
    first, second = (_import_graph(graphs[number], graphs, content, target) for number in called)
    return Control("if" if operator.name == "IF" else "while", (first, second))


def _control_name(graph: TfliteGraph, operator: TfliteOperator) -> str:
    return f"{operator.name.lower()}_{graph.number}_{operator.outputs[0]}"


def _scaling(tensor: TfliteTensor) -> library.Scaling | None:
    quantisation = tensor.quantisation
    if quantisation is None or quantisation.scales.size != 1:
        return None
    return library.Scaling(float(quantisation.scales[0]), int(quantisation.zero_points[0]))


def _name(graph: TfliteGraph, number: int, kind: str, count: int) -> str:
    return graph.tensors[number].name or f"{kind}_{count}"


def _short(name: str) -> str:
    return identifier(identifier(name.partition(";")[0], "tensor")[-40:], "tensor")


class _Converter(OperatorConverter):  # type: ignore[misc]
    """Converts the operators of one graph. Method names are those the base class calls."""

    def __init__(
        self, model: Any, subgraph: Any, exp_tab: Any, ctx: Any, layers: dict[str, IntegerLayer], target: Target
    ) -> None:
        super().__init__(model, subgraph, exp_tab, ctx)
        self._layers, self._target = layers, target
        self._real = False
        self._reason = ""
        for name in _RESHAPES:
            self.convert_map[name] = self._reshape_to_declared
        for name in tflite_state.CONTROL:
            self.convert_map[name] = self._call_graphs
        table = kernels()
        self._kernels = {name: build for kernel in table for name, build in kernel.tflite.items()}
        real = {name: make for kernel in table for name, make in kernel.real.items()}
        self.convert_map.update({name: functools.partial(self._in_float, make) for name, make in real.items()})
        self._as_float = {*AS_FLOAT, *real}

    def check_unsupported_ops(self) -> None:
        """Do nothing: this was checked before."""

    def convert_op_to_relax(self) -> None:
        graph = self.subgraph.record
        reasons: list[str] = []
        hints: list[str] = []
        for op in self.subgraph.operators():
            where = place(graph, op.record)
            try:
                self._convert(op, where)
                continue
            except UtvmError as error:
                reasons.append(error.message if error.message.startswith(where) else f"{where}: {error.message}")
                hints += [error.hint] if error.hint else []
            except Exception as error:  # TVM raises nearly every built-in kind, and its own
                _LOG.debug("%s cannot be imported: %r", where, error)
                reasons.append(f"{where}: is used in a way that is not supported")
                hints.append("docs/operators.md lists supported operators; --log-level debug logs more")
            for number in op.record.outputs:
                tensor = graph.tensors[number]
                stand_in = self._bind(relax.op.zeros(tensor.shape, tensor.dtype), _short(tensor.name))
                self.exp_tab.set_expr(f"tensor_{number}", stand_in, force_override=True)
        refusal.refuse("", reasons, "; ".join(dict.fromkeys(hints)))

    def _convert(self, op: OperatorView, where: str) -> None:
        graph = self.subgraph.record
        self._reason = "no integer form of it is known"
        try:
            result = self._by_kernel(op.record)
        except Unfit as unfit:
            result, self._reason = None, str(unfit)
        if result is None:
            result = self._converter(op)(op=op)
        names = [_short(graph.tensors[number].name) for number in op.record.outputs]
        whole = self._bind(result, names[0])
        parts = [whole] if len(names) == 1 else [whole[index] for index in range(len(names))]
        for number, part, name in zip(op.record.outputs, parts, names, strict=True):
            bound = self._as_declared(self._bind(part, name), graph.tensors[number], where)
            self.exp_tab.set_expr(f"tensor_{number}", self._bind(bound, name))

    def get_op_code_str(self, op: OperatorView) -> str:
        return op.record.name

    def get_tensors(self, tensors_idx_list: Any) -> list[TensorWrapper]:
        return [self._wrap(int(number)) for number in tensors_idx_list]

    def get_expr(self, input_tensor_idx: int) -> Any:
        number = int(input_tensor_idx)
        tensor = self.subgraph.record.tensors[number]
        if not self.has_expr(number):
            dtype = tensor.dtype
            return self.exp_tab.new_const(_array(tensor, real=self._real), dtype="float32" if self._real else dtype)
        expression = super().get_expr(number)
        if not self._real or _quantisation(tensor) is None:
            return expression
        return self.bb.emit(self.dequantize(expression, self._wrap(number, quantised=True)))

    def dequantize(self, expr: Any, tensor: TensorWrapper) -> Any:
        if isinstance(expr, ir.GenericConst) and tensor.tensor.record.dtype == "int64":
            # The bias of a layer with int16 activations: Relax cannot dequantise int64.
            return relax.const(_array(tensor.tensor.record, real=True), "float32")
        return super().dequantize(expr, tensor)

    def quantize(self, expr: Any, tensor_to_quantize: TensorWrapper) -> Any:
        record = tensor_to_quantize.tensor.record
        if record.dtype not in ("int8", "uint8") or record.quantisation.scales.size != 1:
            return super().quantize(expr, tensor_to_quantize)
        real = self._bind(expr, _short(record.name))
        return call_layer(self._layers, rounding(record, self._reason), [real], record)

    def convert_qnn_fused_activation_function(
        self, expr: Any, fused_activation_fn: int, scale: float, zero_point: int, dtype: str
    ) -> Any:
        """Clamp a quantised result. Bounds are rounded half away from zero in single precision, as in TFLite."""
        if fused_activation_fn == tflite.ActivationFunctionType.NONE:
            return expr
        limits = np.iinfo(dtype)
        low, high = (
            limit
            if math.isinf(bound)
            else int(np.clip(_round(np.float32(bound) / np.float32(scale)) + zero_point, limits.min, limits.max))
            for bound, limit in zip(activation_bounds(fused_activation_fn), (limits.min, limits.max), strict=True)
        )
        return relax.op.clip(expr, min=float(low), max=float(high))

    def convert_fully_connected(self, op: OperatorView) -> Any:
        """Convert FULLY_CONNECTED; the input is reshaped to rows of the weights' length."""
        data, weights = op.record.inputs[:2]
        tensors = self.subgraph.record.tensors
        depth = tensors[weights].shape[-1]
        shape = (math.prod(tensors[data].shape) // max(depth, 1), depth)
        if math.prod(shape) != math.prod(tensors[data].shape):
            raise CompileError(f"{tensors[data].shape} inputs for {depth} weights")
        name = f"tensor_{data}"
        whole = self.get_expr(data)
        try:
            if tensors[data].shape != shape:
                self.exp_tab.set_expr(name, self._bind(relax.op.reshape(whole, shape), "rows"), force_override=True)
            return super().convert_fully_connected(op)
        finally:
            self.exp_tab.set_expr(name, whole, force_override=True)

    def convert_softmax(self, op: OperatorView) -> Any:
        beta = _options(op, tflite.SoftmaxOptions).Beta()
        if beta == 1.0:
            return super().convert_softmax(op)
        data, result = self._wrap(op.record.inputs[0]), self._wrap(op.record.outputs[0])
        real = self.get_expr(data.tensor_idx)
        if data.qnn_params:
            real = self.dequantize(real, data)
        else:  # As the kernel does, to keep products small.
            real = relax.op.subtract(real, relax.op.max(real, axis=-1, keepdims=True))
        out = relax.op.nn.softmax(relax.op.multiply(real, relax.const(beta, "float32")), axis=-1)
        return self.quantize(out, result) if result.qnn_params else out

    def convert_split_v(self, op: OperatorView) -> Any:
        axis = int(self.get_tensor_value(self._wrap(op.record.inputs[2])))
        sizes = [self.subgraph.record.tensors[number].shape[axis] for number in op.record.outputs]
        places = [int(place) for place in np.cumsum(sizes)[:-1]]
        return relax.op.split(self.get_expr(op.record.inputs[0]), places, axis=axis)

    def _convert_reduce(self, relax_op: Callable[..., Any], op: OperatorView) -> Any:
        rank = len(self.subgraph.record.tensors[op.record.inputs[0]].shape)

        def reduce(data: Any, axes: Sequence[int], keep: bool) -> Any:
            return relax_op(data, sorted({int(axis) % rank for axis in axes}), keep)  # One may be listed twice.

        return super()._convert_reduce(reduce, op)

    def convert_square(self, op: OperatorView) -> Any:
        data = self.get_expr(op.record.inputs[0])
        return relax.op.multiply(data, data)

    def _by_kernel(self, operator: TfliteOperator) -> Any:
        kernel = self._kernels.get(operator.name)
        if kernel is None:
            return None
        tensors = self.subgraph.record.tensors
        known = tuple(None if number < 0 else tensors[number] for number in operator.inputs)

        def value(count: int) -> npt.NDArray[Any] | None:
            tensor = known[count]
            return None if tensor is None or (tensor.data is None and tensor.size) else _array(tensor, real=False)

        use = Use(
            operator,
            known,
            tuple(tensors[number] for number in operator.outputs),
            self.subgraph.content,
            value,
            self.bb,
            self._layers,
            self._target,
        )
        return kernel(use, [None if number < 0 else self.get_expr(number) for number in operator.inputs])

    def _converter(self, op: OperatorView) -> Callable[..., Any]:
        convert: Callable[..., Any] = self.convert_map[op.record.name]
        quantised = self._wrap(op.record.outputs[0]).qnn_params is not None
        if not quantised or op.record.name not in self._as_float:
            return convert

        def convert_real(op: OperatorView) -> Any:
            self._real = True
            try:
                result = self.bb.normalize(convert(op=op))
            finally:
                self._real = False
            return self.quantize(result, self._wrap(op.record.outputs[0]))

        return convert_real

    def _in_float(self, make: Callable[..., Any], op: OperatorView) -> Any:
        return make(*(self.get_expr(number) for number in op.record.inputs))

    def _wrap(self, number: int, *, quantised: bool | None = None) -> TensorWrapper:
        if number < 0:
            return TensorWrapper(number, 0, 0)
        tensor = self.subgraph.record.tensors[number]
        known = _quantisation(tensor)
        real = self._real and not quantised
        data = None if tensor.data is None else _array(tensor, real=real)
        view = TensorView(tensor, number, "float32" if real and known else None)
        if known is None or real:
            return TensorWrapper(number, view, None if data is None else BufferView(data))
        scale = float(known.scales[0]) if known.scales.size == 1 else known.scales
        parameters = {
            "scale": relax.const(scale, "float32"),
            "zero_point": relax.const(int(known.zero_points[0]), "int32"),
            "axis": known.axis,
        }
        return TensorWrapper(number, view, None if data is None else BufferView(data), parameters)

    def _call_graphs(self, op: OperatorView) -> Any:
        graph = self.subgraph.record
        types = [relax.TensorType(graph.tensors[at].shape, graph.tensors[at].dtype) for at in op.record.outputs]
        operands = relax.Tuple([self.get_expr(number) for number in op.record.inputs])
        return relax.op.call_dps_packed(
            _control_name(graph, op.record), operands, types if len(types) > 1 else types[0]
        )

    def _reshape_to_declared(self, op: OperatorView) -> Any:
        shape = self.subgraph.record.tensors[op.record.outputs[0]].shape
        return relax.op.reshape(self.get_expr(op.record.inputs[0]), relax.ShapeExpr(list(shape)))

    def _bind(self, expression: Any, name: str) -> Any:
        if isinstance(expression, relax.Var | ir.GenericConst | relax.Tuple):
            return expression
        return self.bb.emit(expression, name_hint=name)

    def _as_declared(self, expression: Any, tensor: TfliteTensor, where: str) -> Any:
        kind = expression.ty
        shape = tuple(int(extent) for extent in kind.shape)
        dtype = str(getattr(kind.dtype, "dtype", kind.dtype))
        if math.prod(shape) != math.prod(tensor.shape):
            raise CompileError(f"{where}: makes a tensor of shape {shape}, but the file declares {tensor.shape}")
        if shape != tensor.shape:
            expression = relax.op.reshape(expression, relax.ShapeExpr(list(tensor.shape)))
        if dtype == tensor.dtype:
            return expression
        if not {dtype, tensor.dtype} <= _COUNTS:
            raise CompileError(f"{where}: makes elements of type {dtype}, but the file declares {tensor.dtype}")
        return relax.op.astype(expression, tensor.dtype)


def _quantisation(tensor: TfliteTensor) -> Any:
    known = tensor.quantisation
    return known if known is not None and tensor.dtype != "float32" and known.scales.all() else None


def _array(tensor: TfliteTensor, *, real: bool) -> npt.NDArray[Any]:
    data = np.zeros(0, np.uint8) if tensor.data is None else tensor.data
    array = np.frombuffer(data.tobytes(), tensor.dtype).reshape(tensor.shape)
    known = _quantisation(tensor)
    if not real or known is None:
        return array
    along = [-1 if axis == known.axis else 1 for axis in range(array.ndim)] if known.scales.size > 1 else ()
    difference = array.astype(np.int64) - int(known.zero_points[0])
    real_numbers: npt.NDArray[Any] = difference.astype(np.float32) * known.scales.reshape(along)
    return real_numbers


def _round(value: np.float32) -> int:
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))


def _options(op: OperatorView, table: Any) -> Any:
    options = table()
    place_of = op.BuiltinOptions()
    if place_of is None:
        raise CompileError("it has no options, which it needs")
    options.Init(place_of.Bytes, place_of.Pos)
    return options
