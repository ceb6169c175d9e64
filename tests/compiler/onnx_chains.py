# SPDX-License-Identifier: Apache-2.0
"""Random chains of ONNX operators: layers for images and vectors, with branches and several outputs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx_draw import Draw

Shape = tuple[int, ...]


class Chain:
    """A growing model of floats, or of 8 bits between QuantizeLinear and DequantizeLinear.

    Attributes:
        shapes: shapes of all computed tensors, by name.
    """

    def __init__(self, draw: Draw, quantised: bool) -> None:
        self.draw = draw
        self.quantised = quantised
        side = draw.integer(4, 9)
        shape = (1, draw.integer(1, 6), side, side + draw.integer(0, 2))
        first = draw.input(draw.array(shape))
        self.shapes: dict[str, Shape] = {first: shape}
        if quantised:
            self.quantize(first, shape, 6.0)

    def grow(self, layers: int) -> None:
        """Add layers, then select the outputs: the last tensor and a random one."""
        for _ in range(layers):
            name, shape = self.last
            candidates = [make for fits, make in LAYERS if fits(shape)]
            output, output_shape, size = self.draw.pick(*candidates)(self, name, shape)
            if self.quantised:
                output = self.quantize(output, output_shape, size)
            self.shapes[output] = output_shape
        names = list(self.shapes)
        self.draw.output(names[-1], self.draw.pick(*names[1:]))

    @property
    def last(self) -> tuple[str, Shape]:
        """Name and shape of the last tensor."""
        name = list(self.shapes)[-1]
        return name, self.shapes[name]

    def quantize(self, name: str, shape: Shape, size: float) -> str:
        """Quantise and dequantise a tensor."""
        draw = self.draw
        step = np.float32(size / 127 * draw.random.uniform(0.8, 1.3))
        # A step of one layer becomes several steps after a steep layer.
        draw.steps = max(draw.steps, 6 * float(step))
        scale = draw.constant(step)
        zero = draw.constant(np.int8(draw.pick(0, draw.integer(-60, 60))))
        (integers,) = draw.node("QuantizeLinear", [name, scale, zero])
        (real,) = draw.node("DequantizeLinear", [integers, scale, zero])
        self.shapes[real] = shape
        return real

    def weights(self, shape: Shape, axis: int) -> str:
        """Weights; quantised ones have a scale for each channel."""
        draw = self.draw
        if not self.quantised:
            return draw.constant(draw.random.normal(0, 0.4, shape).astype(np.float32))
        scales = draw.constant(draw.random.uniform(0.004, 0.01, shape[axis]).astype(np.float32))
        zeros = draw.constant(np.zeros(shape[axis], np.int8))
        integers = draw.constant(draw.random.integers(-127, 128, shape).astype(np.int8))
        return draw.node("DequantizeLinear", [integers, scales, zeros], axis=axis)[0]

    def bias(self, count: int) -> str:
        """A random float bias."""
        return self.draw.constant(self.draw.random.normal(0, 1, count).astype(np.float32))


LayerOutput = tuple[str, Shape, float]
"""Name, shape and approximate magnitude of a layer's output."""


def _convolution(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    draw, channels = chain.draw, shape[1]
    group = channels if draw.chance(3) else 1
    outputs = channels if group > 1 else draw.integer(1, 8)
    window = [min(draw.pick(1, 3, 3), extent) for extent in shape[2:]]
    pads = [draw.integer(0, size // 2) for size in window]
    strides = [draw.pick(1, 1, 2) for _ in window]
    weights = chain.weights((outputs, channels // group, *window), 0)
    (output,) = draw.node(
        "Conv", [name, weights, chain.bias(outputs)], group=group, pads=[*pads, *pads], strides=strides
    )
    extents = [
        (extent + 2 * pad - size) // stride + 1
        for extent, pad, size, stride in zip(shape[2:], pads, window, strides, strict=True)
    ]
    if draw.chance():
        (output,) = draw.node("Relu", [output])
    return output, (1, outputs, *extents), 2.0 * math.sqrt(channels // group * math.prod(window))


def _dense(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    draw, outputs = chain.draw, chain.draw.integer(1, 12)
    if draw.chance() or chain.quantised:
        transposed = draw.chance()
        weights = chain.weights((outputs, shape[1]) if transposed else (shape[1], outputs), 0 if transposed else 1)
        (output,) = draw.node("Gemm", [name, weights, chain.bias(outputs)], transB=int(transposed))
    else:
        (output,) = draw.node("MatMul", [name, chain.weights((shape[1], outputs), 1)])
    return output, (shape[0], outputs), 2.0 * math.sqrt(shape[1])


def _batch_normalisation(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    draw, count = chain.draw, shape[1]
    scale, spread = (draw.constant(draw.random.uniform(0.5, 2, count).astype(np.float32)) for _ in range(2))
    operands = [name, scale, chain.bias(count), chain.bias(count), spread]
    return draw.node("BatchNormalization", operands)[0], shape, 5.0


def _layer_normalisation(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    scale = chain.draw.constant(chain.draw.random.uniform(0.5, 2, shape[-1]).astype(np.float32))
    operands = [name, scale, chain.bias(shape[-1])]
    # With a smaller epsilon, nearly equal numbers would amplify rounding errors.
    return chain.draw.node("LayerNormalization", operands, axis=-1, epsilon=0.05)[0], shape, 4.0


def _activation(operator: str, size: float = 1.0, **attributes: Any) -> Callable[[Chain, str, Shape], LayerOutput]:
    return lambda chain, name, shape: (chain.draw.node(operator, [name], **attributes)[0], shape, size)


def _pair(operator: str) -> Callable[[Chain, str, Shape], LayerOutput]:
    def add_layer(chain: Chain, name: str, shape: Shape) -> LayerOutput:
        candidates = [
            candidate for candidate, extents in chain.shapes.items() if extents == shape and candidate != "x0"
        ]
        other = chain.draw.pick(name, *candidates)
        if not chain.quantised and chain.draw.chance(3):
            other = chain.draw.constant(chain.draw.array([extent if chain.draw.chance() else 1 for extent in shape]))
        pair = [name, other] if chain.draw.chance() else [other, name]
        return chain.draw.node(operator, pair)[0], shape, 6.0

    return add_layer


def _pool(operator: str) -> Callable[[Chain, str, Shape], LayerOutput]:
    def add_layer(chain: Chain, name: str, shape: Shape) -> LayerOutput:
        window = [min(chain.draw.integer(1, 3), extent) for extent in shape[2:]]
        strides = [chain.draw.integer(1, 2) for _ in window]
        extents = [(extent - size) // step + 1 for extent, size, step in zip(shape[2:], window, strides, strict=True)]
        (result,) = chain.draw.node(operator, [name], kernel_shape=window, strides=strides)
        return result, (*shape[:2], *extents), 5.0

    return add_layer


def _concatenation(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    candidates = [
        candidate
        for candidate, extents in chain.shapes.items()
        if extents[2:] == shape[2:] and len(extents) == len(shape)
    ]
    candidates = [candidate for candidate in candidates if candidate != "x0"] or [name]
    parts = [name, *(chain.draw.pick(*candidates) for _ in range(chain.draw.integer(1, 2)))]
    count = sum(chain.shapes.get(part, shape)[1] for part in parts)
    return chain.draw.node("Concat", parts, axis=1)[0], (shape[0], count, *shape[2:]), 5.0


def _flatten(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    if chain.draw.chance():
        return chain.draw.node("Flatten", [name])[0], (1, math.prod(shape)), 5.0
    return chain.draw.node("Reshape", [name, chain.draw.ints(1, -1)])[0], (1, math.prod(shape)), 5.0


def _global_average(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    (mean,) = chain.draw.node("GlobalAveragePool", [name])
    return chain.draw.node("Flatten", [mean])[0], shape[:2], 3.0


def _transpose(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    order = [0, *(int(1 + axis) for axis in chain.draw.random.permutation(len(shape) - 1))]
    return chain.draw.node("Transpose", [name], perm=order)[0], tuple(shape[axis] for axis in order), 5.0


def _slice(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    axis = chain.draw.integer(1, len(shape) - 1)
    begin = chain.draw.integer(0, shape[axis] - 1)
    end = chain.draw.integer(begin + 1, shape[axis])
    (output,) = chain.draw.node("Slice", [name, *(chain.draw.ints(number) for number in (begin, end, axis))])
    return output, tuple(end - begin if index == axis else extent for index, extent in enumerate(shape)), 5.0


def _pad(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    sides = [[0, 0, *(chain.draw.integer(0, 2) for _ in shape[2:])] for _ in range(2)]
    (output,) = chain.draw.node("Pad", [name, chain.draw.ints(*sides[0], *sides[1])])
    return output, tuple(extent + low + high for extent, low, high in zip(shape, *sides, strict=True)), 5.0


def _attention(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    draw, pixels = chain.draw, shape[2] * shape[3]
    (rows,) = draw.node("Reshape", [name, draw.ints(1, shape[1], pixels)])
    (columns,) = draw.node("Transpose", [rows], perm=[0, 2, 1])
    (scores,) = draw.node("MatMul", [rows, columns])
    (weights,) = draw.node("Softmax", [scores], axis=-1)
    (output,) = draw.node("MatMul", [weights, rows])
    return draw.node("Reshape", [output, draw.ints(*shape)])[0], shape, 5.0


def _gate(chain: Chain, name: str, shape: Shape) -> LayerOutput:
    (factors,) = chain.draw.node("Sigmoid", [name])
    return chain.draw.node("Mul", [name, factors])[0], shape, 5.0


def _is_image(shape: Shape) -> bool:
    return len(shape) == 4


def _is_vector(shape: Shape) -> bool:
    return len(shape) == 2


def _is_any(shape: Shape) -> bool:
    return True


LAYERS: tuple[tuple[Callable[[Shape], bool], Callable[[Chain, str, Shape], LayerOutput]], ...] = (
    *((_is_image, _convolution) for _ in range(5)),
    (_is_image, _batch_normalisation),
    (_is_any, _layer_normalisation),
    *((_is_any, _activation(name)) for name in ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "Softsign")),
    *((_is_any, _activation(name, 5.0)) for name in ("LeakyRelu", "Elu", "HardSwish", "Gelu", "Mish", "Identity")),
    (_is_any, _activation("Softmax", axis=-1)),
    *((_is_any, _pair(name)) for name in ("Add", "Add", "Sub", "Mul", "Max", "Min")),
    *((_is_image, _pool(name)) for name in ("MaxPool", "AveragePool")),
    (_is_any, _concatenation),
    (_is_image, _flatten),
    (_is_image, _global_average),
    (_is_image, _transpose),
    (_is_any, _slice),
    (_is_image, _pad),
    (_is_image, _attention),
    (_is_any, _gate),
    *((_is_vector, _dense) for _ in range(4)),
)
"""Condition for a layer by the input's shape, and the function that adds it."""


def chain(draw: Draw) -> None:
    """Draw a chain of floats."""
    Chain(draw, quantised=False).grow(draw.integer(2, 7))


def quantised_chain(draw: Draw) -> None:
    """Draw a chain of 8 bits; each layer may be off by one step of its result."""
    Chain(draw, quantised=True).grow(draw.integer(1, 4))
