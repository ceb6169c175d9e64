# SPDX-License-Identifier: Apache-2.0
"""uint8 to int8 and back, where a model's integers are not what is computed."""

from dataclasses import dataclass

from tvm import te

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer.kernel import Shape, described, with_one_loop
from utvm.compiler.integer.records import Computation, Operator
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Shift(Computation):
    """uint8 to int8 or back: the same numbers, moved by 128.

    Attributes:
        shape: of input and output.
        source, target: element types.
    """

    shape: Shape
    source: str
    target: str


def _make(record: Shift, _: Target) -> Operator:
    data = te.placeholder(record.shape, record.source, "data")
    offset = 128 if record.target == "uint8" else -128
    output = te.compute(
        record.shape, lambda *at: (data[at].astype("int32") + offset).astype(record.target), "output"
    )
    function = with_one_loop(te.create_prim_func([data, output]))
    return Operator(described(function, f"shift_{record.target}", [0]), (), (0,))


OPERATOR = Int8Operator(Shift, _make)
