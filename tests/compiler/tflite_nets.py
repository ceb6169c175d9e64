# SPDX-License-Identifier: Apache-2.0
"""Random networks of TensorFlow Lite: chains of layers, branches, several outputs.

A network's name determines its layers, shapes, scales and numbers. Networks show effects between layers: fusing,
shared memory, in-place results, and transitions between integers, tables and floats.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tflite_draw import Draw

from models.tflite_writer import Builder

_RANGE = {"int8": 127, "int16": 32767, "float32": 1}


@dataclass(frozen=True)
class _Value:
    """A computed tensor.

    Attributes:
        size: approximate magnitude of its real numbers.
    """

    name: str
    shape: tuple[int, ...]
    size: float
    scale: float | None
    zero: int


class Net:
    """A growing network of one element type: NHWC images, then vectors after a head."""

    def __init__(self, name: str, dtype: str) -> None:
        self._draw = Draw(name, dtype)
        self._dtype = dtype
        self._builder = Builder()
        self._count = 0
        side = self._draw.integer(5, 12)
        self._input = self._value((1, side, side + self._draw.integer(0, 3), self._draw.integer(1, 8)), 3.0)
        self._values = [self._input]

    def content(self, layers: int) -> bytes:
        """Add layers and return the file. Outputs are the last tensor and all unread ones."""
        read: set[str] = set()
        for _ in range(layers):
            candidates = [add_layer for condition, add_layer in _LAYERS if condition(self._last)]
            result = self._draw.pick(*candidates)(self, self._last)
            read |= {self._values[-1].name, *self._read}
            self._values.append(result)
        outputs = [value.name for value in self._values[1:] if value.name not in read]
        extra = self._draw.pick(*self._values[1:]).name
        names = [*outputs, *([extra] if extra not in outputs else [])]
        return self._builder.finish([self._input.name], names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._input.shape

    @property
    def _last(self) -> _Value:
        return self._values[-1]

    _read: tuple[str, ...] = ()

    def _value(self, shape: tuple[int, ...], size: float, like: _Value | None = None, **fixed: Any) -> _Value:
        self._count += 1
        name = f"t{self._count}"
        scale, zero = (like.scale, like.zero) if like else (fixed.get("scale"), fixed.get("zero", 0))
        if self._dtype != "float32" and scale is None:
            scale = size * self._draw.random.uniform(0.7, 1.6) / _RANGE[self._dtype]
            zero = self._draw.pick(0, -128, self._draw.integer(-60, 60)) if self._dtype == "int8" else 0
        self._builder.tensor(name, shape, self._dtype, scale=scale, zero_point=zero)
        return _Value(name, tuple(shape), like.size if like else size, scale, zero)

    def _constant(self, values: Any, dtype: str = "int32", **options: Any) -> str:
        self._count += 1
        array = np.asarray(values)
        return self._builder.tensor(f"c{self._count}", array.shape, dtype, array, **options)

    def _add(self, operator: str, inputs: list[str], result: _Value, **options: Any) -> _Value:
        self._read = tuple(inputs)
        self._builder.operator(operator, inputs, [result.name], **options)
        return result

    def _weights(self, data: _Value, shape: tuple[int, ...], axis: int, terms: int) -> tuple[str, str, float]:
        """Weights, a bias and the approximate magnitude of the sums."""
        channels, random = shape[axis], self._draw.random
        size = data.size * 0.6 * math.sqrt(terms) * 0.5
        if self._dtype == "float32":
            weights = self._constant(random.normal(0, 0.5, shape), "float32")
            return weights, self._constant(random.normal(0, size / 4, channels), "float32"), size
        scales = random.uniform(0.004, 0.008, channels).astype(np.float32)
        weights = self._constant(random.integers(-127, 128, shape), "int8", scale=scales, axis=axis)
        bias_scales = scales * np.float32(data.scale)
        wide = "int64" if self._dtype == "int16" else "int32"
        bias = self._constant(random.normal(0, size / 4, channels) / bias_scales, wide, scale=bias_scales)
        return weights, bias, size

    def add_window(self, data: _Value, operator: str) -> _Value:
        """Add a convolution or a pool."""
        draw, (_, height, width, channels) = self._draw, data.shape
        window = [min(draw.pick(1, 2, 3, 3, 5), extent) for extent in (height, width)]
        strides = [draw.pick(1, 1, 2), draw.pick(1, 1, 2)]
        padding = draw.pick("SAME", "VALID")
        extents = [
            -(-extent // stride) if padding == "SAME" else (extent - reach) // stride + 1
            for extent, reach, stride in zip((height, width), window, strides, strict=True)
        ]
        options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
        if "POOL" in operator:
            options |= {"filter_height": window[0], "filter_width": window[1]}
            result = self._value((1, *extents, channels), 0, data)
            return self._add(operator, [data.name], result, **options)
        options["fused_activation_function"] = draw.pick("NONE", "RELU", "RELU6")
        depthwise = operator == "DEPTHWISE_CONV_2D"
        outputs = channels * draw.pick(1, 1, 2) if depthwise else draw.integer(1, 12)
        shape = (1, *window, outputs) if depthwise else (outputs, *window, channels)
        terms = window[0] * window[1] * (1 if depthwise else channels)
        weights, bias, size = self._weights(data, shape, 3 if depthwise else 0, terms)
        if depthwise:
            options["depth_multiplier"] = outputs // channels
        result = self._value((1, *extents, outputs), min(size, 6.0) if options == "RELU6" else size)
        return self._add(operator, [data.name, weights, bias], result, **options)

    def add_transposed_convolution(self, data: _Value) -> _Value:
        """Add a convolution that enlarges an image."""
        (_, height, width, channels), outputs = data.shape, self._draw.integer(1, 6)
        weights, bias, size = self._weights(data, (outputs, 2, 2, channels), 0, channels)
        shape = (1, 2 * height, 2 * width, outputs)
        options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
        return self._add(
            "TRANSPOSE_CONV", [self._constant(shape), weights, data.name, bias], self._value(shape, size), **options
        )

    def add_binary(self, data: _Value, operator: str) -> _Value:
        """Add an operator of two tensors; one may be older, the same, or constant."""
        candidates = [value for value in self._values if value.shape == data.shape] + [data]
        other = self._draw.pick(*candidates)
        size = data.size * other.size * 0.6 if operator == "MUL" else max(data.size, other.size) * 1.4
        pair = [data.name, other.name] if self._draw.integer(0, 1) else [other.name, data.name]
        return self._add(operator, pair, self._value(data.shape, size))

    def add_concatenation(self, data: _Value) -> _Value:
        """Add a concatenation of channels of images of one size; in integers all have one scale."""
        older = [value for value in self._values if value.shape[:-1] == data.shape[:-1] and value.size == data.size]
        parts = [self._draw.pick(*older, data), data]
        if self._dtype != "float32":
            # As in converters: the operands have the scale of the result.
            parts = [self._add("QUANTIZE", [part.name], self._value(part.shape, 0, data)) for part in parts]
        shape = (*data.shape[:-1], sum(part.shape[-1] for part in parts))
        result = self._add("CONCATENATION", [part.name for part in parts], self._value(shape, 0, data), axis=-1)
        self._read = (*self._read, data.name)
        return result

    def add_activation(self, data: _Value, operator: str) -> _Value:
        """Add an elementwise activation."""
        fixed: dict[str, Any] = {}
        if self._dtype != "float32" and operator in ("LOGISTIC", "TANH", "SOFTMAX"):
            quantisations = {"LOGISTIC": (1 / 256, -128), "SOFTMAX": (1 / 256, -128), "TANH": (1 / 128, 0)}
            scale, zero = quantisations[operator] if self._dtype == "int8" else (1 / 32768, 0)
            fixed = {"scale": scale, "zero": zero}
        result = self._value(data.shape, 1.0 if fixed or self._dtype == "float32" else data.size, **fixed)
        options = {"alpha": 0.2} if operator == "LEAKY_RELU" else {}
        return self._add(operator, [data.name], result, **options)

    def add_padding(self, data: _Value) -> _Value:
        """Add a padding of rows and columns."""
        sides = [(0, 0), *((self._draw.integer(0, 2), self._draw.integer(0, 2)) for _ in range(2)), (0, 0)]
        shape = tuple(extent + sum(side) for extent, side in zip(data.shape, sides, strict=True))
        return self._add("PAD", [data.name, self._constant(sides)], self._value(shape, 0, data))

    def add_resize(self, data: _Value, operator: str) -> _Value:
        """Add an enlargement."""
        # For int16, RESIZE_BILINEAR has no reference kernel.
        operator = "RESIZE_NEAREST_NEIGHBOR" if self._dtype == "int16" else operator
        size = tuple(2 * extent for extent in data.shape[1:3])
        result = self._value((1, *size, data.shape[3]), 0, data)
        options = {"half_pixel_centers": self._draw.pick(True, False)}
        return self._add(operator, [data.name, self._constant(size)], result, **options)

    def add_slice(self, data: _Value) -> _Value:
        """Add a slice."""
        begin = [self._draw.integer(0, extent - 1) if extent > 1 else 0 for extent in data.shape]
        size = [self._draw.integer(1, extent - first) for extent, first in zip(data.shape, begin, strict=True)]
        operands = [data.name, self._constant(begin), self._constant(size)]
        return self._add("SLICE", operands, self._value(tuple(size), 0, data))

    def add_transpose(self, data: _Value) -> _Value:
        """Add a transposition of an image's axes."""
        order = [0, *(1 + self._draw.random.permutation(3))]
        shape = tuple(data.shape[axis] for axis in order)
        return self._add("TRANSPOSE", [data.name, self._constant(order)], self._value(shape, 0, data))

    def add_split(self, data: _Value) -> _Value:
        """Add a split of channels, and the sum of the halves."""
        shape = (*data.shape[:-1], data.shape[-1] // 2)
        parts = [self._value(shape, 0, data) for _ in range(2)]
        axis = self._constant(np.int32(len(shape) - 1))
        self._builder.operator("SPLIT", [axis, data.name], [part.name for part in parts], num_splits=2)
        return self._add("ADD", [part.name for part in parts], self._value(shape, data.size * 1.4))

    def add_mean(self, data: _Value) -> _Value:
        """Add the mean of an image's channels."""
        result = self._value((1, data.shape[3]), data.size / 2)
        return self._add("MEAN", [data.name, self._constant([1, 2])], result, keep_dims=False)

    def add_reshape(self, data: _Value) -> _Value:
        """Add a reshape to a vector."""
        shape = (1, math.prod(data.shape))
        return self._add("RESHAPE", [data.name, self._constant(shape)], self._value(shape, 0, data))

    def add_dense(self, data: _Value) -> _Value:
        """Add a dense layer."""
        outputs, inputs = self._draw.integer(1, 16), data.shape[-1]
        weights, bias, size = self._weights(data, (outputs, inputs), 0, inputs)
        result = self._value((1, outputs), size)
        return self._add("FULLY_CONNECTED", [data.name, weights, bias], result)

    def add_attention(self, data: _Value) -> _Value:
        """Add attention over an image's pixels: product, softmax, product."""
        pixels, channels = data.shape[1] * data.shape[2], data.shape[3]
        shape = (1, pixels, channels)
        flat = self._add("RESHAPE", [data.name, self._constant(shape)], self._value(shape, 0, data))
        scores = self._value((1, pixels, pixels), data.size**2 * math.sqrt(channels) * 0.5)
        self._add("BATCH_MATMUL", [flat.name, flat.name], scores, adj_y=True)
        weights = self.add_activation(scores, "SOFTMAX")
        product = self._add("BATCH_MATMUL", [weights.name, flat.name], self._value(shape, data.size))
        result = self._add("RESHAPE", [product.name, self._constant(data.shape)], self._value(data.shape, 0, product))
        self._read = (data.name,)
        return result


def _is_image(value: _Value) -> bool:
    return len(value.shape) == 4


def _is_small_image(value: _Value) -> bool:
    return _is_image(value) and math.prod(value.shape) < 1500


def _is_vector(value: _Value) -> bool:
    return len(value.shape) == 2


def with_operator(add_layer: Callable[..., _Value], operator: str) -> Callable[[Net, _Value], _Value]:
    return lambda net, value: add_layer(net, value, operator)


_LAYERS: tuple[tuple[Callable[[_Value], bool], Callable[[Net, _Value], _Value]], ...] = (
    *(
        (_is_image, with_operator(Net.add_window, name))
        for name in ("CONV_2D", "CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D")
    ),
    *(
        (_is_image, with_operator(Net.add_window, name))
        for name in ("DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D")
    ),
    *((lambda value: True, with_operator(Net.add_binary, name)) for name in ("ADD", "ADD", "SUB")),
    (lambda value: value.size < 30, with_operator(Net.add_binary, "MUL")),
    *(
        (lambda value: True, with_operator(Net.add_activation, name))
        for name in ("RELU", "LOGISTIC", "TANH", "LEAKY_RELU", "SOFTMAX", "RELU6")
    ),
    (_is_small_image, Net.add_transposed_convolution),
    (_is_small_image, with_operator(Net.add_resize, "RESIZE_NEAREST_NEIGHBOR")),
    (_is_small_image, with_operator(Net.add_resize, "RESIZE_BILINEAR")),
    (_is_small_image, Net.add_attention),
    (_is_image, Net.add_concatenation),
    (_is_image, Net.add_padding),
    (_is_image, Net.add_slice),
    (_is_image, Net.add_transpose),
    (lambda value: value.shape[-1] % 2 == 0, Net.add_split),
    (_is_image, Net.add_mean),
    (_is_small_image, Net.add_reshape),
    (_is_vector, Net.add_dense),
    (_is_vector, Net.add_dense),
)
"""Condition for a layer, and the function that adds it."""
