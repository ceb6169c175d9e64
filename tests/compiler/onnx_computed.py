# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of operators that compute: on elements, along axes, in windows, over time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx_draw import Draw

Drawing = Callable[[Draw], None]

UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "HardSwish",
    "IsNaN",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "BitwiseNot",
    "Identity",
]
_WITH_NUMBERS = {
    "Celu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "Shrink": ("bias", "lambd"),
    "Swish": ("alpha",),
    "ThresholdedRelu": ("alpha",),
}
BINARY = [
    "Add",
    "And",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mul",
    "Or",
    "Sub",
    "Xor",
]
VARIADIC = ("Max", "Mean", "Min", "Sum")
REDUCTIONS = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
]
_WITHOUT_NAN = ("Relu",)


def unary(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(0), draw.dtype_for(operator))
        if operator in ("Acos", "Asin", "Atanh"):
            data = np.tanh(data)
        elif operator == "Acosh":
            data = np.abs(data) + 1
        elif operator in ("Log", "Sqrt"):
            data = np.abs(data) + np.array(1e-3, data.dtype)
        elif draw.chance(3) and operator not in _WITHOUT_NAN:
            data = draw.edged(data)
        elif operator == "Round":
            data = np.round(data * 2) / 2
        draw.output(*draw.node(operator, [draw.input(data)]))

    return drawing


def with_numbers(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(0), draw.dtype_for(operator))
        positive = operator in ("Celu", "Elu", "Shrink")
        numbers = {
            attribute: abs(value) + 0.05 if positive else value
            for attribute in _WITH_NUMBERS[operator]
            if draw.chance() and (value := round(float(draw.random.normal(0, 1)), 3)) is not None
        }
        draw.output(*draw.node(operator, [draw.input(data)], **numbers))

    return drawing


def draw_gelu(draw: Draw) -> None:
    data = draw.array(draw.extents(0), draw.dtype_for("Gelu"))
    draw.output(*draw.node("Gelu", [draw.input(data)], approximate=draw.pick(None, "none", "tanh")))


def draw_clip(draw: Draw) -> None:
    dtype = draw.dtype_for("Clip")
    data = draw.array(draw.extents(0), dtype)
    low, high = sorted((draw.integer(0, 20), draw.integer(0, 20)))
    if draw.chance(8):
        low, high = high, low
    if draw.opset < 11:
        bounds = {"min": float(low) if draw.chance() else None, "max": float(high) if draw.chance() else None}
        draw.output(*draw.node("Clip", [draw.input(data)], **bounds))
        return
    ends = [
        draw.either(np.array(bound, dtype), 2) if draw.chance(3) else draw.maybe(np.array(bound, dtype))
        for bound in (low, high)
    ]
    draw.output(*draw.node("Clip", [draw.input(data), *ends]))


def broadcastable_shape(draw: Draw, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts against another: fewer or more dimensions, or ones."""
    other = [1 if draw.chance(3) else extent for extent in shape][
        draw.integer(0, len(shape)) if draw.chance(3) else 0 :
    ]
    return (*draw.shape(draw.integer(0, 1), 3), *other) if draw.chance(4) and len(other) == len(shape) else tuple(other)


def binary(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        dtype = draw.dtype_for(operator)
        shape = draw.extents(0)
        limits = (-100, 100) if draw.chance() else (-(1 << 62), 1 << 62)
        left = draw.array([1 if draw.chance(6) else extent for extent in shape], dtype, *limits)
        right = draw.array(broadcastable_shape(draw, shape), dtype, *limits)
        if draw.chance(3):
            left, right = draw.edged(left), draw.edged(right)
        if operator in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual") and np.dtype(dtype).kind in "iu":
            left, right = left // 8, right // 8  # Then some are equal.
        names = [draw.input(left), draw.either(right)]
        draw.output(*draw.node(operator, names[::-1] if draw.chance() else names))

    return drawing


def draw_division(draw: Draw) -> None:
    dtype = draw.dtype_for("Div")
    shape = draw.extents(0)
    left, right = draw.array(shape, dtype, -100, 100), draw.array(broadcastable_shape(draw, shape), dtype, -9, 9)
    if np.dtype(dtype).kind != "f":
        right[right == 0] = 3
    draw.output(*draw.node("Div", [draw.input(left), draw.either(right)]))


def draw_modulo(draw: Draw) -> None:
    dtype = draw.dtype_for("Mod")
    shape = draw.extents(0)
    left, right = draw.array(shape, dtype, -100, 100), draw.array(broadcastable_shape(draw, shape), dtype, -9, 9)
    if np.dtype(dtype).kind != "f":
        right[right == 0] = -7 if np.dtype(dtype).kind == "i" else 7
    floats = np.dtype(dtype).kind == "f"
    draw.output(*draw.node("Mod", [draw.input(left), draw.either(right)], fmod=1 if floats or draw.chance() else None))


def draw_power(draw: Draw) -> None:
    dtype = draw.dtype_for("Pow")
    shape = draw.extents(0)
    base = draw.array(shape, dtype, -4, 4)
    kind = draw.dtype_for("Pow", 1) if draw.opset >= 12 else dtype
    exponent = draw.array(broadcastable_shape(draw, shape), kind, 0, 4)
    if np.dtype(kind).kind == "f":
        base = np.abs(base) + np.ones((), base.dtype) if draw.chance() else base
        exponent = exponent if draw.chance() and np.dtype(dtype).kind == "f" else np.round(np.abs(exponent))
    draw.output(*draw.node("Pow", [draw.input(base), draw.either(exponent, 2)]))


def draw_shift(draw: Draw) -> None:
    dtype = draw.dtype_for("BitShift")
    shape = draw.extents(0)
    bits = np.dtype(dtype).itemsize * 8
    left, right = draw.array(shape, dtype, 0, 1 << 62), draw.array(broadcastable_shape(draw, shape), dtype, 0, bits - 1)
    draw.output(*draw.node("BitShift", [draw.input(left), draw.either(right)], direction=draw.pick("LEFT", "RIGHT")))


def draw_prelu(draw: Draw) -> None:
    dtype = draw.dtype_for("PRelu")
    shape = draw.extents(1)
    slopes = [1 if draw.chance(3) else extent for extent in shape][
        draw.integer(0, len(shape)) if draw.chance() else 0 :
    ]
    draw.output(*draw.node("PRelu", [draw.input(draw.array(shape, dtype)), draw.either(draw.array(slopes, dtype), 2)]))


def variadic(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        dtype = draw.dtype_for(operator)
        shape = draw.extents(0)
        arrays = [
            draw.array(broadcastable_shape(draw, shape) if draw.opset >= 8 and draw.chance() else shape, dtype)
            for _ in range(draw.integer(1, 4))
        ]
        draw.output(*draw.node(operator, [draw.either(array) for array in arrays]))

    return drawing


def draw_where(draw: Draw) -> None:
    shape = draw.extents(0)
    dtype = draw.dtype_for("Where", 1)
    parts = [draw.either(draw.array(broadcastable_shape(draw, shape), kind), 4) for kind in ("bool", dtype, dtype)]
    draw.output(*draw.node("Where", parts))


def draw_is_inf(draw: Draw) -> None:
    data = draw.edged(draw.array(draw.extents(0), draw.dtype_for("IsInf")))
    flags = {f"detect_{sign}": draw.pick(None, 0, 1) for sign in ("negative", "positive")}
    draw.output(*draw.node("IsInf", [draw.input(data)], **flags))


def axes_of(draw: Draw, rank: int, minimum: int = 0) -> list[int]:
    """Some different axes, a few counted from the end."""
    axes = draw.random.permutation(rank)[: draw.integer(min(minimum, rank), rank)]
    return [int(axis) - (rank if draw.chance() and draw.opset >= 11 else 0) for axis in axes]


def reduction(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        dtype = draw.dtype_for(operator)
        data = draw.array(draw.extents(1), dtype, -5, 5)
        if operator == "ReduceLogSumExp" and data.dtype.kind != "f":
            data = draw.array(data.shape)  # For integers, the last bit of the exact result decides.
        if operator == "ReduceLogSum":
            data = np.abs(data) + np.ones((), data.dtype)
        axes = axes_of(draw, data.ndim) if draw.chance(4) else axes_of(draw, data.ndim, 1)
        names = [draw.input(data)]
        changes: dict[str, Any] = {"keepdims": draw.pick(None, 0, 1)}
        if draw.opset >= (13 if operator == "ReduceSum" else 18):
            names.append("" if draw.chance(5) else draw.constant(np.array(axes, np.int64)))
            changes["noop_with_empty_axes"] = draw.pick(None, 0, 1)
        elif axes:
            changes["axes"] = axes
        draw.output(*draw.node(operator, names, **changes))

    return drawing


def arg_reduction(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(1), draw.dtype_for(operator), -3, 3)
        if draw.chance(3):
            data = np.round(data).astype(data.dtype)
        last = draw.pick(None, 0, 1) if draw.opset >= 12 else None
        draw.output(
            *draw.node(
                operator,
                [draw.input(data)],
                axis=draw.pick(None, *axes_of(draw, data.ndim, 1)),
                keepdims=draw.pick(None, 0, 1),
                select_last_index=last,
            )
        )

    return drawing


def cumulation(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(1), draw.dtype_for(operator), -3, 3)
        axis = draw.integer(-data.ndim, data.ndim - 1)
        flags = {flag: draw.pick(None, 0, 1) for flag in ("exclusive", "reverse")}
        draw.output(
            *draw.node(
                operator, [draw.input(data), draw.constant(np.array(axis, draw.pick(np.int32, np.int64)))], **flags
            )
        )

    return drawing


def draw_top_k(draw: Draw) -> None:
    dtype = draw.dtype_for("TopK")
    data = draw.array(draw.extents(1), dtype, -50, 50)
    if draw.chance():
        data = np.round(data / 3).astype(dtype)
    axis = draw.integer(-data.ndim, data.ndim - 1) if draw.opset >= 11 else draw.integer(0, data.ndim - 1)
    count = draw.integer(1, data.shape[axis])
    changes = {"axis": axis} if axis not in (-1, data.ndim - 1) or draw.chance() else {}
    if draw.opset < 10:
        draw.output(*draw.node("TopK", [draw.input(data)], 2, k=count, **changes))
        return
    changes["largest"] = draw.pick(None, 0, 1) if draw.opset >= 11 else None
    draw.output(*draw.node("TopK", [draw.input(data), draw.ints(count)], 2, **changes))


def normalisation(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(1 if draw.opset >= 13 else 2), draw.dtype_for(operator))
        if draw.chance(6) and operator != "Hardmax":
            data = data * np.array(60, data.dtype)
            # ONNX's evaluator takes the logarithm of a number that underflowed to 0.
            draw.misread = operator == "LogSoftmax"
        low = -data.ndim if draw.opset >= 11 else 0
        axis = draw.pick(None, draw.integer(low, data.ndim - 1))
        draw.misread |= draw.opset < 13 and axis not in (-1, data.ndim - 1)
        draw.output(*draw.node(operator, [draw.input(data)], axis=axis))

    return drawing


def draw_matrix_product(draw: Draw) -> None:
    dtype = draw.dtype_for("MatMul")
    rows, inner, columns = draw.shape(3, 7)
    batch = draw.shape(draw.integer(0, 2), 3)
    left = (*broadcastable_shape(draw, batch), rows, inner) if draw.chance() else (*batch, rows, inner)
    right = (*broadcastable_shape(draw, batch), inner, columns) if draw.chance() else (*batch, inner, columns)
    if draw.chance(6):
        left = (inner,)
    if draw.chance(6):
        right = (inner,)
    names = [draw.input(draw.array(left, dtype)), draw.either(draw.array(right, dtype), 2)]
    draw.output(*draw.node("MatMul", names))


def draw_gemm(draw: Draw) -> None:
    dtype = draw.dtype_for("Gemm")
    rows, inner, columns = draw.shape(3, 7)
    transposed = [draw.pick(None, 0, 1) for _ in range(2)]
    left = (inner, rows) if transposed[0] else (rows, inner)
    right = (columns, inner) if transposed[1] else (inner, columns)
    names = [draw.input(draw.array(left, dtype)), draw.either(draw.array(right, dtype), 2)]
    if draw.opset < 11 or draw.chance(3):
        shape = draw.pick((rows, columns), (columns,), (1, columns), (rows, 1), (1,), ())
        names.append(draw.either(draw.array(shape, dtype)))
    is_integer = np.dtype(dtype).kind != "f"
    scales = {factor: draw.pick(None, 1.0, 2.0, 0.0 if is_integer else 0.37) for factor in ("alpha", "beta")}
    draw.output(*draw.node("Gemm", names, transA=transposed[0], transB=transposed[1], **scales))


_EQUATIONS = (
    ("ij,jk->ik", "ab", "bc"),
    ("bij,bjk->bik",),
    ("ij->ji",),
    ("ii->i",),
    ("ii",),
    ("ij,ij",),
    ("i,j->ij",),
    ("...ij,...jk->...ik",),
    ("bhqd,bhkd->bhqk",),
    ("ijk->k",),
    ("ab , cb -> ca",),
    ("ij,j",),
    ("...i->...",),
    ("ij,jk,kl->il",),
)


def draw_einsum(draw: Draw) -> None:
    equation = draw.pick(*_EQUATIONS)[0]
    extents = {letter: draw.integer(1, 4) for letter in "abcdhijklqk"}
    dots = draw.shape(draw.integer(0, 2), 3)
    operands = equation.split("->")[0].replace(" ", "").split(",")
    names = []
    for operand in operands:
        lead = dots if "..." in operand else ()
        shape = (*lead, *(extents[letter] for letter in operand if letter != "."))
        names.append(draw.input(draw.array(shape)))
    draw.output(*draw.node("Einsum", names, equation=equation))


COMPUTED: dict[str, Drawing] = {
    **{operator: unary(operator) for operator in UNARY},
    **{operator: with_numbers(operator) for operator in _WITH_NUMBERS},
    **{operator: binary(operator) for operator in BINARY},
    **{operator: variadic(operator) for operator in VARIADIC},
    **{operator: reduction(operator) for operator in REDUCTIONS},
    **{operator: arg_reduction(operator) for operator in ("ArgMax", "ArgMin")},
    **{operator: cumulation(operator) for operator in ("CumProd", "CumSum")},
    **{operator: normalisation(operator) for operator in ("Hardmax", "LogSoftmax", "Softmax")},
    "BitShift": draw_shift,
    "Clip": draw_clip,
    "Div": draw_division,
    "Einsum": draw_einsum,
    "Gelu": draw_gelu,
    "Gemm": draw_gemm,
    "IsInf": draw_is_inf,
    "MatMul": draw_matrix_product,
    "Mod": draw_modulo,
    "PRelu": draw_prelu,
    "Pow": draw_power,
    "TopK": draw_top_k,
    "Where": draw_where,
}
