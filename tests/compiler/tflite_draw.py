# SPDX-License-Identifier: Apache-2.0
"""Random models of one operator: tensors, scales, numbers, and the file."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from models.tflite_writer import Builder

Shape = tuple[int, ...]
QUANTISED = {"int8": (-128, 127), "int16": (-32768, 32767), "uint8": (0, 255)}
TYPES = ("float32", "int8", "int16", "uint8", "int32", "int64", "bool")


@dataclass(frozen=True)
class Spec:
    """A tensor of a layer."""

    shape: Shape
    dtype: str
    scale: Any = None
    zero: Any = 0
    data: Any = None
    axis: int = 0
    variable: bool = False

    @property
    def is_input(self) -> bool:
        """Whether it is an input of the model."""
        return self.data is None and not self.variable


@dataclass(frozen=True)
class Layer:
    """An operator with its tensors; None for an omitted operand."""

    inputs: Sequence[Spec | None]
    outputs: Sequence[Spec]
    options: dict[str, Any] = field(default_factory=dict)

    def content(self, operator: str, *, halves: bool = False) -> bytes:
        """File of a model with this layer only; ``halves``: store its constants as half floats."""
        builder = Builder()
        add = self._add_half if halves else self._add
        names = [add(builder, f"in{number}", spec) for number, spec in enumerate(self.inputs)]
        results = [self._add(builder, f"out{number}", spec) for number, spec in enumerate(self.outputs)]
        builder.operator(operator, names, [str(name) for name in results], **self.options)
        inputs = [
            str(name) for name, spec in zip(names, self.inputs, strict=True) if spec is not None and spec.is_input
        ]
        return builder.finish(inputs, [str(name) for name in results])

    def in_halves(self) -> "Layer":
        """The layer with its constants rounded to half floats."""
        inputs = [
            replace(spec, data=np.asarray(spec.data, np.float16)) if spec and _is_real(spec) else spec
            for spec in self.inputs
        ]
        return Layer(inputs, self.outputs, self.options)

    def _add_half(self, builder: Builder, name: str, spec: Spec | None) -> str | None:
        if spec is None or not _is_real(spec):
            return self._add(builder, name, spec)
        builder.tensor(f"{name}_half", spec.shape, "float16", spec.data)
        builder.tensor(name, spec.shape, "float32")
        builder.operator("DEQUANTIZE", [f"{name}_half"], [name])
        return name

    @staticmethod
    def _add(builder: Builder, name: str, spec: Spec | None) -> str | None:
        if spec is None:
            return None
        return builder.tensor(
            name,
            spec.shape,
            spec.dtype,
            spec.data,
            scale=spec.scale,
            zero_point=spec.zero,
            axis=spec.axis,
            variable=spec.variable,
        )


def _is_real(spec: Spec) -> bool:
    return spec.data is not None and spec.dtype == "float32"


class Draw:
    """Draws the parts of a layer."""

    _long = False

    def __init__(self, name: str, dtype: str) -> None:
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.dtype = dtype
        self._long = " long " in name

    def integer(self, low: int, high: int) -> int:
        """Random number from low to high."""
        return int(self.random.integers(low, high + 1))

    def pick(self, *choices: Any) -> Any:
        """One of the choices."""
        return choices[self.integer(0, len(choices) - 1)]

    def shape(self, rank: int, limit: int = 6, first: int | None = None) -> Shape:
        """Random extents."""
        extents = tuple(self.integer(1, limit) for _ in range(rank))
        if self._long:  # The last axis of the first tensor: length matters for sums and softmax.
            self._long = False
            extents = (*(min(extent, 2) for extent in extents[:-1]), self.integer(65, 4096))
        return extents if first is None else (first, *extents[1:])

    def tensor(self, shape: Sequence[int], **changes: Any) -> Spec:
        """A tensor of the layer's type, quantised if the type is."""
        shape = tuple(shape)
        if self.dtype == "int16":
            spec = Spec(shape, "int16", float(np.exp(self.random.uniform(np.log(2e-5), np.log(5e-4)))))
        elif self.dtype in QUANTISED:
            low, high = QUANTISED[self.dtype]
            scale = float(np.exp(self.random.uniform(np.log(0.004), np.log(0.08))))
            zero = self.pick(low, (low + high + 1) // 2, self.integer(low, high), self.integer(low, high))
            spec = Spec(shape, self.dtype, scale, zero)
        else:
            spec = Spec(shape, self.dtype)
        return replace(spec, **changes)

    def values(self, shape: Sequence[int], spec: Spec | None = None) -> np.ndarray:
        """Random numbers of a type."""
        return numbers(self.random, tuple(shape), spec.dtype if spec else self.dtype)

    def like(self, spec: Spec, shape: Sequence[int]) -> Spec:
        """A tensor of the same type and quantisation."""
        return replace(spec, shape=tuple(shape), data=None)

    def fixed(self, spec: Spec, scale8: float, zero8: int) -> Spec:
        """A result with the operator's fixed quantisation: 8 or 15 bits."""
        if spec.dtype == "int16":
            return replace(spec, scale=1 / 32768, zero=0)
        if spec.dtype == "uint8":
            return replace(spec, scale=scale8, zero=zero8 + 128)
        return replace(spec, scale=scale8, zero=zero8) if spec.dtype == "int8" else spec


def numbers(random: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    """Random numbers; all values of a quantised type."""
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype == "float32":
        return random.normal(0, 2, shape).astype(np.float32)
    if dtype in QUANTISED:
        low, high = QUANTISED[dtype]
        usual = random.integers(low, high + 1, shape)
        # Kernels differ at the limits of the range.
        limits = random.choice([low, high, low + 1], shape)
        return np.where(random.random(shape) < 0.1, limits, usual).astype(dtype)
    if dtype in ("uint32", "uint64"):  # As many small numbers as large ones.
        bits = random.integers(0, 33 if dtype == "uint32" else 65, shape)
        usual = random.integers(0, 1 << 64, shape, dtype=np.uint64)
        return np.where(bits == 0, 0, usual >> (64 - np.maximum(bits, 1)).astype(np.uint64)).astype(dtype)
    return random.integers(-50, 51, shape).astype(dtype)


def int32(values: Any) -> Spec:
    """A constant of shapes, axes or indices."""
    array = np.asarray(values, np.int32)
    return Spec(array.shape, "int32", data=array)
