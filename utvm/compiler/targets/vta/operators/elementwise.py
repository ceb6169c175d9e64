# SPDX-License-Identifier: Apache-2.0
"""What the ALU does with two tensors, element by element."""

from dataclasses import dataclass, field
from typing import Any, Literal

from tvm import te, tirx

from utvm.compiler.targets.vta.env import ACC, Env
from utvm.compiler.targets.vta.operators.requantise import Requantise
from utvm.compiler.targets.vta.operators.tiles import (
    Turns,
    best_tile,
    cached,
    check_sizes,
    named,
    put_on_chip,
    tiled_output,
)
from utvm.errors import CompileError

_OPERATIONS = {"add": lambda a, b: a + b, "max": tirx.max, "min": tirx.min}
_DTYPES = ("int8", "int32")


@dataclass(frozen=True)
class Elementwise:
    """``out = requantised(operation(a, b))`` of int8 or int32.

    Parameters of the function that is made: a, b, out, of ``numbers`` in blocks of BATCH x BLOCK_OUT.
    """

    numbers: int
    operation: Literal["add", "max", "min"] = "add"
    dtype: Literal["int8", "int32"] = "int32"
    requantise: Requantise = field(default_factory=Requantise)

    def __post_init__(self) -> None:
        check_sizes(self.numbers)
        if self.operation not in _OPERATIONS or self.dtype not in _DTYPES:
            raise CompileError(
                f"VTA: there is no {self.operation} of {self.dtype}",
                f"there are: {', '.join(_OPERATIONS)} of {', '.join(_DTYPES)}",
            )

    def schedule(self, env: Env) -> Any:
        """The schedule."""
        count = -(-self.numbers // env.lanes(ACC))
        shape = (count, env.BATCH, env.BLOCK_OUT)
        given = [te.placeholder(shape, self.dtype, name) for name in "ab"]
        stages = ["wide_a", "wide_b"] if self.dtype == "int8" else []
        a, b = (_widen(item, name) for item, name in zip(given, stages, strict=True)) if stages else given
        work = _OPERATIONS[self.operation]
        total = te.compute(shape, lambda *i: work(a(*i), b(*i)), name="sum")
        out, more = self.requantise.declared(total)
        schedule = named(te.create_prim_func([*given, out]), "elementwise")
        tile = best_tile(
            env,
            (count,),
            lambda tile: {ACC: 2 * tile[0]},
            lambda tile: Turns(count // tile[0], 2 * tile[0] * env.lanes(ACC), tile[0]),
            False,
            lambda _: 1,
        ).tile
        loop = tiled_output(schedule, tile)
        put_on_chip(schedule, [*stages, "sum", *more], loop)
        if not stages:
            cached(schedule, "sum", 1, ACC, loop)
            cached(schedule, "sum", 0, ACC, loop)
        return schedule


def _widen(of: Any, name: str) -> Any:
    return te.compute(of.shape, lambda *i: of(*i).astype("int32"), name=name)
