# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of quantised operators: between QuantizeLinear and DequantizeLinear, QLinear*, and exact sums."""

from typing import Any

import numpy as np
from onnx_computed import Drawing
from onnx_draw import MICROSOFT, Draw
from onnx_layers import extents_of, fitting

_BYTES = ("int8", "uint8")


def _zero(draw: Draw, dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.array(draw.pick(0, 0, limits.min, limits.max, draw.integer(limits.min, limits.max)), dtype)


def _scale(draw: Draw, size: tuple[int, ...] = (), low: float = 0.004, high: float = 0.08) -> np.ndarray:
    return np.exp(draw.random.uniform(np.log(low), np.log(high), size)).astype(np.float32)


def _full(draw: Draw, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return draw.array(shape, dtype, -(1 << 31), 1 << 31)


def draw_quantise(draw: Draw) -> None:
    dtype = draw.pick(*_BYTES, *(["int16", "uint16"] if draw.opset >= 21 else []))
    data = draw.array(draw.extents(1))
    if draw.chance(4):
        data = np.nan_to_num(draw.edged(data), posinf=9e9, neginf=-9e9)
        draw.misread = True  # The evaluator converts to integers before it saturates.
    axis = draw.integer(0, data.ndim - 1) if draw.opset >= 13 and draw.chance() else None
    size = () if axis is None else (data.shape[axis],)
    zero = draw.constant(np.full(size, _zero(draw, dtype), dtype)) if dtype != "uint8" or draw.chance() else ""
    shown = None if axis is None else draw.pick(axis, axis - data.ndim)
    draw.output(*draw.node("QuantizeLinear", [draw.input(data), draw.constant(_scale(draw, size)), zero], axis=shown))


def draw_dequantise(draw: Draw) -> None:
    dtype = draw.pick(*_BYTES, "int32", *(["int16", "uint16"] if draw.opset >= 21 else []))
    data = draw.array(draw.extents(1), dtype, -70000, 70000)
    axis = draw.integer(0, data.ndim - 1) if draw.opset >= 13 and draw.chance() else None
    size = () if axis is None else (data.shape[axis],)
    zero = draw.constant(draw.array(size, dtype, -100, 100)) if dtype != "int32" and draw.chance() else ""
    shown = None if axis is None else draw.pick(axis, axis - data.ndim)
    draw.output(*draw.node("DequantizeLinear", [draw.input(data), draw.constant(_scale(draw, size)), zero], axis=shown))


def draw_dynamic_quantise(draw: Draw) -> None:
    draw.steps = 1
    draw.output(*draw.node("DynamicQuantizeLinear", [draw.input(draw.array(draw.extents(1)))], 3))


class _Between:
    """Float tensors between quantised tensors."""

    def __init__(self, draw: Draw, dtype: str) -> None:
        self.draw, self.dtype = draw, dtype

    def read(self, shape: tuple[int, ...], scale: np.ndarray | None = None, zero: np.ndarray | None = None) -> str:
        """Add a quantised input; return its dequantised tensor."""
        draw = self.draw
        data = draw.input(_full(draw, shape, self.dtype))
        numbers = [
            draw.constant(_scale(draw) if scale is None else scale),
            draw.constant(_zero(draw, self.dtype) if zero is None else zero),
        ]
        return draw.node("DequantizeLinear", [data, *numbers])[0]

    def weights(self, shape: tuple[int, ...], axis: int) -> str:
        """Add quantised weights, with one scale or one per channel; return the dequantised tensor."""
        draw = self.draw
        size = (shape[axis],) if draw.opset >= 13 and draw.chance() else ()
        data = draw.constant(_full(draw, shape, "int8"))
        numbers = [draw.constant(_scale(draw, size, 0.002, 0.02)), draw.constant(np.zeros(size, np.int8))]
        return draw.node("DequantizeLinear", [data, *numbers], axis=axis if size else None)[0]

    def write(
        self, real: str, high: float = 0.3, scale: np.ndarray | None = None, zero: np.ndarray | None = None
    ) -> None:
        """Quantise a float tensor, the model's result."""
        draw = self.draw
        scale = _scale(draw, (), 0.02, high) if scale is None else scale
        numbers = [draw.constant(scale), draw.constant(_zero(draw, self.dtype) if zero is None else zero)]
        result = draw.node("QuantizeLinear", [real, *numbers])[0]
        draw.steps = 1
        if draw.chance(4):
            result = draw.node("DequantizeLinear", [result, *numbers])[0]
            draw.steps = float(scale)
        draw.output(result)


def draw_convolution(draw: Draw) -> None:
    between = _Between(draw, draw.pick(*_BYTES))
    extents, kernel = extents_of(draw)
    groups = draw.pick(1, 1, 1, 2, 3)
    inside, outside = (1, 1) if groups > 1 and draw.chance() else (draw.integer(1, 3), draw.integer(1, 3))
    names = [
        between.read((draw.integer(1, 2), groups * inside, *extents)),
        between.weights((groups * outside, inside, *kernel), 0),
    ]
    if draw.chance():
        names.append(draw.constant(draw.array((groups * outside,))))
    real = draw.node("Conv", names, group=groups, **fitting(draw, extents, kernel))[0]
    real = draw.node(draw.pick("Relu", "Clip") if draw.opset >= 11 else "Relu", [real])[0] if draw.chance(3) else real
    between.write(real)


def draw_dense_layer(draw: Draw) -> None:
    between = _Between(draw, draw.pick(*_BYTES))
    rows, inner, columns = draw.shape(3, 8)
    data = between.read((rows, inner))
    if draw.chance():
        real = draw.node("MatMul", [data, between.weights((inner, columns), 1)])[0]
        if draw.chance():
            real = draw.node("Add", [real, draw.constant(draw.array((columns,)))])[0]
    else:
        bias = draw.constant(draw.array((columns,)))
        transposed = draw.pick(0, 1)
        weights = between.weights((columns, inner) if transposed else (inner, columns), 0 if transposed else 1)
        real = draw.node("Gemm", [data, weights, bias], transB=transposed, alpha=draw.pick(None, None, 0.5))[0]
    between.write(draw.node("Relu", [real])[0] if draw.chance(3) else real)


def two_inputs(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        between = _Between(draw, draw.pick(*_BYTES))
        shape = draw.extents(1)
        other = [1 if draw.chance(3) else extent for extent in shape][
            draw.integer(0, len(shape)) if draw.chance(3) else 0 :
        ]
        if operator == "MatMul":
            rows, inner, columns = draw.shape(3, 5)
            lead = draw.shape(draw.integer(0, 2), 3)
            shape, other = (*lead, rows, inner), [*lead, inner, columns]
        names = [between.read(shape), between.read(tuple(other))]
        if operator == "Div":
            divisors = (
                np.array([-3, -1, 1, 2, 90], np.int8) if between.dtype == "int8" else np.array([1, 3, 200], np.uint8)
            )
            data = draw.constant(draw.random.choice(divisors, tuple(other)))
            names[1] = draw.node(
                "DequantizeLinear", [data, draw.constant(_scale(draw)), draw.constant(np.array(0, between.dtype))]
            )[0]
        between.write(
            draw.node(operator, names[::-1] if draw.chance() and operator not in ("Div", "MatMul") else names)[0]
        )

    return drawing


def one_input(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        between = _Between(draw, draw.pick(*_BYTES))
        shape = draw.extents(1)
        changes: dict[str, Any] = {}
        if operator == "Softmax":
            changes["axis"] = draw.integer(-len(shape) if draw.opset >= 13 else 0, len(shape) - 1)
        if operator == "LeakyRelu":
            changes["alpha"] = draw.pick(None, 0.2)
        if operator in ("AveragePool", "MaxPool"):
            extents, kernel = extents_of(draw)
            shape = (draw.integer(1, 2), draw.integer(1, 3), *extents)
            changes = {"kernel_shape": kernel, **fitting(draw, extents, kernel, False)}
            if "pads" in changes:
                changes["pads"] = [min(pad, kernel[axis % len(kernel)] - 1) for axis, pad in enumerate(changes["pads"])]
            if operator == "AveragePool":
                changes["count_include_pad"] = draw.pick(None, 0, 1)
        if operator == "GlobalAveragePool":
            shape = (1, draw.integer(1, 3), *draw.shape(draw.integer(1, 3), 5))
        if operator in ("ReduceMean", "ReduceMax", "ReduceSum"):
            axis = draw.integer(0, len(shape) - 1)
            changes["keepdims"] = draw.pick(None, 0, 1)
            if draw.opset >= (13 if operator == "ReduceSum" else 18):
                between.write(draw.node(operator, [between.read(shape), draw.ints(axis)], **changes)[0])
                return
            changes["axes"] = [axis]
        # Negative numbers have no root.
        zero = np.array(np.iinfo(between.dtype).min, between.dtype) if operator == "Sqrt" else None
        between.write(draw.node(operator, [between.read(shape, None, zero)], **changes)[0])

    return drawing


def draw_move(draw: Draw) -> None:
    between = _Between(draw, draw.pick(*_BYTES))
    shape = draw.extents(1)
    scale, zero = _scale(draw), _zero(draw, between.dtype)
    if draw.chance():
        scales = (None, None) if draw.chance() else (scale, zero)
        parts = [between.read(shape, *scales) for _ in range(draw.integer(1, 3))]
        between.write(draw.node("Concat", parts, axis=draw.integer(0, len(shape) - 1))[0], 0.1, *scales)
        return
    real = between.read(shape, scale, zero)
    operation = draw.integer(0, 2)
    if operation == 0:
        real = draw.node("Transpose", [real], perm=[int(axis) for axis in draw.random.permutation(len(shape))])[0]
    elif operation == 1:
        real = draw.node("Reshape", [real, draw.ints(-1)])[0]
    else:
        real = (
            draw.node("Pad", [real, draw.ints(*(draw.integer(0, 2) for _ in range(2 * len(shape))))])[0]
            if draw.opset >= 11
            else real
        )
    between.write(real, 0.1, *(draw.pick((scale, zero), (None, None))))


def draw_quantised_convolution(draw: Draw) -> None:
    draw.steps = 1
    dtype = draw.pick(*_BYTES)
    extents, kernel = extents_of(draw)
    extents, kernel = extents[:2], kernel[:2]  # Neither reference pads three dimensions with the zero point.
    groups = draw.pick(1, 1, 1, 2, 3)
    inside, outside = draw.integer(1, 3), draw.integer(1, 3)
    weights = draw.pick("int8", dtype)
    size = (groups * outside,) if weights == "int8" and draw.chance() else ()
    zero = np.zeros(size, "int8") if size or draw.chance() else _zero(draw, weights)
    names = [
        draw.input(_full(draw, (draw.integer(1, 2), groups * inside, *extents), dtype)),
        draw.constant(_scale(draw)),
        draw.constant(_zero(draw, dtype)),
        draw.constant(_full(draw, (groups * outside, inside, *kernel), weights)),
        draw.constant(_scale(draw, size, 0.002, 0.02)),
        draw.constant(zero.astype(weights)),
        draw.constant(_scale(draw, (), 0.05, 0.4)),
        draw.constant(_zero(draw, dtype)),
        draw.maybe(draw.array((groups * outside,), "int32", -3000, 3000)),
    ]
    changes = fitting(draw, extents, kernel)
    draw.misread = bool({"pads", "auto_pad"} & changes.keys())
    draw.output(*draw.node("QLinearConv", names, group=groups, **changes))


def draw_quantised_product(draw: Draw) -> None:
    draw.steps = 1
    left, right = draw.pick(*_BYTES), draw.pick(*_BYTES)
    rows, inner, columns = draw.shape(3, 6)
    lead = draw.shape(draw.integer(0, 2), 3)
    add_operand = draw.input if draw.chance(3) else draw.constant
    size = (columns,) if draw.chance(3) else ()
    names = [
        draw.input(_full(draw, (*lead, rows, inner), left)),
        draw.constant(_scale(draw)),
        draw.constant(_zero(draw, left)),
        add_operand(_full(draw, (*(lead if draw.chance() else ()), inner, columns), right)),
        draw.constant(_scale(draw, size, 0.002, 0.02)),
        draw.constant(np.full(size, _zero(draw, right), right)),
        draw.constant(_scale(draw, (), 0.03, 0.3)),
        draw.constant(_zero(draw, left)),
    ]
    draw.output(*draw.node("QLinearMatMul", names))


def draw_conv_integer(draw: Draw) -> None:
    left, right = draw.pick(*_BYTES), draw.pick(*_BYTES)
    extents, kernel = extents_of(draw)
    inside, outside = draw.integer(1, 3), draw.integer(1, 3)
    names = [
        draw.input(_full(draw, (draw.integer(1, 2), inside, *extents), left)),
        draw.constant(_full(draw, (outside, inside, *kernel), right)),
        draw.maybe(_zero(draw, left)),
        draw.maybe(_zero(draw, right)),
    ]
    draw.output(*draw.node("ConvInteger", names, **fitting(draw, extents, kernel)))


def draw_matmul_integer(draw: Draw) -> None:
    left, right = draw.pick(*_BYTES), draw.pick(*_BYTES)
    rows, inner, columns = draw.shape(3, 6)
    lead = draw.shape(draw.integer(0, 2), 3)
    zeros = [_zero(draw, left), _zero(draw, right)]
    if draw.chance(3):
        zeros[1] = draw.array((columns,), right, -128, 255)
    names = [
        draw.input(_full(draw, (*lead, rows, inner), left)),
        draw.either(_full(draw, (*lead, inner, columns), right), 2),
    ]
    draw.output(*draw.node("MatMulInteger", [*names, *(draw.maybe(zero) for zero in zeros)]))


def microsoft(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        draw.steps = 1
        dtype = draw.pick(*_BYTES)
        shape = draw.extents(2)

        def scale_and_zero(low: float = 0.004, high: float = 0.08) -> list[str]:
            return [draw.constant(_scale(draw, (), low, high)), draw.constant(_zero(draw, dtype))]

        def read(shape: tuple[int, ...]) -> list[str]:
            return [draw.input(_full(draw, shape, dtype)), *scale_and_zero()]

        changes: dict[str, Any] = {}
        if operator in ("QLinearAdd", "QLinearMul"):
            other = tuple(1 if draw.chance(3) else extent for extent in shape)
            names = [*read(shape), *read(other), *scale_and_zero(0.01, 0.2)]
        elif operator == "QLinearConcat":
            axis = draw.integer(0, len(shape) - 1)
            changes["axis"] = axis
            names = [*scale_and_zero(), *(name for _ in range(draw.integer(1, 3)) for name in read(shape))]
        elif operator in ("QLinearAveragePool", "QLinearGlobalAveragePool"):
            extents, kernel = extents_of(draw)
            extents, kernel = (*extents, 3)[:2], [*kernel, 2][:2]
            names = [*read((1, draw.integer(1, 3), *extents)), *scale_and_zero()]
            if operator == "QLinearAveragePool":
                changes = {
                    "kernel_shape": kernel,
                    **fitting(draw, extents, kernel, False),
                    "count_include_pad": draw.pick(None, 0, 1),
                }
                if "pads" in changes:
                    changes["pads"] = [min(pad, kernel[axis % 2] - 1) for axis, pad in enumerate(changes["pads"])]
        else:
            names = [*read(shape), *scale_and_zero(0.003, 0.05)]
            if operator == "QLinearLeakyRelu":
                changes["alpha"] = draw.pick(None, 0.2)
            if operator == "QLinearSoftmax":
                changes = {"axis": draw.integer(-len(shape), len(shape) - 1), "opset": 13}
        draw.output(*draw.node(operator, names, domain=MICROSOFT, **changes))

    return drawing


INTEGERS: dict[str, Drawing] = {
    **{
        f"{operator} in int8": one_input(operator)
        for operator in (
            "AveragePool",
            "GlobalAveragePool",
            "LeakyRelu",
            "MaxPool",
            "ReduceMax",
            "ReduceMean",
            "ReduceSum",
            "Relu",
            "Sigmoid",
            "Softmax",
            "Tanh",
            "HardSigmoid",
            "HardSwish",
            "Exp",
            "Abs",
            "Neg",
            "Sqrt",
        )
    },
    **{
        f"{operator} in int8": two_inputs(operator) for operator in ("Add", "Div", "MatMul", "Max", "Min", "Mul", "Sub")
    },
    **{
        operator: microsoft(operator)
        for operator in (
            "QLinearAdd",
            "QLinearAveragePool",
            "QLinearConcat",
            "QLinearGlobalAveragePool",
            "QLinearLeakyRelu",
            "QLinearMul",
            "QLinearSigmoid",
            "QLinearSoftmax",
        )
    },
    "Conv in int8": draw_convolution,
    "MatMul with weights in int8": draw_dense_layer,
    "Concat in int8": draw_move,
    "ConvInteger": draw_conv_integer,
    "DequantizeLinear": draw_dequantise,
    "DynamicQuantizeLinear": draw_dynamic_quantise,
    "MatMulInteger": draw_matmul_integer,
    "QLinearConv": draw_quantised_convolution,
    "QLinearMatMul": draw_quantised_product,
    "QuantizeLinear": draw_quantise,
}
