# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators that the importer lacks or converts with another meaning than ONNX's."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx.helper

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported

_MAX_POWER = 64


def _power(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    base, exponent = (graph.dtype(name) for name in node.inputs)
    if base.kind == "f":
        if base == exponent:
            return None
        return [graph.op("Pow", node.inputs[0], graph.cast(node.inputs[1], base))]
    powers = graph.value(node.inputs[1])
    whole = powers is not None and np.array_equal(powers, powers.astype(np.int64))
    if powers is not None and whole and powers.min() >= 0 and powers.max() <= _MAX_POWER:
        return [_whole_power(graph, node.inputs[0], powers.astype(np.int64))]
    # Exact if the result is an integer that float64 can hold.
    wide = [graph.cast(name, np.float64) for name in node.inputs]
    return [graph.cast(graph.op("Pow", *wide), base)]


def _whole_power(graph: RuleGraph, value: str, powers: np.ndarray) -> str:
    shape = np.broadcast_shapes(graph.shape(value), powers.shape)
    product = result = graph.op("Expand", graph.like(1, value), graph.constant(shape, np.int64))
    for power in range(1, int(powers.max()) + 1):
        product = graph.op("Mul", product, value)
        needed = powers >= power
        result = product if needed.all() else graph.op("Where", graph.constant(needed), product, result)
    return result


def _shift(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    """Shift by the element's width or more, or by a negative number: only the sign remains."""
    kind = graph.dtype(node.inputs[0])
    bits = kind.itemsize * 8
    value, count = node.inputs
    known = graph.value(count)
    if known is not None and known.min() >= 0 and known.max() < bits:
        return None
    low = graph.op("Less", count, graph.like(bits, count))
    inside = low if kind.kind == "u" else graph.op("And", low, graph.op("GreaterOrEqual", count, graph.like(0, count)))
    safe = graph.op("Where", inside, count, graph.like(0, count))
    shifted = graph.raw_op("BitShift", value, safe, opset=11, direction=node.attributes["direction"])
    nothing = graph.like(0, value)
    if kind.kind == "i" and node.attributes["direction"] == "RIGHT":
        # A negative number shifted out leaves its sign.
        nothing = graph.op("Where", graph.op("Less", value, nothing), graph.like(-1, value), nothing)
    return [graph.op("Where", inside, shifted, nothing)]


def _modulo(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    """Give Python's float modulo C's edge cases: signed zeros and infinities."""
    if node.attributes.get("fmod", 0) or graph.dtype(node.inputs[0]).kind != "f":
        return None
    a, b = node.inputs
    zero = graph.like(0, a)
    rest = graph.op("Mod", a, b, fmod=1)
    other_sign = graph.op("Xor", graph.op("Less", rest, zero), graph.op("Less", b, zero))
    is_zero = graph.op("Equal", rest, zero)
    moved = graph.op("Where", other_sign, graph.op("Add", rest, b), rest)
    # A zero has the divisor's sign: the sign of 1 / infinity.
    signed_zero = graph.op("Where", graph.op("Less", b, zero), graph.like(-0.0, a), zero)
    return [graph.op("Where", is_zero, signed_zero, moved)]


def _is_infinite(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    signs = {sign: node.attributes.get(f"detect_{sign}", 1) for sign in ("positive", "negative")}
    if all(signs.values()):
        return None
    if not any(signs.values()):
        return [graph.constant(np.zeros(graph.shape(node.inputs[0]), np.bool_))]
    sign = graph.op("Greater" if signs["positive"] else "Less", node.inputs[0], graph.like(0, node.inputs[0]))
    return [graph.op("And", graph.op("IsInf", node.inputs[0]), sign)]


def _clip(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    low, high = node.input(1), node.input(2)
    if node.opset < 11 or (low and high) or graph.dtype(node.inputs[0]).kind == "f":
        return None
    value = node.inputs[0]
    value = graph.op("Max", value, low) if low else value
    return [graph.op("Min", value, high) if high else value]


def _prelu(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value, slope = node.inputs
    shape, slopes = graph.shape(value), graph.shape(slope)
    slope = graph.reshape(slope, (*slopes, *[1] * (len(shape) - 2))) if node.opset < 7 and len(slopes) == 1 else slope
    kind = graph.dtype(value).kind
    if kind == "u":
        return [graph.op("Identity", value)]
    if kind == "f" and shape and (np.prod(slopes) == 1 or slopes == (*shape[1:2], *[1] * (len(shape) - 2))):
        return None
    negative = graph.op("Less", value, graph.like(0, value))
    return [graph.op("Where", negative, graph.op("Mul", value, slope), value)]


def _sign(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value = node.inputs[0]
    if graph.dtype(value).kind == "u":
        return [graph.op("Min", value, graph.like(1, value))]
    if graph.dtype(value).kind == "i":
        return None
    # NaN has no sign; the importer would return 0.
    return [graph.op("Where", graph.op("IsNaN", value), value, graph.raw_op("Sign", value))]


def _reduction(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value = node.inputs[0]
    axes = graph.require(node.input(1), "its axes").tolist() if node.input(1) else node.attributes.get("axes")
    if node.attributes.get("noop_with_empty_axes", 0) and not axes:
        choices = {
            "ReduceL1": lambda: graph.op("Abs", value),
            "ReduceL2": lambda: graph.op("Abs", value),
            "ReduceLogSum": lambda: graph.op("Log", value),
            "ReduceSumSquare": lambda: graph.op("Mul", value, value),
        }
        return [choices.get(node.operator, lambda: graph.op("Identity", value))()]
    if node.operator == "ReduceLogSumExp" and graph.dtype(value).kind == "f":
        return [_log_of_sum(graph, node, axes or range(len(graph.shape(value))))]
    if node.operator in ("ReduceMax", "ReduceMin"):
        return _extreme_of_booleans(graph, node)
    if node.operator in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"):
        return _in_float64(graph, node)
    return None


def _log_of_sum(graph: RuleGraph, node: RuleNode, axes: Sequence[int]) -> str:
    value, along = node.inputs[0], graph.constant(axes, np.int64)
    most = graph.op("ReduceMax", value, along, keepdims=1)
    most = graph.op("Where", graph.op("IsInf", most), graph.like(0, value), most)
    rest = graph.op("Exp", graph.op("Sub", value, most))
    whole = graph.op("Add", graph.op("Log", graph.op("ReduceSum", rest, along, keepdims=1)), most)
    return whole if node.attributes.get("keepdims", 1) else graph.op("Squeeze", whole, along)


def _in_float64(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    kind = graph.dtype(node.inputs[0])
    if kind.kind == "f":
        return None
    wide = graph.cast(node.inputs[0], np.float64)
    return [graph.cast(graph.op(node.operator, wide, *node.inputs[1:], opset=node.opset, **node.attributes), kind)]


def _of_float64(below: Callable[[RuleGraph, str, float], str], alpha: float, threshold: bool = False) -> Rule:
    """Make the rule of an activation converted only for float32, or by multiplying infinity by zero."""

    def rule(graph: RuleGraph, node: RuleNode) -> list[str] | None:
        value = node.inputs[0]
        if graph.dtype(value) != np.float64 and not threshold:
            return None
        slope = node.attributes.get("alpha", alpha)
        above = graph.op("Greater", value, graph.like(slope if threshold else 0, value))
        return [graph.op("Where", above, value, below(graph, value, slope))]

    return rule


def _elu_below(graph: RuleGraph, value: str, alpha: float) -> str:
    risen = graph.op("Sub", graph.op("Exp", value), graph.like(1, value))
    return graph.op("Mul", graph.like(alpha, value), risen)


def _celu(graph: RuleGraph, node: RuleNode) -> list[str]:
    value, alpha = node.inputs[0], node.attributes.get("alpha", 1.0)
    below = _elu_below(graph, graph.op("Div", value, graph.like(alpha, value)), alpha)
    return [graph.op("Where", graph.op("Greater", value, graph.like(0, value)), value, below)]


def _selu(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value = node.inputs[0]
    if graph.dtype(value) != np.float64:
        return None
    gamma = graph.like(node.attributes.get("gamma", 1.0507009873554805), value)
    return [graph.op("Mul", gamma, graph.op("Elu", value, alpha=node.attributes.get("alpha", 1.6732632423543772)))]


def _extreme_of_booleans(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    if graph.dtype(node.inputs[0]) != np.bool_:
        return None
    wide = graph.cast(node.inputs[0], np.uint8)
    axes = [node.inputs[1]] if node.input(1) else []
    settings = {key: value for key, value in node.attributes.items() if key in ("keepdims", "noop_with_empty_axes")}
    return [graph.cast(graph.op(node.operator, wide, *axes, **settings), np.bool_)]


def _bit_cast(graph: RuleGraph, node: RuleNode) -> list[str]:
    one, other = graph.dtype(node.inputs[0]), onnx.helper.tensor_dtype_to_np_dtype(node.attributes["to"])
    if one.itemsize != other.itemsize or "f" in (one.kind, other.kind):
        raise Unsupported(f"bits of {one} read as {other} are not supported")
    return [graph.cast(node.inputs[0], other)]


def _dropout(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    ratio = 0.5 if not node.input(1) else float(graph.require(node.input(1), "its ratio").reshape(-1)[0])
    training = bool(node.input(2)) and bool(graph.require(node.input(2), "its mode").reshape(-1)[0])
    if training and ratio > 0:
        raise Unsupported("training mode, which is random, is not supported")
    shape = graph.shape(node.inputs[0])
    # Before operator set 7, is_test selected the mode; exporters have always meant inference.
    same = graph.op("Identity", node.inputs[0])
    mask = graph.constant(np.ones(shape, np.bool_)) if node.wants(1) else ""
    if mask and node.opset < 10:
        mask = graph.cast(mask, graph.dtype(node.inputs[0]))
    return [same, mask] if mask else [same]


def _eye(graph: RuleGraph, node: RuleNode) -> list[str]:
    kind = node.attributes.get("dtype")
    dtype = graph.dtype(node.inputs[0]) if kind is None else onnx.helper.tensor_dtype_to_np_dtype(kind)
    rows, columns = graph.shape(node.inputs[0])
    return [graph.constant(np.eye(rows, columns, node.attributes.get("k", 0)), dtype)]


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

RULES: dict[str, Rule] = {
    "BitCast": _bit_cast,
    "BitShift": _shift,
    "Celu": _celu,
    "Clip": _clip,
    "Dropout": _dropout,
    "Erf": _in_float64,
    "EyeLike": _eye,
    "IsInf": _is_infinite,
    "Mod": _modulo,
    "PRelu": _prelu,
    "Pow": _power,
    "Elu": _of_float64(_elu_below, 1.0),
    **{f"Reduce{name}": _reduction for name in _REDUCTIONS},
    "Selu": _selu,
    "Shrink": _in_float64,
    "Sign": _sign,
    "ThresholdedRelu": _of_float64(lambda graph, value, _: graph.like(0, value), 1.0, threshold=True),
}
