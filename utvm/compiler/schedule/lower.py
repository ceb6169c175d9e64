# SPDX-License-Identifier: Apache-2.0
"""Lowering: from TIRx functions with blocks and buffers of many dimensions to flat loops over flat buffers."""

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from utvm.compiler.accelerator import INCLUDE
from utvm.compiler.kernels.functions import OPERATOR
from utvm.compiler.schedule.bounds import with_checked_indices, with_defined_casts
from utvm.compiler.schedule.loops import SCHEDULED, layer_of, schedule
from utvm.compiler.schedule.tile_choice import registers_of
from utvm.compiler.target import ANY, Target
from utvm.compiler.tvm_types import element_type

C_TARGET = tvm.target.Target({"kind": "c"})
"""Generic C: decides which math functions are called, nothing about a CPU."""


def _share_storage(function: Any, _module: Any, _context: Any) -> Any:
    if function.attrs and OPERATOR in function.attrs:
        return function
    return tirx.transform.StorageRewrite()(tvm.IRModule({"main": function}))["main"]


def _drop_unread(function: Any, _module: Any, _context: Any) -> Any:
    """Take out what a function writes to a buffer of its own that nothing reads: parts of a SPLIT, say."""
    if function.attrs and OPERATOR in function.attrs:
        return function
    own: set[int] = set()
    read: set[int] = set()
    steps = [
        (tirx.AllocBuffer, lambda node: own.add(hash(node.buffer))),
        (tvm.ir.TensorLoad, lambda node: read.add(hash(node.source))),
    ]
    tvm_ffi.structural_walk(function.body, steps, order="pre")
    unread = own - read

    def without(node: Any) -> Any:
        return tirx.Evaluate(tirx.const(0, "int32")) if hash(node.buffer) in unread else node

    if not unread:
        return function
    changes = [(tirx.BufferStore, without), (tirx.AllocBuffer, without)]
    return function.with_body(tvm_ffi.structural_map(function.body, changes, order="post"))


def _passes() -> Any:
    structured, flat = s_tir.transform, tirx.transform
    return tvm.transform.Sequential(
        [
            structured.CanonicalizeLoop(),
            structured.LowerInitBlock(),
            structured.PlanAndUpdateBufferAllocationLocation(),
            structured.ConvertBlocksToOpaque(),
            structured.CompactBufferAllocation(),
            structured.LowerMatchBuffer(),
            structured.StmtSimplify(),
            structured.LowerOpaqueBlock(),
            flat.FlattenBuffer(),
            flat.NarrowDataType(32),
            structured.LoopPartition(),
            flat.VectorizeLoop(False),
            flat.prim_func_pass(_drop_unread, opt_level=0),
            flat.prim_func_pass(_share_storage, opt_level=0),
            structured.HoistIfThenElse(),
            flat.UnrollLoop(),
            structured.RenormalizeSplitPattern(),
            flat.StmtSimplify(),
            flat.RemoveNoOp(),
            structured.RewriteUnsafeSelect(),
            flat.CommonSubexprElim(),
            flat.VerifyMemory(),
        ]
    )


_BY_ANY = {"floordiv": "floorquotient", "floormod": "floorremainder"}
"""The C helpers for a divisor that is not known: it may be zero."""


def _name_floor_divisions(function: Any) -> Any:
    """Turn floor division and modulo of tensor elements into calls of the C helpers.

    What stays is index arithmetic, which TVM mostly proves to be plain division of numbers that are not negative.
    """

    def call(operation: str) -> Any:
        def replace(node: Any) -> Any:
            if not (_reads_elements(node.a) or _reads_elements(node.b)):
                return node
            known = isinstance(node.b, tirx.IntImm)
            name = operation if known else _BY_ANY[operation]
            return tirx.call_pure_extern(node.ty, f"{name}_{element_type(node)}", node.a, node.b)

        return replace

    divisions = [(tirx.FloorDiv, call("floordiv")), (tirx.FloorMod, call("floormod"))]
    return function.with_body(tvm_ffi.structural_map(function.body, divisions, order="post"))


def _reads_elements(expression: Any) -> bool:
    loads: list[Any] = []
    tvm_ffi.structural_walk(expression, (tvm.ir.TensorLoad, loads.append), order="pre")
    return bool(loads)


def _with_whole_tensors(function: Any) -> Any:
    """Let each tensor begin where its pointer points to: some of TVM's operators leave that open."""
    offsets = {
        hash(parameter.elem_offset)
        for parameter in function.params
        if isinstance(parameter.elem_offset, tvm.ir.Var)
    }
    if not offsets:
        return function

    def begin(variable: Any) -> Any:
        return tirx.const(0, element_type(variable)) if hash(variable) in offsets else variable

    return tvm_ffi.structural_map(function, (tvm.ir.Var, begin), order="post")


def _arrange(function: Any, target: Target) -> Any:
    tuned = target.choice(layer_of(function)) if target.tuned else ""
    function = _with_whole_tensors(function)
    is_scheduled = function.attrs and (OPERATOR in function.attrs or SCHEDULED in function.attrs)
    return function if is_scheduled else schedule(function, registers_of(target, tuned))


def lower(functions: Mapping[str, Any], target: Target = ANY) -> dict[str, Any]:
    done = {name: function for name, function in functions.items() if function.attrs and INCLUDE in function.attrs}
    guard = (lambda function: function) if target.unchecked else with_checked_indices
    scheduled = {
        name: guard(_arrange(function, target)).with_attr({"global_symbol": name, "target": C_TARGET})
        for name, function in functions.items()
        if name not in done
    }
    module = _passes()(tvm.IRModule(scheduled))
    module = tvm.IRModule(
        {variable: _name_floor_divisions(function) for variable, function in module.functions.items()}
    )
    functions_of_c = tirx.transform.LowerIntrin()(module).functions.items()
    lowered = done | {variable.name_hint: with_defined_casts(function) for variable, function in functions_of_c}
    return {name: lowered[name] for name in functions}
