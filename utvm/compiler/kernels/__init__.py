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
    """An operator or a family of operators; functions raise :class:`Unfit` if it must stay in float.

    Attributes:
        makers: per kind of ``records.Computation``, (record, target) to an ``Operator``; None is any TVM backend.
        relax: Relax's float operators; ``recognise`` may turn their quantised results into integers (ONNX's QDQ).
        recognise: (``Reader``, call, ``Goal``, name) to a ``View``, adding nodes; None for another operator's
            call.
        tflite: per TensorFlow Lite operator, (``Use``, operands) to an expression; None leaves it to TVM.
        real: TensorFlow Lite operators that TVM's importer lacks, in float.
    """

    makers: Mapping[type, Callable[[Any, Target | None], Any]] = field(default_factory=dict)
    relax: tuple[str, ...] = ()
    recognise: Callable[[Any, Any, Any, str], Any] | None = None
    tflite: Mapping[str, Callable[[Any, list[Any]], Any]] = field(default_factory=dict)
    real: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


def kernels() -> tuple[Kernel, ...]:
    """Return all rows, ordered by file name. Imports TVM."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    rows = [getattr(module, "KERNEL", None) for module in modules]
    return tuple(row for row in rows if isinstance(row, Kernel))


def makers() -> dict[type, Callable[[Any, Target | None], Any]]:
    """Return the makers of all rows."""
    return {record: make for kernel in kernels() for record, make in kernel.makers.items()}
