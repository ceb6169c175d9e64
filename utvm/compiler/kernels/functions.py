# SPDX-License-Identifier: Apache-2.0
"""Schedule and describe the TIRx function of an operator, and add it to a Relax module."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, s_tir, te
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as building

from utvm.compiler.kernels.arithmetic import broadcast, expand_helpers
from utvm.compiler.kernels.records import Operator
from utvm.compiler.read.tflite_records import TfliteTensor
from utvm.compiler.tvm_types import dtype_of, element_type, shape_of

Shape = tuple[int, ...]

_OPAQUE = 8  # TVM's pattern kind for a function that must not be fused with others.
_ACCUMULATOR = "accumulator"
OPERATOR = "utvm.operator"  # Function attribute: the operator's name in reports.
RESULTS = "utvm.results"  # Function attribute: number of outputs, 1 if it is absent.
OVERLAP = "utvm.overlap"
"""Function attribute: per input, how many bytes the output must begin before it for the two to share memory; -1 if
they must not (also for inputs without an entry); :data:`utvm.compiler.library.HERE`."""

KERNEL = "utvm.kernel"
"""Function attribute: name of the kernel chosen among equivalent ones."""

THRIFTY = "utvm.thrifty"
"""Function attribute: an equivalent function with the same parameters that needs less memory, if any."""

LAYER = "utvm.layer"  # Function attribute: the layer's name in tuning, if there is a choice of kernels.


def describe(function: Any, operator: str, overlap: Sequence[int | None], macs: int = 0) -> Any:
    """Add the attributes of planning and reports; see :data:`OVERLAP`, with 0 in place and None for no sharing."""
    return function.with_attr(
        {
            "op_pattern": _OPAQUE,
            OPERATOR: operator,
            "utvm.macs": macs,
            OVERLAP: [-1 if distance is None else distance for distance in overlap],
        }
    )


def with_one_loop(function: Any) -> Any:
    """Schedule an element-wise function whose operands all have the output's shape: one loop over all elements."""
    plan = s_tir.Schedule(function)
    (block,) = plan.get_child_blocks(plan.get_sblock("root"))
    loops = plan.get_loops(block)
    if len(loops) > 1:
        plan.fuse(*loops)
    return plan.mod["main"]


def with_sum_in_place(function: Any, unrolled: int = 0) -> Any:
    """Schedule the blocks ``accumulator``, a reduction, and ``output`` in one innermost loop."""
    plan = s_tir.Schedule(function)
    accumulator, output = plan.get_sblock("accumulator"), plan.get_sblock("output")
    plan.compute_at(accumulator, plan.get_loops(output)[-1])
    plan.set_scope(accumulator, 0, "local")
    spatial = len(plan.get_loops(output))
    steps = plan.get_loops(accumulator)[spatial:]
    budget = unrolled
    for loop in reversed(steps):
        extent = int(plan.get(loop).extent)
        if extent > budget:
            break
        plan.unroll(loop)
        budget //= extent
    if steps:
        plan.decompose_reduction(accumulator, steps[0])
    return plan.mod["main"]


def binary(
    operator: str, shapes: tuple[Shape, Shape], compute: Callable[[Any, Any], Any], dtype: str = "int8"
) -> Operator:
    """Make an operator that computes each number from one of each operand, with broadcasting."""
    inputs = [te.placeholder(shape, dtype, name) for shape, name in zip(shapes, ("a", "b"), strict=True)]
    shape = tuple(np.broadcast_shapes(*shapes))

    def element(*at: Any) -> Any:
        return compute(*(broadcast(tensor, at).astype("int32") for tensor in inputs))

    output = te.compute(shape, element, "output")
    function = te.create_prim_func([*inputs, output])
    overlap = tuple(0 if own == shape else None for own in shapes)
    if overlap == (0, 0):
        function = with_one_loop(function)
    return Operator(describe(function, f"{operator}_{dtype}", overlap))


def add_function(
    builder: Any,
    operator: str,
    operands: Sequence[Any],
    compute: Callable[..., Any],
    *,
    in_place: bool = False,
    macs: int = 0,
) -> Any:
    """Add and call a block, or a reduction ``accumulator`` and ``output``; no operand element may be an index."""
    expressions, tensors = _placeholders(operands)
    output = compute(*tensors)
    function = te.create_prim_func([*tensors, output])
    overlap: list[int | None] = [None] * len(tensors)
    if any(stage.op.name == _ACCUMULATOR for stage in output.op.input_tensors):
        function = with_sum_in_place(function)
    else:
        function = _with_local_stages(expand_helpers(function))
        if in_place:
            overlap = [0 if _alike(tensor, output) else None for tensor in tensors]
        if in_place and None not in overlap:
            function = with_one_loop(function)
    return call_function(builder, describe(function, operator, overlap, macs), operator, expressions)


def add_elementwise(
    builder: Any,
    operator: str,
    operands: Sequence[Any],
    shape: Shape,
    compute: Callable[..., Any],
    *,
    in_place: bool = True,
) -> Any:
    """As :func:`add_function`, for element-wise functions with broadcasting."""

    def result(*tensors: Any) -> Any:
        return te.compute(shape, lambda *at: compute(*(broadcast(tensor, at) for tensor in tensors)), "output")

    return add_function(builder, operator, operands, result, in_place=in_place)


def add_checked_function(builder: Any, operator: str, operands: Sequence[Any], compute: Callable[..., Any]) -> Any:
    """As :func:`add_function`, for a function indexed by its operands: each index is checked first."""
    expressions, tensors = _placeholders(operands)
    function = te.create_prim_func([*tensors, compute(*tensors)])
    return call_function(builder, function.with_attr("op_pattern", 8), operator, expressions)


def add_loops(
    builder: Any,
    operator: str,
    operands: Sequence[Any],
    results: Sequence[TfliteTensor],
    scratch: Mapping[str, tuple[tuple[int, ...], str]],
    body: Callable[[Sequence[Any], Sequence[Any], Mapping[str, Any]], None],
    macs: int,
) -> Any:
    """As :func:`add_function`, for hand-written loops with several results; returns their tuple."""
    expressions, tensors = _placeholders(operands)
    kinds = [*((result.shape, result.dtype) for result in results), *scratch.values()]

    def statements(source: Any, target: Any) -> Any:
        with IRBuilder() as block:
            buffers = [building.buffer_proxy(buffer) for buffer in target]
            own = dict(zip(scratch, buffers[len(results) :], strict=True))
            with building.serial(0, 1):
                body([building.buffer_proxy(buffer) for buffer in source], buffers[: len(results)], own)
            return block.get()

    outputs = te.extern(
        [shape for shape, _ in kinds], tensors, statements, dtype=[dtype for _, dtype in kinds], name="output"
    )
    outputs = outputs[: len(results)] if len(kinds) > 1 else [outputs]
    function = expand_helpers(te.create_prim_func([*tensors, *outputs]))
    function = describe(function.with_attr(RESULTS, len(results)), operator, [None] * len(tensors), macs)
    return call_function(builder, function, operator, expressions, len(results))


def call_function(builder: Any, function: Any, operator: str, expressions: Sequence[Any], results: int = 1) -> Any:
    function = function.without_attr("global_symbol")
    variable = builder.add_func(function.with_attr("tirx.noalias", True), f"tflite_{operator}")
    kinds = [
        relax.TensorType(shape_of(output.ty), element_type(output))
        for output in list(function.params)[len(expressions) :]
    ]
    return builder.emit(relax.call_tir(variable, list(expressions), kinds if results > 1 else kinds[0]))


def _placeholders(operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    expressions = [
        relax.const(operand, str(operand.dtype)) if isinstance(operand, np.ndarray) else operand for operand in operands
    ]
    tensors = [
        te.placeholder(shape_of(operand.ty), dtype_of(operand.ty), f"operand{count}")
        for count, operand in enumerate(expressions)
    ]
    return expressions, tensors


def _with_local_stages(function: Any) -> Any:
    plan = s_tir.Schedule(function)
    output = plan.get_sblock("output")
    loops = plan.get_loops(output)
    stages = [part for part in plan.get_child_blocks(plan.get_sblock("root")) if plan.get(part).name_hint != "output"]
    for stage in reversed(stages if loops else []):
        plan.compute_at(stage, loops[-1])
        plan.set_scope(stage, 0, "local")
    return plan.mod["main"]


def _alike(operand: Any, output: Any) -> bool:
    sizes = {np.dtype(str(tensor.dtype)).itemsize for tensor in (operand, output)}
    shapes = {tuple(int(extent) for extent in tensor.shape) for tensor in (operand, output)}
    return len(sizes) == len(shapes) == 1
