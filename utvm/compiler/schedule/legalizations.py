# SPDX-License-Identifier: Apache-2.0
"""Which of Relax's operators become TIRx in our own way: TVM's is missing, or wrong at the edges."""

from collections.abc import Callable
from typing import Any

from utvm.compiler.schedule import arg_reduce, extremes, scans, scatter


def legalizations() -> dict[str, Callable[[Any, Any], Any]]:
    """Operator to function, as ``LegalizeOps`` takes them."""
    return {
        operator: rule
        for family in (arg_reduce, extremes, scans, scatter)
        for operator, rule in family.legalizations().items()
    }
