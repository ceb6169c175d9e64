# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's fixed-point arithmetic in TIRx expressions, and how a function of them enters a Relax module.

No helper in C is called: such a function runs by TVM's LLVM backend, too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tflite
from tvm import relax, s_tir, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as building

from utvm.compiler.integer.fixed_point import quantize_multiplier
from utvm.compiler.integer.kernel import described, with_one_loop, with_sum_in_place
from utvm.compiler.read.tflite_records import TfliteTensor
from utvm.compiler.tvm_types import element_type, shape_of
from utvm.errors import CompileError

_HALF_OF_31 = 1 << 30
_ACCUMULATOR = "accumulator"
_ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: (-math.inf, math.inf),
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}


def number(value: int, dtype: str = "int32") -> Any:
    """Return a constant."""
    return tirx.IntImm(dtype, int(value))


def scale_of(tensor: TfliteTensor) -> np.float32:
    """Return the one scale of a tensor."""
    known = tensor.quantisation
    if known is None or known.scales.size != 1 or not known.scales[0] > 0:
        raise CompileError(f"the tensor {tensor.name!r} has no scale of its own")
    scale: np.float32 = np.float32(known.scales[0])
    return scale


def zero_of(tensor: TfliteTensor) -> int:
    """Return the zero point of a tensor."""
    return 0 if tensor.quantisation is None else int(tensor.quantisation.zero_points[0])


def limits(activation: int, tensor: TfliteTensor) -> tuple[int, int]:
    """Return what an activation limits the numbers of a result to, rounded as TensorFlow Lite does."""
    if activation not in _ACTIVATIONS:
        raise CompileError(f"its activation, number {activation}, is not supported")
    info = np.iinfo(tensor.dtype)
    low, high = (
        limit if math.isinf(bound) else int(np.clip(_steps(bound, tensor), info.min, info.max))
        for bound, limit in zip(_ACTIVATIONS[activation], (info.min, info.max), strict=True)
    )
    return low, high


def _steps(real: float, tensor: TfliteTensor) -> int:
    steps = float(np.float32(real) / scale_of(tensor))
    return zero_of(tensor) + int(math.copysign(math.floor(abs(steps) + 0.5), steps))


def clamped(value: Any, bounds: tuple[int, int], dtype: str) -> Any:
    """Return an integer expression limited to a range, in the narrower type of a result."""
    kind = element_type(value)
    return tirx.max(tirx.min(value, number(bounds[1], kind)), number(bounds[0], kind)).astype(dtype)


def rescaled(value: Any, real: float) -> Any:
    """Return an int32 expression times a positive real number, rounded twice, as gemmlowp does."""
    multiplier, shift = quantize_multiplier(real)
    return rescaled_by(value, number(multiplier), number(max(shift, 0)), max(-shift, 0))


def rescaled_by(value: Any, multiplier: Any, left: Any, right: Any) -> Any:
    """Return an int32 expression times ``multiplier / 2**31 * 2**(left - right)``, rounded twice.

    Args:
        multiplier, left: int32 expressions.
        right: a number, or an int32 expression.
    """
    shifted = value if _is_zero(left) else tirx.shift_left(value, left)
    product = shifted.astype("int64") * multiplier.astype("int64") + number(_HALF_OF_31, "int64")
    high = tirx.shift_right(product, number(31, "int64"))
    if isinstance(right, int):
        if right == 0:
            return high.astype("int32")
        right = number(right)
    # Halves away from zero: a half less is added to what is negative. Nothing is, where nothing is shifted out.
    amount = right.astype("int64")
    one = number(1, "int64")
    half = tirx.shift_right(tirx.shift_left(one, amount), one)
    negative = tirx.Select(tirx.all(high < number(0, "int64"), amount > number(0, "int64")), one, one - one)
    return tirx.shift_right(high + half - negative, amount).astype("int32")


def rescaled_wide(value: Any, multiplier: Any, total: Any) -> Any:
    """Return an int64 expression times a multiplier of 16 bits, divided by ``2**total``, halves up: int32.

    Args:
        multiplier, total: int64 expressions; see :func:`narrow_multiplier`.
    """
    one = number(1, "int64")
    rounded = value * multiplier + tirx.shift_left(one, total - one)
    return tirx.shift_right(rounded, total).astype("int32")


def narrow_multiplier(real: float) -> tuple[int, int]:
    """Return a real number as TensorFlow Lite multiplies sums of 64 bits by it: 15 bits, and how far to shift."""
    multiplier, shift = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, 0x7FFF), 15 - shift


def _is_zero(expression: Any) -> bool:
    return isinstance(expression, tirx.IntImm) and int(expression.value) == 0


def added(
    builder: Any,
    operator: str,
    operands: Sequence[Any],
    compute: Callable[..., Any],
    *,
    in_place: bool = False,
    macs: int = 0,
) -> Any:
    """Add a function to a module, and a call of it; return the call's result.

    The function is one block, or a reduction called ``accumulator`` and what is made of it, called ``output``. It
    reads its operands at no place that depends on their elements.

    Args:
        operator: what the report calls it.
        operands: Relax expressions or arrays, which become constants.
        compute: given a placeholder for each, returns the result's ``te`` tensor.
        in_place: each element is made of those at its place, and of nothing else of a tensor of its shape.
        macs: multiply-accumulates.
    """
    expressions, tensors = _placeholders(operands)
    output = compute(*tensors)
    function = te.create_prim_func([*tensors, output])
    overlap: list[int | None] = [None] * len(tensors)
    if any(each.op.name == _ACCUMULATOR for each in output.op.input_tensors):
        function = with_sum_in_place(function)
    else:
        function = _with_local_stages(function)
        if in_place:
            overlap = [0 if _alike(each, output) else None for each in tensors]
        if in_place and None not in overlap:
            function = with_one_loop(function)
    return called(builder, described(function, operator, overlap, macs), operator, expressions)


def checked(builder: Any, operator: str, operands: Sequence[Any], compute: Callable[..., Any]) -> Any:
    """As :func:`added`, for a function that reads at places that its operands say: each is looked at first."""
    expressions, tensors = _placeholders(operands)
    function = te.create_prim_func([*tensors, compute(*tensors)])
    return called(builder, function.with_attr("op_pattern", 8), operator, expressions)


def looped(
    builder: Any,
    operator: str,
    operands: Sequence[Any],
    results: Sequence[TfliteTensor],
    scratch: Mapping[str, tuple[tuple[int, ...], str]],
    body: Callable[[Sequence[Any], Sequence[Any], Mapping[str, Any]], None],
    macs: int,
) -> Any:
    """As :func:`added`, for loops that are written out, with several results; return the calls' tuple of them.

    Args:
        scratch: name to shape and element type of what the function needs while it runs.
        body: given the flat buffers of operands, results and scratch, builds the statements.
    """
    expressions, tensors = _placeholders(operands)
    made = [*((each.shape, each.dtype) for each in results), *scratch.values()]

    def statements(given: Any, written: Any) -> Any:
        with IRBuilder() as built:
            buffers = [building.buffer_proxy(each) for each in written]
            own = dict(zip(scratch, buffers[len(results) :], strict=True))
            with building.serial(0, 1):
                body([building.buffer_proxy(each) for each in given], buffers[: len(results)], own)
            return built.get()

    outputs = te.extern(
        [shape for shape, _ in made], tensors, statements, dtype=[dtype for _, dtype in made], name="output"
    )
    function = te.create_prim_func([*tensors, *outputs[: len(results)]])
    function = described(function, operator, [None] * len(tensors), macs)
    return called(builder, function, operator, expressions, len(results))


def called(builder: Any, function: Any, operator: str, expressions: Sequence[Any], results: int = 1) -> Any:
    """Add a function and a call of it; return the call's result, or the tuple of several."""
    # The module names it.
    function = function.without_attr("global_symbol")
    variable = builder.add_func(function.with_attr("tirx.noalias", True), f"tflite_{operator}")
    kinds = [
        relax.TensorType(shape_of(output.ty), element_type(output))
        for output in list(function.params)[len(expressions) :]
    ]
    return builder.emit(relax.call_tir(variable, list(expressions), kinds if results > 1 else kinds[0]))


def _placeholders(operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    expressions = [
        relax.const(each, str(each.dtype)) if isinstance(each, np.ndarray) else each for each in operands
    ]
    tensors = [
        te.placeholder(shape_of(each.ty), str(getattr(each.ty.dtype, "dtype", each.ty.dtype)), f"operand{count}")
        for count, each in enumerate(expressions)
    ]
    return expressions, tensors


def _with_local_stages(function: Any) -> Any:
    """Compute what a result is made of, number by number, in variables beside it."""
    plan = s_tir.Schedule(function)
    output = plan.get_sblock("output")
    loops = plan.get_loops(output)
    stages = [
        each for each in plan.get_child_blocks(plan.get_sblock("root")) if plan.get(each).name_hint != "output"
    ]
    for stage in reversed(stages if loops else []):
        plan.compute_at(stage, loops[-1])
        plan.set_scope(stage, 0, "local")
    return plan.mod["main"]


def _alike(operand: Any, output: Any) -> bool:
    sizes = [np.dtype(str(each.dtype)).itemsize for each in (operand, output)]
    return sizes[0] == sizes[1] and [int(each) for each in operand.shape] == [int(each) for each in output.shape]


def element(tensor: Any, *indices: Any) -> Any:
    """Return the element at some indices."""
    return tensor[indices]


def broadcast(tensor: Any, at: Sequence[Any]) -> Any:
    """Return the element that a place of a result is made of, where the operand may have fewer or shorter axes."""
    own = list(at)[len(at) - len(tensor.shape) :]
    return tensor[
        tuple(number(0) if int(extent) == 1 else place for place, extent in zip(own, tensor.shape, strict=True))
    ]
