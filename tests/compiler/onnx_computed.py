# SPDX-License-Identifier: Apache-2.0
"""Drawing ONNX's operators that compute: on single elements, along axes, in windows, over time."""

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
_MEANS_NO_NAN = ("Relu",)


def unary(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(0), draw.dtype_for(operator))
        if operator in ("Acos", "Asin", "Atanh"):
            data = np.tanh(data)
        elif operator == "Acosh":
            data = np.abs(data) + 1
        elif operator in ("Log", "Sqrt"):
            data = np.abs(data) + np.array(1e-3, data.dtype)
        elif draw.chance(3) and operator not in _MEANS_NO_NAN:
            data = draw.edged(data)
        elif operator == "Round":
            data = np.round(data * 2) / 2
        draw.give(*draw.node(operator, [draw.input(data)]))

    return drawing


def with_numbers(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(0), draw.dtype_for(operator))
        positive = operator in ("Celu", "Elu", "Shrink")
        numbers = {
            each: abs(value) + 0.05 if positive else value
            for each in _WITH_NUMBERS[operator]
            if draw.chance() and (value := round(float(draw.random.normal(0, 1)), 3)) is not None
        }
        draw.give(*draw.node(operator, [draw.input(data)], **numbers))

    return drawing


def a_gelu(draw: Draw) -> None:
    data = draw.array(draw.extents(0), draw.dtype_for("Gelu"))
    draw.give(*draw.node("Gelu", [draw.input(data)], approximate=draw.pick(None, "none", "tanh")))


def a_clip(draw: Draw) -> None:
    dtype = draw.dtype_for("Clip")
    data = draw.array(draw.extents(0), dtype)
    low, high = sorted((draw.integer(0, 20), draw.integer(0, 20)))
    if draw.chance(8):
        low, high = high, low
    if draw.opset < 11:
        bounds = {"min": float(low) if draw.chance() else None, "max": float(high) if draw.chance() else None}
        draw.give(*draw.node("Clip", [draw.input(data)], **bounds))
        return
    ends = [
        draw.either(np.array(each, dtype), 2) if draw.chance(3) else draw.maybe(np.array(each, dtype))
        for each in (low, high)
    ]
    draw.give(*draw.node("Clip", [draw.input(data), *ends]))


def _pair(draw: Draw, shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that broadcasts against another: fewer dimensions, or more, or ones in them."""
    other = [1 if draw.chance(3) else extent for extent in shape][
        draw.integer(0, len(shape)) if draw.chance(3) else 0 :
    ]
    return (*draw.shape(draw.integer(0, 1), 3), *other) if draw.chance(4) and len(other) == len(shape) else tuple(other)


def binary(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        dtype = draw.dtype_for(operator)
        shape = draw.extents(0)
        limits = (-100, 100) if draw.chance() else (-(1 << 62), 1 << 62)
        one = draw.array([1 if draw.chance(6) else each for each in shape], dtype, *limits)
        other = draw.array(_pair(draw, shape), dtype, *limits)
        if draw.chance(3):
            one, other = draw.edged(one), draw.edged(other)
        if operator in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual") and np.dtype(dtype).kind in "iu":
            one, other = one // 8, other // 8  # Some are the same then.
        names = [draw.input(one), draw.either(other)]
        draw.give(*draw.node(operator, names[::-1] if draw.chance() else names))

    return drawing


def a_division(draw: Draw) -> None:
    dtype = draw.dtype_for("Div")
    shape = draw.extents(0)
    one, other = draw.array(shape, dtype, -100, 100), draw.array(_pair(draw, shape), dtype, -9, 9)
    if np.dtype(dtype).kind != "f":
        other[other == 0] = 3
    draw.give(*draw.node("Div", [draw.input(one), draw.either(other)]))


def a_modulo(draw: Draw) -> None:
    dtype = draw.dtype_for("Mod")
    shape = draw.extents(0)
    one, other = draw.array(shape, dtype, -100, 100), draw.array(_pair(draw, shape), dtype, -9, 9)
    if np.dtype(dtype).kind != "f":
        other[other == 0] = -7 if np.dtype(dtype).kind == "i" else 7
    floats = np.dtype(dtype).kind == "f"
    draw.give(*draw.node("Mod", [draw.input(one), draw.either(other)], fmod=1 if floats or draw.chance() else None))


def a_power(draw: Draw) -> None:
    dtype = draw.dtype_for("Pow")
    shape = draw.extents(0)
    base = draw.array(shape, dtype, -4, 4)
    kind = draw.dtype_for("Pow", 1) if draw.opset >= 12 else dtype
    exponent = draw.array(_pair(draw, shape), kind, 0, 4)
    if np.dtype(kind).kind == "f":
        base = np.abs(base) + np.ones((), base.dtype) if draw.chance() else base
        exponent = exponent if draw.chance() and np.dtype(dtype).kind == "f" else np.round(np.abs(exponent))
    draw.give(*draw.node("Pow", [draw.input(base), draw.either(exponent, 2)]))


def a_shift(draw: Draw) -> None:
    dtype = draw.dtype_for("BitShift")
    shape = draw.extents(0)
    bits = np.dtype(dtype).itemsize * 8
    one, other = draw.array(shape, dtype, 0, 1 << 62), draw.array(_pair(draw, shape), dtype, 0, bits - 1)
    draw.give(*draw.node("BitShift", [draw.input(one), draw.either(other)], direction=draw.pick("LEFT", "RIGHT")))


def a_prelu(draw: Draw) -> None:
    dtype = draw.dtype_for("PRelu")
    shape = draw.extents(1)
    slopes = [1 if draw.chance(3) else extent for extent in shape][
        draw.integer(0, len(shape)) if draw.chance() else 0 :
    ]
    draw.give(*draw.node("PRelu", [draw.input(draw.array(shape, dtype)), draw.either(draw.array(slopes, dtype), 2)]))


def variadic(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        dtype = draw.dtype_for(operator)
        shape = draw.extents(0)
        arrays = [
            draw.array(_pair(draw, shape) if draw.opset >= 8 and draw.chance() else shape, dtype)
            for _ in range(draw.integer(1, 4))
        ]
        draw.give(*draw.node(operator, [draw.either(each) for each in arrays]))

    return drawing


def a_choice(draw: Draw) -> None:
    shape = draw.extents(0)
    dtype = draw.dtype_for("Where", 1)
    parts = [draw.either(draw.array(_pair(draw, shape), each), 4) for each in ("bool", dtype, dtype)]
    draw.give(*draw.node("Where", parts))


def is_infinite(draw: Draw) -> None:
    data = draw.edged(draw.array(draw.extents(0), draw.dtype_for("IsInf")))
    flags = {f"detect_{each}": draw.pick(None, 0, 1) for each in ("negative", "positive")}
    draw.give(*draw.node("IsInf", [draw.input(data)], **flags))


def axes_of(draw: Draw, rank: int, least: int = 0) -> list[int]:
    """Return some different axes, some counted from the end."""
    kept = draw.random.permutation(rank)[: draw.integer(min(least, rank), rank)]
    return [int(each) - (rank if draw.chance() and draw.opset >= 11 else 0) for each in kept]


def reduction(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        dtype = draw.dtype_for(operator)
        data = draw.array(draw.extents(1), dtype, -5, 5)
        if operator == "ReduceLogSumExp" and data.dtype.kind != "f":
            data = draw.array(data.shape)  # Where it is written in integers, its last bit decides.
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
        draw.give(*draw.node(operator, names, **changes))

    return drawing


def place_of(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(1), draw.dtype_for(operator), -3, 3)
        if draw.chance(3):
            data = np.round(data).astype(data.dtype)
        last = draw.pick(None, 0, 1) if draw.opset >= 12 else None
        draw.give(
            *draw.node(
                operator,
                [draw.input(data)],
                axis=draw.pick(None, *axes_of(draw, data.ndim, 1)),
                keepdims=draw.pick(None, 0, 1),
                select_last_index=last,
            )
        )

    return drawing


def cumulated(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(1), draw.dtype_for(operator), -3, 3)
        axis = draw.integer(-data.ndim, data.ndim - 1)
        flags = {each: draw.pick(None, 0, 1) for each in ("exclusive", "reverse")}
        draw.give(
            *draw.node(
                operator, [draw.input(data), draw.constant(np.array(axis, draw.pick(np.int32, np.int64)))], **flags
            )
        )

    return drawing


def the_largest(draw: Draw) -> None:
    dtype = draw.dtype_for("TopK")
    data = draw.array(draw.extents(1), dtype, -50, 50)
    if draw.chance():
        data = np.round(data / 3).astype(dtype)
    axis = draw.integer(-data.ndim, data.ndim - 1) if draw.opset >= 11 else draw.integer(0, data.ndim - 1)
    count = draw.integer(1, data.shape[axis])
    changes = {"axis": axis} if axis not in (-1, data.ndim - 1) or draw.chance() else {}
    if draw.opset < 10:
        draw.give(*draw.node("TopK", [draw.input(data)], 2, k=count, **changes))
        return
    changes["largest"] = draw.pick(None, 0, 1) if draw.opset >= 11 else None
    draw.give(*draw.node("TopK", [draw.input(data), draw.ints(count)], 2, **changes))


def normalised(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(1 if draw.opset >= 13 else 2), draw.dtype_for(operator))
        if draw.chance(6) and operator != "Hardmax":
            data = data * np.array(60, data.dtype)
            # ONNX's evaluator takes the logarithm of what is too small to be a number other than 0.
            draw.misread = operator == "LogSoftmax"
        low = -data.ndim if draw.opset >= 11 else 0
        axis = draw.pick(None, draw.integer(low, data.ndim - 1))
        draw.misread |= draw.opset < 13 and axis not in (-1, data.ndim - 1)
        draw.give(*draw.node(operator, [draw.input(data)], axis=axis))

    return drawing


def a_matrix_product(draw: Draw) -> None:
    dtype = draw.dtype_for("MatMul")
    rows, inner, columns = draw.shape(3, 7)
    batch = draw.shape(draw.integer(0, 2), 3)
    left = (*_pair(draw, batch), rows, inner) if draw.chance() else (*batch, rows, inner)
    right = (*_pair(draw, batch), inner, columns) if draw.chance() else (*batch, inner, columns)
    if draw.chance(6):
        left = (inner,)
    if draw.chance(6):
        right = (inner,)
    names = [draw.input(draw.array(left, dtype)), draw.either(draw.array(right, dtype), 2)]
    draw.give(*draw.node("MatMul", names))


def a_gemm(draw: Draw) -> None:
    dtype = draw.dtype_for("Gemm")
    rows, inner, columns = draw.shape(3, 7)
    turned = [draw.pick(None, 0, 1) for _ in range(2)]
    left = (inner, rows) if turned[0] else (rows, inner)
    right = (columns, inner) if turned[1] else (inner, columns)
    names = [draw.input(draw.array(left, dtype)), draw.either(draw.array(right, dtype), 2)]
    if draw.opset < 11 or draw.chance(3):
        shape = draw.pick((rows, columns), (columns,), (1, columns), (rows, 1), (1,), ())
        names.append(draw.either(draw.array(shape, dtype)))
    whole = np.dtype(dtype).kind != "f"
    scales = {each: draw.pick(None, 1.0, 2.0, 0.0 if whole else 0.37) for each in ("alpha", "beta")}
    draw.give(*draw.node("Gemm", names, transA=turned[0], transB=turned[1], **scales))


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


def an_einsum(draw: Draw) -> None:
    equation = draw.pick(*_EQUATIONS)[0]
    extents = {letter: draw.integer(1, 4) for letter in "abcdhijklqk"}
    dots = draw.shape(draw.integer(0, 2), 3)
    operands = equation.split("->")[0].replace(" ", "").split(",")
    names = []
    for operand in operands:
        lead = dots if "..." in operand else ()
        shape = (*lead, *(extents[letter] for letter in operand if letter != "."))
        names.append(draw.input(draw.array(shape)))
    draw.give(*draw.node("Einsum", names, equation=equation))


COMPUTED: dict[str, Drawing] = {
    **{each: unary(each) for each in UNARY},
    **{each: with_numbers(each) for each in _WITH_NUMBERS},
    **{each: binary(each) for each in BINARY},
    **{each: variadic(each) for each in VARIADIC},
    **{each: reduction(each) for each in REDUCTIONS},
    **{each: place_of(each) for each in ("ArgMax", "ArgMin")},
    **{each: cumulated(each) for each in ("CumProd", "CumSum")},
    **{each: normalised(each) for each in ("Hardmax", "LogSoftmax", "Softmax")},
    "BitShift": a_shift,
    "Clip": a_clip,
    "Div": a_division,
    "Einsum": an_einsum,
    "Gelu": a_gelu,
    "Gemm": a_gemm,
    "IsInf": is_infinite,
    "MatMul": a_matrix_product,
    "Mod": a_modulo,
    "PRelu": a_prelu,
    "Pow": a_power,
    "TopK": the_largest,
    "Where": a_choice,
}
