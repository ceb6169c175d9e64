# SPDX-License-Identifier: Apache-2.0
"""Lower a scheduled function to VTA driver calls: row transfers between DRAM and chip, GEMM and ALU loops."""

from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from utvm.compiler.targets.vta import loops
from utvm.compiler.targets.vta.env import ACC, INP, MEMORY_OF, WGT, Env
from utvm.errors import CompileError
from utvm.runtime.vta.instructions import OPERATIONS

_MOST = (1 << 16) - 1  # Limit of elements per row, rows, and row stride of a transfer.


@dataclass(frozen=True)
class _Copy:
    """A copy between buffers, or zeros if ``condition`` is false; in pairs of strides the first is DRAM's."""

    chip: Any
    dram: Any
    chip_index: Any
    dram_index: Any
    loads: bool
    condition: Any = None


def copy(env: Env, chip: loops.OnChip, nest: loops.Nest, pointer: Any) -> Any:
    plan = _read_copy(nest)
    scope = plan.chip.scope()
    lanes = env.lanes(scope)
    dram, dram_base = loops.affine(plan.dram_index, nest.variables)
    on_chip, chip_base = loops.affine(plan.chip_index, nest.variables)
    dims = loops.dims_of(nest, dram, on_chip)
    if plan.condition is not None:
        dims = _with_padding(dims, plan.condition, nest)
    dims = loops.merge(loops.in_elements(dims, lanes))
    x, y, others, row = _rectangle(dims)
    if any(dim.is_padded for dim in others):
        raise CompileError("VTA: padding is on the two innermost dimensions, in whole elements")
    first = loops.element(dram_base, lanes) + y.before * row + x.before
    number, name = tvm.tirx.const, MEMORY_OF[scope]
    memory = env.configuration.memories["ACC_8BIT" if name == "ACC" and plan.loads and _narrow(plan.dram) else name]

    def transfer(offsets: list[Any]) -> Any:
        sizes = [loops.ANALYZER.simplify(dim.extent - dim.before - dim.after) for dim in (x, y)]
        if not plan.loads:
            out = env.configuration.memories["OUT"].number
            return loops.call("VTAStoreBuffer2D", offsets[1], out, pointer, offsets[0], *sizes, row)
        padding = [loops.ANALYZER.simplify(number(0, "int32") + pad) for pad in (x.before, y.before, x.after, y.after)]
        return loops.call("VTALoadBuffer2D", pointer, offsets[0], *sizes, row, *padding, offsets[1], memory.number)

    return loops.repeat(others, [first, loops.element(chip_base, lanes) + chip.base(plan.chip)], transfer)


def _narrow(buffer: Any) -> bool:
    return str(buffer.dtype) == "int8"


def _read_copy(nest: loops.Nest) -> _Copy:
    store, value, condition = nest.store, nest.store.value, None
    if isinstance(value, tvm.ir.Call) and value.op.name.endswith("if_then_else"):
        condition, value, otherwise = value.args
        if not (isinstance(otherwise, tirx.IntImm) and int(otherwise) == 0):
            raise CompileError(f"VTA: padding is with zeros, not with {otherwise}")
    if isinstance(value, tirx.Cast):
        value = value.value
    if not isinstance(value, loops.TensorLoad):
        raise CompileError(f"VTA: not a copy: {store.buffer.name} = {store.value}", "the ALU works in local.acc_buffer")
    loads = store.buffer.scope() in MEMORY_OF
    if loads:
        transfer = _Copy(store.buffer, value.source, store.indices[0], value.indices[0], True, condition)
    else:
        transfer = _Copy(value.source, store.buffer, value.indices[0], store.indices[0], False, condition)
    scope, narrow = transfer.chip.scope(), _narrow(transfer.dram)
    if scope not in MEMORY_OF or transfer.dram.scope() in MEMORY_OF:
        raise CompileError(f"VTA: {store.buffer.name} = {store.value}: one side of a copy is on the chip, one is not")
    if not loads and (scope != ACC or not narrow):
        raise CompileError(f"VTA: only accumulators can be stored, as int8: {store.buffer.name} = {store.value}")
    if loads and scope != ACC and not narrow:
        raise CompileError(f"VTA: {transfer.dram.name} is {transfer.dram.dtype}, and {MEMORY_OF[scope]} holds int8")
    if loads and scope == ACC and not narrow and str(transfer.dram.dtype) != "int32":
        raise CompileError(f"VTA: {transfer.dram.name} is {transfer.dram.dtype}, and ACC takes int8 and int32")
    return transfer


def _with_padding(dims: list[loops.Dim], condition: Any, nest: loops.Nest) -> list[loops.Dim]:
    bounds = tvm.sym.detect_clip_bound(condition, nest.variables)
    if not bounds:
        raise CompileError(f"VTA: padding has a range in each dimension, not {condition}")
    zero, padded_dims = tirx.const(0, "int32"), []
    for number, dim in enumerate(dims):
        low, high = bounds[2 * number], bounds[2 * number + 1]
        before = zero if low is None else loops.ANALYZER.simplify(tirx.max(low, zero))
        after = zero if high is None else loops.ANALYZER.simplify(tirx.max(dim.extent - 1 - high, zero))
        padded_dims.append(replace(dim, before=before, after=after))
    return [dim if dim.is_padded else loops.Dim(dim.extent, dim.strides) for dim in padded_dims]


def _rectangle(dims: list[loops.Dim]) -> tuple[loops.Dim, loops.Dim, list[loops.Dim], int]:
    one, left = loops.Dim(1, (0, 0)), list(dims)
    x = left.pop() if left and left[-1].strides == (1, 1) else one
    if x.extent > _MOST:
        raise CompileError(f"VTA: a row of {x.extent} elements is copied, and a transfer has {_MOST} at most")
    if left and left[-1].strides[1] == x.extent and max(left[-1].extent, left[-1].strides[0]) <= _MOST:
        y = left.pop()
        return x, y, left, y.strides[0]
    return x, one, left, x.extent


_GEMM, _ALU = 0, 1
_MOST_TURNS = (1 << 14) - 1
_BITS_16 = range(-(1 << 15), 1 << 15)


def _operation(dims: list[loops.Dim], bases: list[Any], mode: int, *, reset: int = 0, alu: tuple[int, int, int]) -> Any:
    dims = sorted(loops.merge(dims), key=lambda dim: -dim.extent)
    hardware, software = dims[:2], dims[2:]
    if any(dim.extent > _MOST_TURNS for dim in hardware):
        raise CompileError(f"VTA: a loop of {dims[0].extent} turns, and an operation's have {_MOST_TURNS} at most")

    def push(indices: list[Any]) -> Any:
        return loops.call("VTAUopPush", mode, reset, *indices, *alu)

    return tirx.stmt_seq(
        *(loops.call("VTAUopLoopBegin", dim.extent, *dim.strides) for dim in hardware),
        loops.repeat(software, bases, push),
        *(loops.call("VTAUopLoopEnd") for _ in hardware),
        loops.call("VTAPushALUOp" if mode == _ALU else "VTAPushGEMMOp"),
    )


def gemm(env: Env, chip: loops.OnChip, nest: loops.Nest) -> Any:
    """Lower ``acc += inp * wgt``; raises CompileError unless a block is BATCH x BLOCK_OUT x BLOCK_IN."""
    store = nest.store
    inputs, weights = _factors(store)
    batch, block = env.BATCH, env.BLOCK_IN
    out, out_base = loops.affine(store.indices[0], nest.variables)
    inp, inp_base = loops.affine(inputs.indices[0], nest.variables)
    wgt, wgt_base = loops.affine(weights.indices[0], nest.variables)
    dims = [dim for dim in loops.dims_of(nest, out, inp, wgt) if dim.extent != 1]
    core = [loops.Dim(block, (0, 1, 1)), loops.Dim(block, (1, 0, block)), loops.Dim(batch, (block, block, 0))]
    for inside in core:
        if inside.extent != 1:
            if inside not in dims:
                raise CompileError(
                    f"VTA: a product of {batch} x {block} inputs with {block} x {block} weights is required, "
                    f"and {store.buffer.name} has the loops {[(dim.extent, dim.strides) for dim in dims]}"
                )
            dims.remove(inside)
    lanes = (env.lanes(ACC), env.lanes(INP), env.lanes(WGT))
    if any(step % size for dim in dims for step, size in zip(dim.strides, lanes, strict=True)):
        raise CompileError(f"VTA: the loops of {store.buffer.name} do not step by whole blocks")
    dims = [loops.Dim(d.extent, tuple(step // size for step, size in zip(d.strides, lanes, strict=True))) for d in dims]
    places = zip((out_base, inp_base, wgt_base), lanes, (store.buffer, inputs.source, weights.source), strict=True)
    bases = [loops.element(base, size) + chip.base(buffer) for base, size, buffer in places]
    return _operation(dims, bases, _GEMM, alu=(0, 0, 0))


def is_gemm(store: Any) -> bool:
    return isinstance(store.value, tirx.Add) and any(
        isinstance(side, tirx.Mul) for side in (store.value.a, store.value.b)
    )


def _factors(store: Any) -> tuple[Any, Any]:
    sum_, product = store.value.a, store.value.b
    if isinstance(sum_, tirx.Mul):
        sum_, product = product, sum_
    factors = [side.value if isinstance(side, tirx.Cast) else side for side in (product.a, product.b)]
    by_scope = {factor.source.scope(): factor for factor in factors if isinstance(factor, loops.TensorLoad)}
    own = isinstance(sum_, loops.TensorLoad) and sum_.source.same_as(store.buffer)
    if not own or set(by_scope) != {INP, WGT} or store.buffer.scope() != ACC:
        raise CompileError(
            f"VTA: not a GEMM: {store.buffer.name} = {store.value}",
            f"a product of what is in {INP} with what is in {WGT} is added to what is in {ACC}",
        )
    return by_scope[INP], by_scope[WGT]


def alu(env: Env, chip: loops.OnChip, nest: loops.Nest) -> Any:
    """Lower an operation on accumulators; raises CompileError if the ALU lacks it."""
    store, value = nest.store, nest.store.value
    if isinstance(value, tirx.IntImm):
        return _constant(env, chip, nest, int(value))
    _, left, _ = _read(store)
    out, out_base = loops.affine(store.indices[0], nest.variables)
    first, first_base = loops.affine(left.indices[0], nest.variables)
    to = loops.element(out_base, env.lanes(ACC)) + chip.base(store.buffer)
    over = loops.element(first_base, env.lanes(ACC)) + chip.base(left.source)
    if out != first or not loops.ANALYZER.can_prove_equal(to, over):
        if chip.share(store.buffer, left.source):
            raise CompileError(f"VTA: the ALU writes over its first operand: {store.buffer.name} = {value} cannot be")
        return tirx.stmt_seq(_copy(env, nest, (out, first), (to, over)), _vector_operation(env, chip, nest, to, out))
    return _vector_operation(env, chip, nest, to, out)


def _copy(env: Env, nest: loops.Nest, strides: tuple[list[int], list[int]], places: tuple[Any, Any]) -> Any:
    dims = [
        loops.Dim(dim.extent, (*dim.strides, 0))
        for dim in loops.in_elements(loops.dims_of(nest, *strides), env.lanes(ACC))
    ]
    zeros = [loops.Dim(dim.extent, (dim.strides[0], 0, 0)) for dim in dims]
    return tirx.stmt_seq(
        _operation(zeros, [places[0], 0, 0], _GEMM, reset=1, alu=(0, 0, 0)),
        _operation(dims, [*places, 0], _ALU, alu=(OPERATIONS["ADD"], 0, 0)),
    )


def _vector_operation(env: Env, chip: loops.OnChip, nest: loops.Nest, to: Any, out: list[int]) -> Any:
    operation, _, right = _read(nest.store)
    if isinstance(right, tirx.IntImm):
        dims = loops.in_elements(loops.dims_of(nest, out, out), env.lanes(ACC))
        dims = [loops.Dim(dim.extent, (*dim.strides, 0)) for dim in dims]
        return _operation(dims, [to, to, 0], _ALU, alu=(operation, 1, _number(int(right))))
    second, second_base = loops.affine(right.indices[0], nest.variables)
    dims = [
        loops.Dim(d.extent, (*d.strides, 0))
        for d in loops.in_elements(loops.dims_of(nest, out, second), env.lanes(ACC))
    ]
    source = loops.element(second_base, env.lanes(ACC)) + chip.base(right.source)
    return _operation(dims, [to, source, 0], _ALU, alu=(operation, 0, 0))


def _constant(env: Env, chip: loops.OnChip, nest: loops.Nest, value: int) -> Any:
    """Fill accumulators: reset them to zero by a GEMM, then add the value."""
    out, base = loops.affine(nest.store.indices[0], nest.variables)
    dims = loops.in_elements(loops.dims_of(nest, out, out), env.lanes(ACC))
    to = loops.element(base, env.lanes(ACC)) + chip.base(nest.store.buffer)
    zeros = [loops.Dim(dim.extent, (dim.strides[0], 0, 0)) for dim in dims]
    reset = _operation(zeros, [to, 0, 0], _GEMM, reset=1, alu=(0, 0, 0))
    if value == 0:
        return reset
    same = [loops.Dim(dim.extent, (*dim.strides, 0)) for dim in dims]
    add = (OPERATIONS["ADD"], 1, _number(value))
    return tirx.stmt_seq(reset, _operation(same, [to, to, 0], _ALU, alu=add))


def _number(value: int) -> int:
    if value not in _BITS_16:
        raise CompileError(f"VTA: {value} does not fit the 16 bits of a number in an ALU operation")
    return value


def _read(store: Any) -> tuple[int, Any, Any]:
    value = store.value
    kinds = ((tirx.Min, "MIN"), (tirx.Max, "MAX"), (tirx.Add, "ADD"), (tirx.Sub, "SUB"), (tirx.RShift, "SHR"))
    name = next((name for kind, name in kinds if isinstance(value, kind)), "")
    if not name:
        raise _refuse(store)
    left, right = value.a, value.b
    if name == "SUB" and isinstance(right, tirx.IntImm):
        name, right = "ADD", tirx.const(-int(right), "int32")
    if name not in OPERATIONS:
        raise _refuse(store)
    turned = name != "SHR" and isinstance(right, loops.TensorLoad)
    if turned and (not isinstance(left, loops.TensorLoad) or right.source.same_as(store.buffer)):
        left, right = right, left
    operands = (left, right) if isinstance(right, loops.TensorLoad) else (left,)
    for operand in operands:
        if not isinstance(operand, loops.TensorLoad) or operand.source.scope() != ACC:
            raise _refuse(store)
    if not isinstance(right, loops.TensorLoad | tirx.IntImm):
        raise _refuse(store)
    return OPERATIONS[name], left, right


def _refuse(store: Any) -> CompileError:
    return CompileError(
        f"VTA: the ALU cannot do {store.buffer.name} = {store.value}",
        f"it does min, max, + and >> on int32 in {ACC}, with a number or another accumulator",
    )


BEGIN, SYNCHRONIZE = "vta.begin", "vta.synchronize"
"""First and last call of a lowered function, with the name of its configuration."""


def lower(module: Any, env: Env, linked: bool = False) -> Any:
    for transform in (
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
    ):
        module = transform(module)
    if linked:
        before, after = [], loops.call("VTASynchronize")
    else:
        begin, after = (tirx.Evaluate(tirx.call_packed(name, env.BITSTREAM)) for name in (BEGIN, SYNCHRONIZE))
        before = [begin]
    functions = {name: _Function(function, env).lower() for name, function in module.functions.items()}
    return tvm.IRModule(
        {name: function.with_body(tirx.stmt_seq(*before, function.body, after)) for name, function in functions.items()}
    )


class _Function:
    def __init__(self, function: Any, env: Env) -> None:
        self._function = function
        self._env = env
        self._chip = loops.OnChip(env, function.body)
        self._loaded: set[Any] = set()
        self._stored: set[Any] = set()
        # Parameters are flattened and renamed.
        declared: list[Any] = []
        tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, declared.append), order="pre")
        self._views = {node.buffer: node.data for node in declared}

    def lower(self) -> Any:
        body = self._statement(self._function.body)
        if self._loaded & self._stored:
            raise CompileError("VTA: a buffer in DRAM is both stored and loaded, and nothing waits for the store")
        return self._function.with_body(tirx.stmt_seq(*(self._map(param) for param in self._function.params), body))

    def _map(self, parameter: Any) -> Any:
        size = int(tvm.DataType(str(parameter.dtype)).bits) // 8
        for extent in parameter.shape:
            size *= int(extent)
        return loops.call("VTABufferMap", self._pointer(parameter), tirx.const(size, "int64"))

    def _pointer(self, buffer: Any) -> Any:
        return tirx.reinterpret("handle", self._views.get(buffer, buffer.data))

    def _statement(self, statement: Any) -> Any:
        if isinstance(statement, tirx.SeqStmt):
            left = [item for item in statement.seq if not isinstance(item, tirx.AllocBuffer | tirx.DeclBuffer)]
            return tirx.stmt_seq(*(self._statement(item) for item in left))
        if nest := loops.read_nest(statement):
            return self._nest(nest)
        if isinstance(statement, tirx.For):
            body = self._statement(statement.body)
            return tirx.For(statement.loop_var, statement.min, statement.extent, tirx.ForKind.SERIAL, body)
        if isinstance(statement, tirx.IfThenElse):
            raise CompileError(
                f"VTA: a split leaves a remainder: {statement.condition} is not always true",
                "split loops by a divisor, and pad shapes to whole blocks",
            )
        raise CompileError(f"VTA: cannot do {type(statement).__name__}: {str(statement).strip()[:200]}")

    def _nest(self, nest: loops.Nest) -> Any:
        store = nest.store
        if store.buffer.scope() not in MEMORY_OF:
            self._stored.add(store.buffer)
            return copy(self._env, self._chip, nest, self._pointer(store.buffer))
        source = _load_source(store.value)
        if source is not None:
            self._loaded.add(source)
            return copy(self._env, self._chip, nest, self._pointer(source))
        if store.buffer.scope() == ACC and is_gemm(store):
            return gemm(self._env, self._chip, nest)
        return alu(self._env, self._chip, nest)


def _load_source(value: Any) -> Any:
    if isinstance(value, tvm.ir.Call) and value.op.name.endswith("if_then_else"):
        value = value.args[1]
    if isinstance(value, tirx.Cast):
        value = value.value
    if isinstance(value, loops.TensorLoad) and value.source.scope() not in MEMORY_OF:
        return value.source
    return None
