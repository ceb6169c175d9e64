# SPDX-License-Identifier: Apache-2.0
"""Schedule TIRx functions without a schedule of their own, then lower them to flat loops.

Schedules, also tuned ones (TVM traces as JSON), never change results. Lowering checks indices from tensor elements
and saturates floats cast to integers.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from utvm.compiler.accelerator import INCLUDE
from utvm.compiler.kernels.functions import KERNEL, LAYER, OPERATOR
from utvm.compiler.schedule import tile_choice, tiles
from utvm.compiler.target import ANY, Target
from utvm.compiler.tvm_types import element_type
from utvm.errors import CompileError

SCHEDULED = "utvm.scheduled"  # Function attribute: its loops are scheduled already.
MACS = "utvm.macs"  # Function attribute: multiply-accumulates.


def schedule(function: Any, registers: tile_choice.TileRegisters) -> Any:
    """Schedule loops for a core's registers: merged element-wise blocks, pools without padding copies, sums."""
    if not has_blocks(function):
        return function
    plan = s_tir.Schedule(function)
    _inline_elementwise(plan)
    _inline_padding(plan)
    plan = s_tir.Schedule(tiles.with_tiles(plan.mod["main"], registers))
    _set_first_values_outside(plan)
    return plan.mod["main"]


def has_blocks(function: Any) -> bool:
    """True if a function has blocks to schedule: TVM writes some operators as plain loops."""
    return isinstance(function.body, s_tir.SBlockRealize) and str(function.body.block.name_hint) == "root"


def macs_of(function: Any) -> int:
    """Return the multiply-accumulates of a function: the products its blocks sum."""
    if not has_blocks(function) or SCHEDULED in (function.attrs or {}):
        return 0
    plan = s_tir.Schedule(function)
    nodes = [plan.get(block) for block in _blocks(plan)]
    extents = [[axis.dom.extent for axis in node.iter_vars] for node in nodes if _sums_products(node)]
    return sum(math.prod(map(int, extent)) for extent in extents if all(isinstance(one, tirx.IntImm) for one in extent))


def _sums_products(node: Any) -> bool:
    value = getattr(node.body, "value", None)
    return node.init is not None and isinstance(value, tirx.Add) and isinstance(value.b, tirx.Mul)


def _blocks(plan: Any) -> list[Any]:
    root = plan.get_sblock("root")
    return list(plan.get_child_blocks(root))


def _iterations(plan: Any, block: Any) -> int:
    return math.prod(int(axis.dom.extent) for axis in plan.get(block).iter_vars)


def _is_elementwise(plan: Any, block: Any) -> bool:
    node = plan.get(block)
    return node.init is None and all(int(axis.iter_type) == tirx.IterVar.DataPar for axis in node.iter_vars)


def _inline_elementwise(plan: Any) -> None:
    for block in _blocks(plan):
        consumers = plan.get_consumers(block)
        if len(consumers) != 1 or not _is_elementwise(plan, block) or not _is_elementwise(plan, consumers[0]):
            continue
        if _iterations(plan, block) != _iterations(plan, consumers[0]):
            continue
        try:
            plan.compute_inline(block)
        except s_tir.ScheduleError:
            continue  # Inlining does not support the block's accesses; keep it.


def _inline_padding(plan: Any) -> None:
    for block in _blocks(plan):
        consumers = plan.get_consumers(block)
        if len(consumers) != 1 or not _is_elementwise(plan, block) or _is_elementwise(plan, consumers[0]):
            continue
        if len(plan.get(consumers[0]).reads) == 1 and _pads(plan.get(block).body):
            with contextlib.suppress(s_tir.ScheduleError):  # Keep the copy.
                plan.compute_inline(block)


def _pads(body: Any) -> bool:
    value = getattr(body, "value", None)
    if not isinstance(value, ir.Call) or not str(value.op.name).endswith("if_then_else"):
        return False
    _, inside, outside = value.args
    return isinstance(inside, ir.TensorLoad) and isinstance(outside, tirx.FloatImm | tirx.IntImm)


def _set_first_values_outside(plan: Any) -> None:
    for block in _blocks(plan):
        node = plan.get(block)
        loops = plan.get_loops(block)
        if node.init is None or len(loops) != len(node.iter_vars):
            continue
        reduction_loops = [
            loop
            for loop, axis in zip(loops, node.iter_vars, strict=True)
            if int(axis.iter_type) == tirx.IterVar.CommReduce
        ]
        try:
            plan.decompose_reduction(block, reduction_loops[0])
        except (s_tir.ScheduleError, IndexError):
            continue  # TVM cannot decompose the reduction: the test stays inside its loops.


TRACED = "loops as they were tuned"  # Kernel name of a tuned function in reports.


def layer_of(function: Any) -> str:
    """Return a layer's name in tuning, equal for equal functions; empty if there is no choice of kernels."""
    attributes = dict(function.attrs.items()) if function.attrs else {}
    if LAYER in attributes:
        return str(attributes[LAYER])
    if OPERATOR in attributes or INCLUDE in attributes or not has_blocks(function) or not _is_plain(function):
        return ""
    shapes = ["x".join(str(int(extent)) for extent in parameter.ty.shape) or "1" for parameter in function.params]
    kind = element_type(function.params[-1])
    return f"{kind} {' '.join(shapes[:-1])} to {shapes[-1]} #{tvm_ffi.structural_hash(subject(function)):016x}"


def subject(function: Any) -> Any:
    """Return the function in the form schedules are made for: fixed name, 32-bit indices."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tirx.transform.ForceNarrowIndexToInt32()(module)["main"]


def with_tuned_loops(functions: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the functions, with tuned schedules applied to those tuned for the target."""
    if not target.tuned:
        return dict(functions)
    return {name: _apply_trace(function, target) for name, function in functions.items()}


def _apply_trace(function: Any, target: Target) -> Any:
    attributes = function.attrs or {}
    trace = "" if LAYER in attributes else target.choice(layer_of(function))
    return replay(function, trace) if trace and trace not in {item.name for item in tile_choice.ROWS} else function


def replay(function: Any, trace: str) -> Any:
    """Return a function scheduled by a trace; raises CompileError if the trace does not apply."""
    scheduled = plan_of(function, trace).mod["main"]
    return scheduled.with_attr({SCHEDULED: 1, KERNEL: TRACED, MACS: macs_of(function)})


def plan_of(function: Any, trace: str) -> Any:
    """Return the schedule of a function after a trace; raises CompileError if the trace does not apply."""
    plan = s_tir.Schedule(tvm.IRModule({"main": subject(function)}))
    with CompileError.on(
        Exception,  # TVM raises nearly every built-in kind, and its own
        f"the tuned schedule of {layer_of(function)} does not apply to it",
        "was the log written with this version of TVM? tune again, into another log",
    ):
        s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), plan)
    return plan


def _is_plain(function: Any) -> bool:
    extents = [extent for parameter in function.params for extent in parameter.ty.shape]
    return all(isinstance(extent, tirx.IntImm) for extent in extents)


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
    tuned = target.choice(layer_of(function)) if target.tuned else ""
    function = _with_whole_tensors(function)
    is_scheduled = function.attrs and (OPERATOR in function.attrs or SCHEDULED in function.attrs)
    return function if is_scheduled else schedule(function, tile_choice.registers_of(target, tuned))


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
