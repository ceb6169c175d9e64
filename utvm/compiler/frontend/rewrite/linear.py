# SPDX-License-Identifier: Apache-2.0
"""Resize, Upsample, DFT and STFT, by ONNX's equations: selections of elements or constant matrix products."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported

_Weights = npt.NDArray[np.float64]


def _upsample(graph: RuleGraph, node: RuleNode) -> list[str]:
    scales = node.attributes.get("scales")
    factor_input = graph.constant(scales, np.float32) if scales else node.inputs[1]
    mode = {"bilinear": "linear"}.get(node.attributes.get("mode", "nearest"), node.attributes.get("mode", "nearest"))
    result = node.inputs[0]
    factors = graph.require(factor_input, "its scales")
    # As ONNX Runtime reads operator set 10: on a shrinking axis, take the next element as the nearest.
    for way, mask in (("ceil", factors < 1), ("floor", factors >= 1)):
        if (factors[mask] != 1).any():
            part = graph.constant(np.where(mask, factors, 1), np.float32)
            settings = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": way}
            result = graph.op("Resize", result, "", part, **settings)
    return [result if result != node.inputs[0] else graph.op("Identity", result)]


def _resize(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    if node.opset < 11:
        return _upsample(graph, node)
    value = node.inputs[0]
    shape = graph.shape(value)
    axes = [axis % len(shape) for axis in node.attributes.get("axes", range(len(shape)))]
    sizes = graph.require(node.input(3), "its sizes") if node.input(3) else np.array([])
    scales = graph.require(node.input(2), "its scales") if node.input(2) else np.array([])
    if not scales.size and not sizes.size:
        raise Unsupported("neither scales nor sizes are given")
    ends = _ends(graph, node, axes, len(shape))
    plan = _plan(node, [shape[axis] for axis in axes], scales, sizes)
    if _importer_does(node, shape, axes, plan):
        if not (node.input(2) and node.input(3)):
            return None
        # An omitted input may be an empty tensor, which the importer takes for a given one.
        size_inputs = ("", node.inputs[3]) if sizes.size else (node.inputs[2], "")
        return [graph.raw_op("Resize", value, "", *size_inputs, opset=max(13, node.opset), **node.attributes)]
    kind = graph.dtype(value)
    result = graph.cast(value, np.float64 if kind == np.float64 else np.float32)
    outside = ""
    for axis, (count, scale), region in zip(axes, plan, ends, strict=True):
        weights = _weights(node, shape[axis], count, scale, region)
        result = _along(graph, result, axis, weights)
        if not weights.any(axis=1).all():
            form = [1] * len(shape)
            form[axis] = count
            beyond = graph.constant(~weights.any(axis=1).reshape(form))
            outside = graph.op("Or", outside, beyond) if outside else beyond
    if outside:
        beyond = graph.like(node.attributes.get("extrapolation_value", 0.0), result)
        result = graph.op("Where", outside, beyond, result)
    if kind.kind != "f":
        result = graph.op("Round", result) if node.attributes.get("mode", "nearest") != "nearest" else result
    return [graph.cast(result, kind)]


def _ends(graph: RuleGraph, node: RuleNode, axes: list[int], rank: int) -> list[tuple[float, float]]:
    if node.attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        return [(0.0, 1.0)] * len(axes)
    region = graph.require(node.input(1), "its region")
    half = len(region) // 2
    places = axes if half == rank and len(axes) == rank else list(range(half))
    return [(float(region[place]), float(region[half + place])) for place in places]


def _plan(node: RuleNode, extents: list[int], scales: Any, sizes: Any) -> list[tuple[int, float]]:
    if not sizes.size:
        return [(math.floor(size * float(scale)), float(scale)) for size, scale in zip(extents, scales, strict=True)]
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    ratios = [int(size) / extent for size, extent in zip(sizes, extents, strict=True)]
    if policy == "stretch":
        return [(int(size), ratio) for size, ratio in zip(sizes, ratios, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [(math.floor(scale * extent + 0.5), scale) for extent in extents]


def _importer_does(node: RuleNode, shape: tuple[int, ...], axes: list[int], plan: list[tuple[int, float]]) -> bool:
    attributes = node.attributes
    transformation = attributes.get("coordinate_transformation_mode", "half_pixel")
    exact = all(count == extent * scale for (count, scale), extent in zip(plan, shape, strict=False))
    # A row of one element has no two ends to align.
    lonely = transformation == "align_corners" and any(count == 1 for count, _ in plan[2:])
    return (
        not attributes.get("antialias", 0)
        and "axes" not in attributes
        and attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch"
        and transformation not in ("half_pixel_symmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn")
        and 3 <= len(shape) <= 5
        and axes == list(range(len(shape)))
        and all(count == extent for (count, _), extent in zip(plan[:2], shape[:2], strict=True))
        and exact
        and not lonely
    )


def _along(graph: RuleGraph, value: str, axis: int, weights: _Weights) -> str:
    if weights.shape[0] == weights.shape[1] and (weights == np.eye(len(weights))).all():
        return value
    if ((weights == 1).sum(axis=1) + (weights == 0).sum(axis=1) == weights.shape[1]).all():
        return graph.op("Gather", value, graph.constant(weights.argmax(axis=1), np.int64), axis=axis)
    return graph.multiply(value, axis, weights)


def _weights(node: RuleNode, extent: int, count: int, scale: float, region: tuple[float, float]) -> _Weights:
    """Return the weight of each element (column) in each result (row); a row of zeros is outside the region."""
    attributes = node.attributes
    mode = attributes.get("mode", "nearest")
    result = np.zeros((count, extent))
    transformation = attributes.get("coordinate_transformation_mode", "half_pixel")
    for number in range(count):
        place = _place(transformation, number, extent, count, scale, region)
        if transformation == "tf_crop_and_resize" and not 0 <= place <= extent - 1:
            continue
        if mode == "nearest":
            result[number, min(max(_nearest(attributes, place), 0), extent - 1)] = 1
            continue
        shrunk = scale if attributes.get("antialias", 0) and scale < 1 else 1.0
        reach = (1 if mode == "linear" else 2) / shrunk
        around = np.arange(math.floor(place - reach) + 1, math.ceil(place + reach) + 1)
        cubic = _cubic(attributes.get("cubic_coeff_a", -0.75))
        curve = (lambda distance: max(0.0, 1 - distance)) if mode == "linear" else cubic
        shares = np.array([curve(abs(item - place) * shrunk) for item in around])
        if attributes.get("exclude_outside", 0):
            shares = np.where((around >= 0) & (around < extent), shares, 0)
        shares = shares / shares.sum()
        for item, share in zip(around.clip(0, extent - 1), shares, strict=True):
            result[number, item] += share
    return result


def _place(
    transformation: str, number: int, extent: int, count: int, scale: float, region: tuple[float, float]
) -> float:
    # Use the scaled extent before it is truncated to an integer.
    whole = scale * extent
    begin, end = region
    middle = (number + 0.5) / scale - 0.5
    places: dict[str, Callable[[], float]] = {
        "align_corners": lambda: 0.0 if whole == 1 else number * (extent - 1) / (whole - 1),
        "asymmetric": lambda: number / scale,
        "half_pixel_symmetric": lambda: middle + extent / 2 * (1 - count / whole),
        "pytorch_half_pixel": lambda: middle if count > 1 else -0.5,
        "tf_crop_and_resize": lambda: (
            (extent - 1) * ((begin + end) / 2 if count == 1 else begin + number * (end - begin) / (whole - 1))
        ),
        "tf_half_pixel_for_nn": lambda: (number + 0.5) / scale,
    }
    return places[transformation]() if transformation in places else middle


def _nearest(attributes: Any, place: float) -> int:
    way = attributes.get("nearest_mode", "round_prefer_floor")
    if way == "floor":
        return math.floor(place)
    if way == "ceil":
        return math.ceil(place)
    return math.ceil(place - 0.5) if way == "round_prefer_floor" else math.floor(place + 0.5)


def _cubic(a: float) -> Any:
    def curve(distance: float) -> float:
        if distance <= 1:
            return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        if distance < 2:
            return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
        return 0.0

    return curve


_MAX_LENGTH = 2048


def _dft(graph: RuleGraph, node: RuleNode) -> list[str]:
    value = node.inputs[0]
    shape = graph.shape(value)
    if node.opset >= 20:
        axis = int(graph.require(node.input(2), "its axis").reshape(-1)[0]) if node.input(2) else -2
    else:
        axis = node.attributes.get("axis", 1)
    axis %= len(shape)
    length = int(graph.require(node.input(1), "its length").reshape(-1)[0]) if node.input(1) else 0
    inverse, onesided = bool(node.attributes.get("inverse", 0)), bool(node.attributes.get("onesided", 0))
    if inverse and onesided:
        return [_real_inverse(graph, value, axis, length or 2 * (shape[axis] - 1))]
    length = length or shape[axis]
    value = _fit(graph, value, axis, length)
    count = length // 2 + 1 if onesided else length
    angles = _angles(count, length, inverse)
    scale = 1 / length if inverse else 1.0
    return [_transform(graph, value, axis, np.cos(angles) * scale, np.sin(angles) * scale)]


def _angles(rows: int, columns: int, inverse: bool) -> np.ndarray:
    if max(rows, columns) > _MAX_LENGTH:
        raise Unsupported(f"transforms of more than {_MAX_LENGTH} elements are not supported")
    turns = np.outer(np.arange(rows), np.arange(columns)) % columns
    return (2 if inverse else -2) * np.pi * turns / columns


def _fit(graph: RuleGraph, value: str, axis: int, length: int) -> str:
    shape = graph.shape(value)
    if length < shape[axis]:
        return graph.slice(value, axis, 0, length)
    if length > shape[axis]:
        pads = np.zeros(2 * len(shape), np.int64)
        pads[len(shape) + axis] = length - shape[axis]
        return graph.op("Pad", value, graph.constant(pads), graph.like(0, value))
    return value


def _transform(graph: RuleGraph, value: str, axis: int, cosine: np.ndarray, sine: np.ndarray) -> str:
    """Multiply real numbers, or (real, imaginary) pairs, by cosine + i sine; return pairs."""
    last = len(graph.shape(value)) - 1
    real = graph.slice(value, last, 0, 1)
    parts = [graph.multiply(real, axis, cosine), graph.multiply(real, axis, sine)]
    if graph.shape(value)[last] == 2:
        imaginary = graph.slice(value, last, 1, 2)
        parts[0] = graph.op("Sub", parts[0], graph.multiply(imaginary, axis, sine))
        parts[1] = graph.op("Add", parts[1], graph.multiply(imaginary, axis, cosine))
    return graph.op("Concat", *parts, axis=last)


def _real_inverse(graph: RuleGraph, value: str, axis: int, length: int) -> str:
    value = _fit(graph, value, axis, length // 2 + 1)
    count = length // 2 + 1
    angles = _angles(length, length, True)[:, :count]
    twice = np.array([1 if place == 0 or 2 * place == length else 2 for place in range(count)]) / length
    last = len(graph.shape(value)) - 1
    real = graph.multiply(graph.slice(value, last, 0, 1), axis, np.cos(angles) * twice)
    if graph.shape(value)[last] == 1:
        return real
    return graph.op("Sub", real, graph.multiply(graph.slice(value, last, 1, 2), axis, np.sin(angles) * twice))


def _stft(graph: RuleGraph, node: RuleNode) -> list[str]:
    signal = node.inputs[0]
    step = int(graph.require(node.inputs[1], "its step").reshape(-1)[0])
    window = node.input(2)
    if node.input(3):
        size = int(graph.require(node.input(3), "its frame length").reshape(-1)[0])
    elif window:
        (size,) = graph.shape(window)
    else:
        raise Unsupported("neither a window nor a frame length is given")
    shape = graph.shape(signal)
    signal = signal if len(shape) == 3 else graph.reshape(signal, (*shape, 1))
    frames = (shape[1] - size) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(size)
    cut = graph.op("Gather", signal, graph.constant(places, np.int64), axis=1)
    if window:
        cut = graph.op("Mul", cut, graph.reshape(window, (1, 1, size, 1)))
    count = size // 2 + 1 if node.attributes.get("onesided", 1) else size
    angles = _angles(count, size, False)
    return [_transform(graph, cut, 2, np.cos(angles), np.sin(angles))]


RULES: dict[str, Rule] = {"DFT": _dft, "Resize": _resize, "STFT": _stft, "Upsample": _upsample}
