# SPDX-License-Identifier: Apache-2.0
"""Legalisation: from Relax's operators to calls of TIRx functions, several operators fused into each."""

from typing import Any

import tvm
from tvm import relax

from utvm.compiler.schedule.concatenation import mark_concatenations
from utvm.compiler.schedule.layer_names import fuse
from utvm.compiler.schedule.legalizations import legalizations


def legalize(module: Any) -> Any:
    """Turn a Relax module of high-level operators into one of calls to TIRx functions.

    Concatenations whose pieces follow each other in memory become calls of :data:`CONCATENATION`.
    """
    return tvm.transform.Sequential(
        [
            tvm.transform.module_pass(lambda each, _: mark_concatenations(each), opt_level=0),
            relax.transform.DecomposeOpsForInference(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.LegalizeOps(legalizations()),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            tvm.transform.module_pass(lambda each, _: fuse(each), opt_level=0),
            relax.transform.FuseTIR(),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.DeadCodeElimination(),
        ]
    )(module)
