# SPDX-License-Identifier: Apache-2.0
"""Operators with kernels of our own, one file each: a module with a ``KERNEL`` is a row, others are shared."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from utvm.compiler.target import Target


class Unfit(Exception):
    """An operator stays in float; the message is the reason in the report."""


@dataclass(frozen=True)
class Kernel:
    """An operator or a family of operators.

    Attributes:
        makers: per kind of :class:`utvm.compiler.kernels.records.Computation`, a function (record, target) that
            returns an :class:`utvm.compiler.kernels.records.Operator`; target None means any backend of TVM.
        relax: Relax's float operators; ``recognise`` may turn their quantised results into integers (ONNX's QDQ).
        recognise: a function (``Reader``, call, ``Goal``, name) that adds nodes and returns a ``View``, or None
            for a call of another operator. Raises :class:`Unfit` if the call must stay in float.
        tflite: per TensorFlow Lite operator, custom ones included, a function (``Use``, operands' expressions)
            that returns the result's expression; None leaves the call to TVM's importer. Raises :class:`Unfit`.
        real: TensorFlow Lite operators that TVM's importer lacks: the float result's expression from the
            operands'.
    """

    makers: Mapping[type, Callable[[Any, Target | None], Any]] = field(default_factory=dict)
    relax: tuple[str, ...] = ()
    recognise: Callable[[Any, Any, Any, str], Any] | None = None
    tflite: Mapping[str, Callable[[Any, list[Any]], Any]] = field(default_factory=dict)
    real: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


def kernels() -> tuple[Kernel, ...]:
    """Return all rows, ordered by file name. Imports TVM."""
    modules = [
        importlib.import_module(f"{__name__}.{module_info.name}") for module_info in pkgutil.iter_modules(__path__)
    ]
    rows = [getattr(module, "KERNEL", None) for module in modules]
    return tuple(row for row in rows if isinstance(row, Kernel))
