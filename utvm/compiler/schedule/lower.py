# SPDX-License-Identifier: Apache-2.0
"""Lower TIRx functions to flat loops; check indices from tensor elements, saturate floats cast to integers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from utvm.compiler.accelerator import INCLUDE
from utvm.compiler.kernels.functions import OPERATOR
from utvm.compiler.schedule import loops, tile_choice
from utvm.compiler.target import ANY, Target
from utvm.compiler.tvm_types import element_type

WITHIN = "within"  # Prefix of the C function of an index and an extent; the index type follows.
CHECKED = "utvm.checked"  # Attribute of a function that calls it.


def with_checked_indices(function: Any) -> Any:
    """Return a scheduled TIRx function with every index kept inside its tensor."""
    if function.attrs and OPERATOR in function.attrs:
        return function
    doubtful = _doubtful_variables(function)
    changed: list[Any] = []

    def check(buffer: Any, indices: Any) -> list[Any] | None:
        pairs = list(zip(indices, buffer.shape, strict=True))
        wrong = [_is_doubtful(index, doubtful) and not _fits(index, extent) for index, extent in pairs]
        if not any(wrong):
            return None
        changed.append(buffer)
        return [_within(*pair) if bad else pair[0] for pair, bad in zip(pairs, wrong, strict=True)]

    def load(node: Any) -> Any:
        indices = check(node.source, node.indices)
        return node if indices is None else tirx.BufferLoad(node.source, indices)

    def store(node: Any) -> Any:
        indices = check(node.buffer, node.indices)
        return node if indices is None else tirx.BufferStore(node.buffer, node.value, indices)

    changes = [(ir.TensorLoad, load), (tirx.BufferStore, store)]
    body = tvm_ffi.structural_map(function.body, changes, order="post")
    return function.with_body(body).with_attr(CHECKED, True) if changed else function


def _doubtful_variables(function: Any) -> set[int]:
    doubtful: set[int] = set()

    def note(variable: Any, *values: Any) -> None:
        if any(_is_doubtful(value, doubtful) for value in values):
            doubtful.add(hash(variable))

    def block(node: Any) -> None:
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            note(axis.var, value)

    # Top-down: a variable's value is visited before its uses.
    tvm_ffi.structural_walk(
        function.body,
        [
            (tirx.For, lambda node: note(node.loop_var, node.min, node.extent)),
            ((tirx.Bind, tirx.Let), lambda node: note(node.var, node.value)),
            (s_tir.SBlockRealize, block),
        ],
        order="pre",
    )
    return doubtful


def _is_doubtful(expression: Any, variables: set[int]) -> bool:
    loads: list[Any] = []

    def look(node: Any) -> None:
        if not isinstance(node, ir.Var) or hash(node) in variables:
            loads.append(node)

    tvm_ffi.structural_walk(expression, [((ir.TensorLoad, ir.Var), look)], order="pre")
    return bool(loads)


def _fits(index: Any, extent: Any) -> bool:
    bound = sym.Analyzer().const_int_bound(index)
    return int(bound.min_value) >= 0 and int(bound.max_value) < int(extent)


def _within(index: Any, extent: Any) -> Any:
    kind = element_type(index)
    return tirx.call_pure_extern(index.ty, f"{WITHIN}_{kind}", index, tirx.const(int(extent), kind))


_ROUNDINGS = ("round", "roundf", "rint", "rintf", "nearbyint", "nearbyintf", "trunc", "truncf")


def with_defined_casts(function: Any) -> Any:
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.Cast, _define)], order="post"))


def _define(cast: Any) -> Any:
    source, target = element_type(cast.value), element_type(cast)
    if not source.startswith("float") or not target.startswith(("int", "uint")):
        return cast
    limited = _replace_nan(cast.value, target)
    if limited is not None:
        return limited.astype(target)
    return tirx.call_pure_extern(target, f"{target}_of_{source}", cast.value)


def _replace_nan(value: Any, target: str) -> Any:
    """Return the value with NaN replaced by a limit if it is clamped to an integer type's range; else None."""
    if isinstance(value, tvm.ir.Call) and value.args and str(getattr(value.args[0], "value", "")) in _ROUNDINGS:
        inner = _replace_nan(value.args[1], target)
        return None if inner is None else tirx.call_pure_extern(element_type(value), value.args[0].value, inner)
    inner_kind, helper = (tirx.Min, "above") if isinstance(value, tirx.Max) else (tirx.Max, "below")
    if not isinstance(value, tirx.Max | tirx.Min) or not isinstance(value.a, inner_kind):
        return None
    bounds = (value.b, value.a.b)
    if not all(isinstance(bound, tirx.FloatImm) for bound in bounds):
        return None
    info = np.iinfo(target)
    if not all(info.min <= float(bound.value) <= info.max for bound in bounds):
        return None
    kind = element_type(value)
    return tirx.call_pure_extern(kind, f"{helper}_{kind}", value.a, value.b)


C_TARGET = tvm.target.Target({"kind": "c"})
"""Generic C: selects math functions, assumes nothing about a CPU."""


def _share_storage(function: Any, _module: Any, _context: Any) -> Any:
    if function.attrs and OPERATOR in function.attrs:
        return function
    return tirx.transform.StorageRewrite()(tvm.IRModule({"main": function}))["main"]


def _drop_unread(function: Any, _module: Any, _context: Any) -> Any:
    """Remove writes to local buffers that nothing reads, such as parts of a SPLIT."""
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
"""C helpers for an unknown divisor, which may be zero."""


def _name_floor_divisions(function: Any) -> Any:
    """Turn floor division and modulo of tensor elements into calls of the C helpers; TVM handles indices."""

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
    """Set each tensor's offset to zero: some of TVM's operators leave it open."""
    offsets = {hash(param.elem_offset) for param in function.params if isinstance(param.elem_offset, tvm.ir.Var)}
    if not offsets:
        return function

    def begin(variable: Any) -> Any:
        return tirx.const(0, element_type(variable)) if hash(variable) in offsets else variable

    return tvm_ffi.structural_map(function, (tvm.ir.Var, begin), order="post")


def _arrange(function: Any, target: Target) -> Any:
    tuned = target.choice(loops.layer_of(function)) if target.tuned else ""
    function = _with_whole_tensors(function)
    is_scheduled = function.attrs and (OPERATOR in function.attrs or loops.SCHEDULED in function.attrs)
    return function if is_scheduled else loops.schedule(function, tile_choice.registers_of(target, tuned))


def lower(functions: Mapping[str, Any], target: Target = ANY) -> dict[str, Any]:
    own = {name: function for name, function in functions.items() if function.attrs and INCLUDE in function.attrs}
    scheduled = {name: _arrange(function, target) for name, function in functions.items() if name not in own}
    if not target.unchecked:
        scheduled = {name: with_checked_indices(function) for name, function in scheduled.items()}
    scheduled = {name: body.with_attr({"global_symbol": name, "target": C_TARGET}) for name, body in scheduled.items()}
    module = _passes()(tvm.IRModule(scheduled))
    module = tvm.IRModule({key: _name_floor_divisions(function) for key, function in module.functions.items()})
    functions_of_c = tirx.transform.LowerIntrin()(module).functions.items()
    lowered = own | {variable.name_hint: with_defined_casts(function) for variable, function in functions_of_c}
    return {name: lowered[name] for name in functions}
