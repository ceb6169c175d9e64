# SPDX-License-Identifier: Apache-2.0
"""Legalisation: from Relax's operators to calls of TIRx functions, several operators fused into each."""

from typing import Any

import tvm
from tvm import relax

from utvm.compiler.notes import note
from utvm.compiler.schedule.concatenation import mark_concatenations
from utvm.compiler.schedule.layer_names import fuse
from utvm.compiler.schedule.legalizations import legalizations


def _fold(module: Any) -> Any:
    """Compute what only depends on constants, and say what that is."""
    known: set[int] = set()
    for binding in (binding for block in module["main"].body.blocks for binding in block.bindings):
        call = binding.value
        if str(getattr(getattr(call, "op", None), "name", "")) != "relax.call_tir":
            continue
        if all(isinstance(field, tvm.ir.GenericConst) or hash(field) in known for field in call.args[1].fields):
            known.add(hash(binding.var))
            note("folded", f"{binding.var.name} is a constant")
    return relax.transform.FoldConstant()(module)


def legalize(module: Any) -> Any:
    """Turn a Relax module of high-level operators into one of calls to TIRx functions.

    Concatenations whose pieces follow each other in memory become calls of :data:`CONCATENATION`.
    """
    return tvm.transform.Sequential(
        [
            tvm.transform.module_pass(lambda item, _: mark_concatenations(item), opt_level=0),
            relax.transform.DecomposeOpsForInference(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.LegalizeOps(legalizations()),
            relax.transform.AnnotateTIROpPattern(),
            tvm.transform.module_pass(lambda item, _: _fold(item), opt_level=0),
            tvm.transform.module_pass(lambda item, _: fuse(item), opt_level=0),
            relax.transform.FuseTIR(),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.DeadCodeElimination(),
        ]
    )(module)
