# SPDX-License-Identifier: Apache-2.0
"""Copies between DRAM and the chip: two-dimensional transfers, with zeros around what is loaded."""

from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx

from utvm.compiler.targets.vta.chip import OnChip
from utvm.compiler.targets.vta.env import ACC, MEMORY_OF, Env
from utvm.compiler.targets.vta.nest import (
    ANALYZER,
    Dim,
    Nest,
    TensorLoad,
    affine,
    call,
    dims_of,
    element,
    in_elements,
    merged,
    repeated,
)
from utvm.errors import CompileError

_MOST = (1 << 16) - 1
"""Of elements in a row of a transfer, of its rows, and of elements from one to the next."""


@dataclass(frozen=True)
class _Copy:
    """A copy between two buffers; of both strides of a loop, the first is DRAM's.

    Attributes:
        condition: where it is not true, the copy is zero.
    """

    chip: Any
    dram: Any
    chip_index: Any
    dram_index: Any
    loads: bool
    condition: Any = None


def copy(env: Env, chip: OnChip, nest: Nest, pointer: Any) -> Any:
    found = _read(nest)
    scope = found.chip.scope()
    lanes = env.lanes(scope)
    dram, dram_base = affine(found.dram_index, nest.variables)
    on_chip, chip_base = affine(found.chip_index, nest.variables)
    dims = dims_of(nest, dram, on_chip)
    if found.condition is not None:
        dims = _with_padding(dims, found.condition, nest)
    dims = merged(in_elements(dims, lanes))
    x, y, others, row = _rectangle(dims)
    if any(dim.padded for dim in others):
        raise CompileError("VTA: padding is on the two innermost dimensions, in whole elements")
    first = element(dram_base, lanes) + y.before * row + x.before
    number, name = tvm.tirx.const, MEMORY_OF[scope]
    memory = env.configuration.memories[
        "ACC_8BIT" if name == "ACC" and found.loads and _narrow(found.dram) else name
    ]

    def transfer(offsets: list[Any]) -> Any:
        sizes = [ANALYZER.simplify(dim.extent - dim.before - dim.after) for dim in (x, y)]
        if not found.loads:
            out = env.configuration.memories["OUT"].number
            return call("VTAStoreBuffer2D", offsets[1], out, pointer, offsets[0], *sizes, row)
        padding = [ANALYZER.simplify(number(0, "int32") + pad) for pad in (x.before, y.before, x.after, y.after)]
        return call("VTALoadBuffer2D", pointer, offsets[0], *sizes, row, *padding, offsets[1], memory.number)

    return repeated(others, [first, element(chip_base, lanes) + chip.base(found.chip)], transfer)


def _narrow(buffer: Any) -> bool:
    return str(buffer.dtype) == "int8"


def _read(nest: Nest) -> _Copy:
    store, value, condition = nest.store, nest.store.value, None
    if isinstance(value, tvm.ir.Call) and value.op.name.endswith("if_then_else"):
        condition, value, otherwise = value.args
        if not (isinstance(otherwise, tirx.IntImm) and int(otherwise) == 0):
            raise CompileError(f"VTA: padding is with zeros, not with {otherwise}")
    if isinstance(value, tirx.Cast):
        value = value.value
    if not isinstance(value, TensorLoad):
        raise CompileError(
            f"VTA: is no copy: {store.buffer.name} = {store.value}", "the ALU works in local.acc_buffer"
        )
    loads = store.buffer.scope() in MEMORY_OF
    if loads:
        made = _Copy(store.buffer, value.source, store.indices[0], value.indices[0], True, condition)
    else:
        made = _Copy(value.source, store.buffer, value.indices[0], store.indices[0], False, condition)
    scope, narrow = made.chip.scope(), _narrow(made.dram)
    if scope not in MEMORY_OF or made.dram.scope() in MEMORY_OF:
        raise CompileError(
            f"VTA: {store.buffer.name} = {store.value}: one side of a copy is on the chip, one is not"
        )
    if not loads and (scope != ACC or not narrow):
        raise CompileError(f"VTA: what is stored are accumulators, as int8: {store.buffer.name} = {store.value}")
    if loads and scope != ACC and not narrow:
        raise CompileError(f"VTA: {made.dram.name} is {made.dram.dtype}, and {MEMORY_OF[scope]} holds int8")
    if loads and scope == ACC and not narrow and str(made.dram.dtype) != "int32":
        raise CompileError(f"VTA: {made.dram.name} is {made.dram.dtype}, and ACC takes int8 and int32")
    return made


def _with_padding(dims: list[Dim], condition: Any, nest: Nest) -> list[Dim]:
    bounds = tvm.sym.detect_clip_bound(condition, nest.variables)
    if not bounds:
        raise CompileError(f"VTA: padding has a range in each dimension, not {condition}")
    zero, made = tirx.const(0, "int32"), []
    for number, dim in enumerate(dims):
        low, high = bounds[2 * number], bounds[2 * number + 1]
        before = zero if low is None else ANALYZER.simplify(tirx.max(low, zero))
        after = zero if high is None else ANALYZER.simplify(tirx.max(dim.extent - 1 - high, zero))
        made.append(replace(dim, before=before, after=after))
    return [dim if dim.padded else Dim(dim.extent, dim.strides) for dim in made]


def _rectangle(dims: list[Dim]) -> tuple[Dim, Dim, list[Dim], int]:
    one, left = Dim(1, (0, 0)), list(dims)
    x = left.pop() if left and left[-1].strides == (1, 1) else one
    if x.extent > _MOST:
        raise CompileError(f"VTA: a row of {x.extent} elements is copied, and a transfer has {_MOST} at most")
    if left and left[-1].strides[1] == x.extent and max(left[-1].extent, left[-1].strides[0]) <= _MOST:
        y = left.pop()
        return x, y, left, y.strides[0]
    return x, one, left, x.extent
