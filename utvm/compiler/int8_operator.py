# SPDX-License-Identifier: Apache-2.0
"""The table of int8 operators: found in the folder ``integer/operators``, not listed."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from utvm.compiler.target import Target

FOLDER = "utvm.compiler.integer.operators"


@dataclass(frozen=True)
class Int8Operator:
    """All that is known of an int8 operator. Its file's ``OPERATOR`` is this.

    Attributes:
        record: what it computes, a :class:`utvm.compiler.integer.records.Computation`.
        make: its TIRx function, an :class:`utvm.compiler.integer.records.Operator`, for a target.
        relax: Relax's operators, in floats, whose quantised results may be its.
        recognise: given a :class:`utvm.compiler.integer.reader.Reader`, what one of these is bound to, a
            :class:`utvm.compiler.integer.goal.Goal` and a name, adds the nodes and returns a
            :class:`utvm.compiler.integer.quantities.View`; None if it is another operator's, or Unfit with a
            reason to stay in float.
        tflite: TensorFlow Lite operators that TVM's importer lacks, custom ones too: name to the function that
            makes one Relax expression of the operands', all of them in floats.
    """

    record: type
    make: Callable[[Any, Target], Any]
    relax: tuple[str, ...] = ()
    recognise: Callable[[Any, Any, Any, str], Any] | None = None
    tflite: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


def int8_operators() -> tuple[Int8Operator, ...]:
    """Return what the files of the folder say, in the order of their names. Imports TVM."""
    names = sorted(module.name for module in pkgutil.iter_modules(importlib.import_module(FOLDER).__path__))
    return tuple(importlib.import_module(f"{FOLDER}.{name}").OPERATOR for name in names)
