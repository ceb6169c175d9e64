# SPDX-License-Identifier: Apache-2.0
"""Chains of ONNX operators, drawn at random: layers of images and of vectors, with branches and some outputs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx_draw import Draw

Shape = tuple[int, ...]


class Chain:
    """Grows a model of floats, or of 8 bits between QuantizeLinear and DequantizeLinear.

    Attributes:
        shapes: of everything that has been computed, by name.
    """

    def __init__(self, draw: Draw, quantised: bool) -> None:
        self.draw = draw
        self.quantised = quantised
        side = draw.integer(4, 9)
        shape = (1, draw.integer(1, 6), side, side + draw.integer(0, 2))
        first = draw.input(draw.array(shape))
        self.shapes: dict[str, Shape] = {first: shape}
        if quantised:
            self.stepped(first, shape, 6.0)

    def grow(self, layers: int) -> None:
        """Add layers, and say what the outputs are: the last one, and one that may lie anywhere."""
        for _ in range(layers):
            name, shape = self.last
            able = [make for fits, make in LAYERS if fits(shape)]
            made, extents, size = self.draw.pick(*able)(self, name, shape)
            if self.quantised:
                made = self.stepped(made, extents, size)
            self.shapes[made] = extents
        names = list(self.shapes)
        self.draw.give(names[-1], self.draw.pick(*names[1:]))

    @property
    def last(self) -> tuple[str, Shape]:
        """What was computed last, and its shape."""
        name = list(self.shapes)[-1]
        return name, self.shapes[name]

    def stepped(self, name: str, shape: Shape, size: float) -> str:
        """Quantise a tensor, and make real numbers of it again."""
        draw = self.draw
        step = np.float32(size / 127 * draw.random.uniform(0.8, 1.3))
        # A step of one layer becomes several where the next one is steep.
        draw.steps = max(draw.steps, 6 * float(step))
        scale = draw.constant(step)
        zero = draw.constant(np.int8(draw.pick(0, draw.integer(-60, 60))))
        (whole,) = draw.node("QuantizeLinear", [name, scale, zero])
        (real,) = draw.node("DequantizeLinear", [whole, scale, zero])
        self.shapes[real] = shape
        return real

    def weights(self, shape: Shape, axis: int) -> str:
        """Return weights; quantised ones have a scale for each of their channels."""
        draw = self.draw
        if not self.quantised:
            return draw.constant(draw.random.normal(0, 0.4, shape).astype(np.float32))
        scales = draw.constant(draw.random.uniform(0.004, 0.01, shape[axis]).astype(np.float32))
        zeros = draw.constant(np.zeros(shape[axis], np.int8))
        whole = draw.constant(draw.random.integers(-127, 128, shape).astype(np.int8))
        return draw.node("DequantizeLinear", [whole, scales, zeros], axis=axis)[0]

    def offsets(self, count: int) -> str:
        """Return a bias of real numbers."""
        return self.draw.constant(self.draw.random.normal(0, 1, count).astype(np.float32))


Made = tuple[str, Shape, float]
"""What a layer gives: a name, its shape, and about how large its numbers are."""


def _convolution(chain: Chain, name: str, shape: Shape) -> Made:
    draw, channels = chain.draw, shape[1]
    group = channels if draw.chance(3) else 1
    outputs = channels if group > 1 else draw.integer(1, 8)
    window = [min(draw.pick(1, 3, 3), extent) for extent in shape[2:]]
    pads = [draw.integer(0, each // 2) for each in window]
    strides = [draw.pick(1, 1, 2) for _ in window]
    weights = chain.weights((outputs, channels // group, *window), 0)
    (made,) = draw.node(
        "Conv", [name, weights, chain.offsets(outputs)], group=group, pads=[*pads, *pads], strides=strides
    )
    extents = [
        (extent + 2 * pad - each) // stride + 1
        for extent, pad, each, stride in zip(shape[2:], pads, window, strides, strict=True)
    ]
    if draw.chance():
        (made,) = draw.node("Relu", [made])
    return made, (1, outputs, *extents), 2.0 * math.sqrt(channels // group * math.prod(window))


def _dense(chain: Chain, name: str, shape: Shape) -> Made:
    draw, outputs = chain.draw, chain.draw.integer(1, 12)
    if draw.chance() or chain.quantised:
        turned = draw.chance()
        weights = chain.weights((outputs, shape[1]) if turned else (shape[1], outputs), 0 if turned else 1)
        (made,) = draw.node("Gemm", [name, weights, chain.offsets(outputs)], transB=int(turned))
    else:
        (made,) = draw.node("MatMul", [name, chain.weights((shape[1], outputs), 1)])
    return made, (shape[0], outputs), 2.0 * math.sqrt(shape[1])


def _normalised(chain: Chain, name: str, shape: Shape) -> Made:
    draw, count = chain.draw, shape[1]
    scale, spread = (draw.constant(draw.random.uniform(0.5, 2, count).astype(np.float32)) for _ in range(2))
    operands = [name, scale, chain.offsets(count), chain.offsets(count), spread]
    return draw.node("BatchNormalization", operands)[0], shape, 5.0


def _layer_normalised(chain: Chain, name: str, shape: Shape) -> Made:
    scale = chain.draw.constant(chain.draw.random.uniform(0.5, 2, shape[-1]).astype(np.float32))
    operands = [name, scale, chain.offsets(shape[-1])]
    # Of numbers that are nearly alike, a smaller one would show the last bits.
    return chain.draw.node("LayerNormalization", operands, axis=-1, epsilon=0.05)[0], shape, 4.0


def _curve(operator: str, size: float = 1.0, **how: Any) -> Callable[[Chain, str, Shape], Made]:
    return lambda chain, name, shape: (chain.draw.node(operator, [name], **how)[0], shape, size)


def _pair(operator: str) -> Callable[[Chain, str, Shape], Made]:
    def made(chain: Chain, name: str, shape: Shape) -> Made:
        able = [each for each, extents in chain.shapes.items() if extents == shape and each != "x0"]
        other = chain.draw.pick(name, *able)
        if not chain.quantised and chain.draw.chance(3):
            other = chain.draw.constant(chain.draw.array([each if chain.draw.chance() else 1 for each in shape]))
        pair = [name, other] if chain.draw.chance() else [other, name]
        return chain.draw.node(operator, pair)[0], shape, 6.0

    return made


def _pool(operator: str) -> Callable[[Chain, str, Shape], Made]:
    def made(chain: Chain, name: str, shape: Shape) -> Made:
        window = [min(chain.draw.integer(1, 3), extent) for extent in shape[2:]]
        strides = [chain.draw.integer(1, 2) for _ in window]
        extents = [(extent - each) // step + 1 for extent, each, step in zip(shape[2:], window, strides, strict=True)]
        (result,) = chain.draw.node(operator, [name], kernel_shape=window, strides=strides)
        return result, (*shape[:2], *extents), 5.0

    return made


def _joined(chain: Chain, name: str, shape: Shape) -> Made:
    able = [each for each, extents in chain.shapes.items() if extents[2:] == shape[2:] and len(extents) == len(shape)]
    able = [each for each in able if each != "x0"] or [name]
    parts = [name, *(chain.draw.pick(*able) for _ in range(chain.draw.integer(1, 2)))]
    count = sum(chain.shapes.get(each, shape)[1] for each in parts)
    return chain.draw.node("Concat", parts, axis=1)[0], (shape[0], count, *shape[2:]), 5.0


def _flat(chain: Chain, name: str, shape: Shape) -> Made:
    if chain.draw.chance():
        return chain.draw.node("Flatten", [name])[0], (1, math.prod(shape)), 5.0
    return chain.draw.node("Reshape", [name, chain.draw.ints(1, -1)])[0], (1, math.prod(shape)), 5.0


def _averaged(chain: Chain, name: str, shape: Shape) -> Made:
    (mean,) = chain.draw.node("GlobalAveragePool", [name])
    return chain.draw.node("Flatten", [mean])[0], shape[:2], 3.0


def _turned(chain: Chain, name: str, shape: Shape) -> Made:
    order = [0, *(int(1 + each) for each in chain.draw.random.permutation(len(shape) - 1))]
    return chain.draw.node("Transpose", [name], perm=order)[0], tuple(shape[axis] for axis in order), 5.0


def _sliced(chain: Chain, name: str, shape: Shape) -> Made:
    axis = chain.draw.integer(1, len(shape) - 1)
    begin = chain.draw.integer(0, shape[axis] - 1)
    end = chain.draw.integer(begin + 1, shape[axis])
    (made,) = chain.draw.node("Slice", [name, *(chain.draw.ints(each) for each in (begin, end, axis))])
    return made, tuple(end - begin if place == axis else each for place, each in enumerate(shape)), 5.0


def _padded(chain: Chain, name: str, shape: Shape) -> Made:
    sides = [[0, 0, *(chain.draw.integer(0, 2) for _ in shape[2:])] for _ in range(2)]
    (made,) = chain.draw.node("Pad", [name, chain.draw.ints(*sides[0], *sides[1])])
    return made, tuple(extent + low + high for extent, low, high in zip(shape, *sides, strict=True)), 5.0


def _attended(chain: Chain, name: str, shape: Shape) -> Made:
    draw, pixels = chain.draw, shape[2] * shape[3]
    (rows,) = draw.node("Reshape", [name, draw.ints(1, shape[1], pixels)])
    (columns,) = draw.node("Transpose", [rows], perm=[0, 2, 1])
    (scores,) = draw.node("MatMul", [rows, columns])
    (weights,) = draw.node("Softmax", [scores], axis=-1)
    (made,) = draw.node("MatMul", [weights, rows])
    return draw.node("Reshape", [made, draw.ints(*shape)])[0], shape, 5.0


def _gated(chain: Chain, name: str, shape: Shape) -> Made:
    (gate,) = chain.draw.node("Sigmoid", [name])
    return chain.draw.node("Mul", [name, gate])[0], shape, 5.0


def _image(shape: Shape) -> bool:
    return len(shape) == 4


def _vector(shape: Shape) -> bool:
    return len(shape) == 2


def _any(shape: Shape) -> bool:
    return True


LAYERS: tuple[tuple[Callable[[Shape], bool], Callable[[Chain, str, Shape], Made]], ...] = (
    *((_image, _convolution) for _ in range(5)),
    (_image, _normalised),
    (_any, _layer_normalised),
    *((_any, _curve(name)) for name in ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "Softsign")),
    *((_any, _curve(name, 5.0)) for name in ("LeakyRelu", "Elu", "HardSwish", "Gelu", "Mish", "Identity")),
    (_any, _curve("Softmax", axis=-1)),
    *((_any, _pair(name)) for name in ("Add", "Add", "Sub", "Mul", "Max", "Min")),
    *((_image, _pool(name)) for name in ("MaxPool", "AveragePool")),
    (_any, _joined),
    (_image, _flat),
    (_image, _averaged),
    (_image, _turned),
    (_any, _sliced),
    (_image, _padded),
    (_image, _attended),
    (_any, _gated),
    *((_vector, _dense) for _ in range(4)),
)
"""Where a layer may follow, and what adds it."""


def chain(draw: Draw) -> None:
    """Draw a chain of floats."""
    Chain(draw, quantised=False).grow(draw.integer(2, 7))


def quantised_chain(draw: Draw) -> None:
    """Draw a chain of 8 bits, each of whose layers may be off by one step of its result."""
    Chain(draw, quantised=True).grow(draw.integer(1, 4))
