"""Operators that compute each element of the output from one element of each input."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from utvm.compiler.integer.kernel import clamped, constant, described, requantized, with_one_loop
from utvm.compiler.integer.records import Int8, Operator, Rescale

_ADDITION_SHIFT = 20  # Bits that TensorFlow Lite's ADD and SUB make room for behind their operands.
_EXACT_HALF = 2**30  # A multiplier that is a power of two loses nothing when the number has zeros behind it.

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Addition:
    """The sum or difference of two tensors, with broadcasting: TensorFlow Lite's ADD and SUB.

    Attributes:
        shapes: of the operands.
        zeros: zero points of the operands.
        factors: rescalings of ``(operand - zero) << 20`` to the common scale.
        subtract: the second operand is taken away.
        output: rescaling of the sum.
        output_zero: zero point of the sum.
        low, high: clamp.
    """

    shapes: tuple[Shape, Shape]
    zeros: tuple[int, int]
    factors: tuple[Rescale, Rescale]
    subtract: bool
    output: Rescale
    output_zero: int
    low: int
    high: int

    @property
    def output_shape(self) -> Shape:
        """The operands' shapes, broadcast."""
        return tuple(np.broadcast_shapes(*self.shapes))


@dataclass(frozen=True)
class Product:
    """The product of two tensors, with broadcasting: TensorFlow Lite's MUL.

    Attributes:
        shapes: of the operands.
        zeros: zero points of the operands.
        output: rescaling of the product.
        output_zero: zero point of the product.
        low, high: clamp.
    """

    shapes: tuple[Shape, Shape]
    zeros: tuple[int, int]
    output: Rescale
    output_zero: int
    low: int
    high: int

    @property
    def output_shape(self) -> Shape:
        """The operands' shapes, broadcast."""
        return tuple(np.broadcast_shapes(*self.shapes))


@dataclass(frozen=True)
class Lookup:
    """A function of one int8 number, tabulated.

    Attributes:
        shape: of input and output.
        table: 256 results, that of -128 first.
        name: what the report calls it.
    """

    shape: Shape
    table: Int8
    name: str


@dataclass(frozen=True)
class Shift:
    """uint8 to int8 or back: the same numbers, moved by 128.

    Attributes:
        shape: of input and output.
        source, target: element types.
    """

    shape: Shape
    source: str
    target: str


@dataclass(frozen=True)
class Quantisation:
    """float32 to int8 or uint8 where a model's floats end.

    Attributes:
        shape: of input and output.
        scale, zero: of the output.
        target: element type.
        rounding: C function that rounds: ``roundf`` takes halves away from zero, ``rintf`` to even.
    """

    shape: Shape
    scale: float
    zero: int
    target: str
    rounding: str


def make_addition(record: Addition) -> Operator:
    """Make the operator of a sum or difference."""

    def compute(a: Any, b: Any) -> Any:
        first = _scaled(a - record.zeros[0], record.factors[0])
        second = _scaled(b - record.zeros[1], record.factors[1])
        total = first - second if record.subtract else first + second
        return clamped(requantized(total, record.output) + record.output_zero, record.low, record.high)

    return _binary("subtract_int8" if record.subtract else "add_int8", record.shapes, compute)


def make_product(record: Product) -> Operator:
    """Make the operator of a product."""

    def compute(a: Any, b: Any) -> Any:
        product = (a - record.zeros[0]) * (b - record.zeros[1])
        return clamped(requantized(product, record.output) + record.output_zero, record.low, record.high)

    return _binary("multiply_int8", record.shapes, compute)


def make_lookup(record: Lookup) -> Operator:
    """Make the operator of a tabulated function."""
    data = te.placeholder(record.shape, "int8", "data")
    table = te.placeholder((256,), "int8", "table")
    output = te.compute(record.shape, lambda *at: table[data[at].astype("int32") + 128], "output")
    function = with_one_loop(te.create_prim_func([data, table, output]))
    return Operator(described(function, f"{record.name}_int8", [0]), (record.table,), (0,))


def make_shift(record: Shift) -> Operator:
    """Make the operator that moves numbers between int8 and uint8."""
    data = te.placeholder(record.shape, record.source, "data")
    offset = 128 if record.target == "uint8" else -128
    output = te.compute(
        record.shape, lambda *at: (data[at].astype("int32") + offset).astype(record.target), "output"
    )
    function = with_one_loop(te.create_prim_func([data, output]))
    return Operator(described(function, f"shift_{record.target}", [0]), (), (0,))


def make_quantisation(record: Quantisation) -> Operator:
    """Make the operator that quantises floats."""
    limits = np.iinfo(record.target)
    data = te.placeholder(record.shape, "float32", "data")

    def compute(*at: Any) -> Any:
        steps = tirx.call_pure_extern(
            "float32", record.rounding, data[at] / tirx.FloatImm("float32", record.scale)
        )
        low, high = (tirx.FloatImm("float32", float(limit - record.zero)) for limit in (limits.min, limits.max))
        limited = tirx.max(tirx.min(steps, high), low)
        return (limited.astype("int32") + record.zero).astype(record.target)

    output = te.compute(record.shape, compute, "output")
    function = with_one_loop(te.create_prim_func([data, output]))
    return Operator(described(function, f"quantize_{record.target}", [0]), (), (0,))


def _scaled(value: Any, factor: Rescale) -> Any:
    multiplier, shift = int(factor.multipliers[0]), int(factor.shifts[0])
    exponent = _ADDITION_SHIFT + shift - 1
    if multiplier == _EXACT_HALF and 0 <= exponent <= _ADDITION_SHIFT:
        return tirx.shift_left(value, constant(exponent))
    return requantized(tirx.shift_left(value, constant(_ADDITION_SHIFT)), factor)


def _binary(operator: str, shapes: tuple[Shape, Shape], compute: Callable[[Any, Any], Any]) -> Operator:
    inputs = [te.placeholder(shape, "int8", name) for shape, name in zip(shapes, ("a", "b"), strict=True)]
    shape = tuple(np.broadcast_shapes(*shapes))

    def element(*at: Any) -> Any:
        return compute(*(_broadcast(tensor, at).astype("int32") for tensor in inputs))

    output = te.compute(shape, element, "output")
    function = te.create_prim_func([*inputs, output])
    overlap = tuple(0 if each == shape else None for each in shapes)
    if overlap == (0, 0):
        function = with_one_loop(function)
    return Operator(described(function, operator, overlap), (), overlap)


def _broadcast(tensor: Any, at: tuple[Any, ...]) -> Any:
    own = at[len(at) - len(tensor.shape) :]
    return tensor[
        tuple(constant(0) if int(extent) == 1 else place for place, extent in zip(own, tensor.shape, strict=True))
    ]
