# SPDX-License-Identifier: Apache-2.0
"""The table of operators with kernels of our own, a file each: in int8, in int16, or in float.

A module of this folder with a ``KERNEL`` is a row. The others are shared by rows; ``cores`` has convolutions.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from utvm.compiler.target import Target


class Unfit(Exception):
    """An operator stays in float; the message gives the reason to the report."""


@dataclass(frozen=True)
class Kernel:
    """An operator, or a family of them.

    Attributes:
        makers: for each kind of :class:`utvm.compiler.kernels.records.Computation`, a function of a record and a
            target that makes an :class:`utvm.compiler.kernels.records.Operator`; the target None is any backend of
            TVM.
        relax: Relax's operators, in floats, whose quantised results ``recognise`` may turn into integers (ONNX's
        QDQ). recognise: a function of a ``Reader``, the call of one of these, a ``Goal`` and a name, which adds
        nodes and
            returns a ``View``; None for another operator's call. Raises :class:`Unfit` for what stays in float.
        tflite: TensorFlow Lite's operators, custom ones too: a function of a ``Use`` and the operands'
        expressions,
            which returns the result's; None to have TVM's importer convert it. Raises :class:`Unfit`.
        real: TensorFlow Lite operators that TVM's importer lacks: the result's expression from the operands', in
        float.
    """

    makers: Mapping[type, Callable[[Any, Target | None], Any]] = field(default_factory=dict)
    relax: tuple[str, ...] = ()
    recognise: Callable[[Any, Any, Any, str], Any] | None = None
    tflite: Mapping[str, Callable[[Any, list[Any]], Any]] = field(default_factory=dict)
    real: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


def kernels() -> tuple[Kernel, ...]:
    """All rows, in the order of their files' names. Imports TVM."""
    modules = [
        importlib.import_module(f"{__name__}.{module_info.name}") for module_info in pkgutil.iter_modules(__path__)
    ]
    rows = [getattr(module, "KERNEL", None) for module in modules]
    return tuple(row for row in rows if isinstance(row, Kernel))
