# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms as products with constant matrices, which is what a fixed length allows."""

import numpy as np

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported

_MAX_LENGTH = 2048


def _dft(graph: RuleGraph, node: RuleNode) -> list[str]:
    value = node.inputs[0]
    shape = graph.shape(value)
    if node.opset >= 20:
        axis = int(graph.needed(node.input(2), "its axis").reshape(-1)[0]) if node.input(2) else -2
    else:
        axis = node.attributes.get("axis", 1)
    axis %= len(shape)
    length = int(graph.needed(node.input(1), "its length").reshape(-1)[0]) if node.input(1) else 0
    inverse, onesided = bool(node.attributes.get("inverse", 0)), bool(node.attributes.get("onesided", 0))
    if inverse and onesided:
        return [_real_inverse(graph, value, axis, length or 2 * (shape[axis] - 1))]
    length = length or shape[axis]
    # A signal of another length is cut, or goes on with zeros.
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
        return graph.sliced(value, axis, 0, length)
    if length > shape[axis]:
        pads = np.zeros(2 * len(shape), np.int64)
        pads[len(shape) + axis] = length - shape[axis]
        return graph.op("Pad", value, graph.constant(pads), graph.like(0, value))
    return value


def _transform(graph: RuleGraph, value: str, axis: int, cosine: np.ndarray, sine: np.ndarray) -> str:
    """Multiply real numbers, or pairs of a real and an imaginary one, with cosine + i sine; return pairs."""
    last = len(graph.shape(value)) - 1
    real = graph.sliced(value, last, 0, 1)
    parts = [graph.multiplied(real, axis, cosine), graph.multiplied(real, axis, sine)]
    if graph.shape(value)[last] == 2:
        imaginary = graph.sliced(value, last, 1, 2)
        parts[0] = graph.op("Sub", parts[0], graph.multiplied(imaginary, axis, sine))
        parts[1] = graph.op("Add", parts[1], graph.multiplied(imaginary, axis, cosine))
    return graph.op("Concat", *parts, axis=last)


def _real_inverse(graph: RuleGraph, value: str, axis: int, length: int) -> str:
    value = _fit(graph, value, axis, length // 2 + 1)
    count = length // 2 + 1
    angles = _angles(length, length, True)[:, :count]
    twice = np.array([1 if place == 0 or 2 * place == length else 2 for place in range(count)]) / length
    last = len(graph.shape(value)) - 1
    real = graph.multiplied(graph.sliced(value, last, 0, 1), axis, np.cos(angles) * twice)
    if graph.shape(value)[last] == 1:
        return real
    return graph.op("Sub", real, graph.multiplied(graph.sliced(value, last, 1, 2), axis, np.sin(angles) * twice))


def _stft(graph: RuleGraph, node: RuleNode) -> list[str]:
    signal = node.inputs[0]
    step = int(graph.needed(node.inputs[1], "its step").reshape(-1)[0])
    window = node.input(2)
    if node.input(3):
        size = int(graph.needed(node.input(3), "its frame length").reshape(-1)[0])
    elif window:
        (size,) = graph.shape(window)
    else:
        raise Unsupported("neither a window nor a frame length is given")
    shape = graph.shape(signal)
    signal = signal if len(shape) == 3 else graph.reshaped(signal, (*shape, 1))
    frames = (shape[1] - size) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(size)
    cut = graph.op("Gather", signal, graph.constant(places, np.int64), axis=1)
    if window:
        cut = graph.op("Mul", cut, graph.reshaped(window, (1, 1, size, 1)))
    count = size // 2 + 1 if node.attributes.get("onesided", 1) else size
    angles = _angles(count, size, False)
    return [_transform(graph, cut, 2, np.cos(angles), np.sin(angles))]


RULES: dict[str, Rule] = {"DFT": _dft, "STFT": _stft}
