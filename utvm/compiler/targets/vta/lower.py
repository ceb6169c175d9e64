# SPDX-License-Identifier: Apache-2.0
"""From a scheduled function to calls of VTA's driver."""

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from utvm.compiler.targets.vta.env import ACC, MEMORY_OF, Env
from utvm.compiler.targets.vta.nest import Nest, OnChip, TensorLoad, call, read_nest
from utvm.compiler.targets.vta.statements import alu, copy, gemm, is_gemm
from utvm.errors import CompileError

BEGIN, SYNCHRONIZE = "vta.begin", "vta.synchronize"
"""Functions that a lowered one calls first and last, with the name of its configuration."""


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
        before, after = [], call("VTASynchronize")
    else:
        begin, after = (tirx.Evaluate(tirx.call_packed(name, env.BITSTREAM)) for name in (BEGIN, SYNCHRONIZE))
        before = [begin]
    functions = {name: _Function(function, env).lower() for name, function in module.functions.items()}
    return tvm.IRModule(
        {
            name: function.with_body(tirx.stmt_seq(*before, function.body, after))
            for name, function in functions.items()
        }
    )


class _Function:
    """One function on its way."""

    def __init__(self, function: Any, env: Env) -> None:
        self._function = function
        self._env = env
        self._chip = OnChip(env, function.body)
        self._loaded: set[Any] = set()
        self._stored: set[Any] = set()
        # Parameters are seen flat, under another name.
        declared: list[Any] = []
        tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, declared.append), order="pre")
        self._views = {node.buffer: node.data for node in declared}

    def lower(self) -> Any:
        body = self._statement(self._function.body)
        if self._loaded & self._stored:
            raise CompileError("VTA: a buffer in DRAM is both stored and loaded, and nothing waits for the store")
        return self._function.with_body(
            tirx.stmt_seq(*(self._map(parameter) for parameter in self._function.params), body)
        )

    def _map(self, parameter: Any) -> Any:
        size = int(tvm.DataType(str(parameter.dtype)).bits) // 8
        for extent in parameter.shape:
            size *= int(extent)
        return call("VTABufferMap", self._pointer(parameter), tirx.const(size, "int64"))

    def _pointer(self, buffer: Any) -> Any:
        return tirx.reinterpret("handle", self._views.get(buffer, buffer.data))

    def _statement(self, statement: Any) -> Any:
        if isinstance(statement, tirx.SeqStmt):
            left = [item for item in statement.seq if not isinstance(item, tirx.AllocBuffer | tirx.DeclBuffer)]
            return tirx.stmt_seq(*(self._statement(item) for item in left))
        if nest := read_nest(statement):
            return self._nest(nest)
        if isinstance(statement, tirx.For):
            body = self._statement(statement.body)
            return tirx.For(statement.loop_var, statement.min, statement.extent, tirx.ForKind.SERIAL, body)
        if isinstance(statement, tirx.IfThenElse):
            raise CompileError(
                f"VTA: what is cut up does not come out even: {statement.condition} is not always so",
                "split loops by what divides them, and fill shapes up to whole blocks",
            )
        raise CompileError(f"VTA: cannot do {type(statement).__name__}: {str(statement).strip()[:200]}")

    def _nest(self, nest: Nest) -> Any:
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
    if isinstance(value, TensorLoad) and value.source.scope() not in MEMORY_OF:
        return value.source
    return None
