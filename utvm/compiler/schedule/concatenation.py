# SPDX-License-Identifier: Apache-2.0
"""Concatenation without copying: pieces that follow each other in memory are written in their places at once."""

import math
from typing import Any

import tvm
from tvm import relax, tirx

CONCATENATION = "utvm.concatenate"
"""Name of the packed function whose calls stand for concatenations that need no loop."""


def mark_concatenations(module: Any) -> Any:
    """Replace concatenations along the first dimension that is not 1 by calls of :data:`CONCATENATION`.

    What they join lies one behind the other in the result. All other concatenations stay as they are.
    """
    main = _Marker(module).visit_expr(module["main"])
    module = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    module.update_func(module.get_global_var("main"), main)
    return module


@relax.expr_functor.mutator
class _Marker(relax.PyExprMutator):  # type: ignore[misc]  # TVM has no types
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if str(getattr(call.op, "name", "")) != "relax.concat" or not _joins_in_memory(call):
            return call
        return relax.op.call_dps_packed(CONCATENATION, call.args[0], call.ty)


def _joins_in_memory(call: Any) -> bool:
    shape = getattr(call.ty, "shape", None)
    if not isinstance(call.args[0], tvm.ir.Tuple) or shape is None:
        return False
    extents = list(shape)
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return False
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(extents)
    return math.prod(int(extent) for extent in extents[:axis]) == 1
