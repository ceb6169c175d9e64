# SPDX-License-Identifier: Apache-2.0
"""The table of kernels that compute convolutions on particular cores, and the choice of one."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from utvm.compiler.kernels.cores.dsp import make_depthwise_with_dsp, make_planes_with_dsp, make_with_dsp
from utvm.compiler.kernels.cores.packed import make_packed
from utvm.compiler.kernels.cores.vectors import make_with_vectors
from utvm.compiler.kernels.functions import KERNEL, LAYER
from utvm.compiler.kernels.records import Convolution, Operator
from utvm.compiler.target import Target


@dataclass(frozen=True)
class CoreKernel:
    """A way to compute convolutions.

    Attributes:
        cycles_a_mac: an estimate to decide by: instructions of the networks of ``benchmarks/cores.py``.
    """

    name: str
    extensions: frozenset[str]
    depthwise: bool
    make: Callable[[Convolution], Operator | None]
    cycles_a_mac: float


_ANY: frozenset[str] = frozenset()
_DSP = frozenset({"dsp"})
_MVE = frozenset({"mve"})
_NEON = frozenset({"neon"})

_make_with_mve, _make_with_neon = (functools.partial(make_with_vectors, alone=alone) for alone in (True, False))

KERNELS = (
    CoreKernel("MVE: 16 products in an instruction", _MVE, False, _make_with_mve, 0.16),
    CoreKernel("MVE: a channel's four by four values in a vector", _MVE, True, _make_with_mve, 1.0),
    CoreKernel("NEON: eight products in an instruction", _NEON, False, _make_with_neon, 0.4),
    CoreKernel("NEON: a channel's four by four values in a vector", _NEON, True, _make_with_neon, 2.0),
    CoreKernel("DSP extension: two products in an instruction", _DSP, False, make_with_dsp, 0.9),
    CoreKernel(
        "DSP extension: a channel at a time, two products in an instruction", _DSP, True, make_planes_with_dsp, 2.3
    ),
    CoreKernel("DSP extension: four channels in a word", _DSP, True, make_depthwise_with_dsp, 5.0),
    CoreKernel("plain C: two pixels in a word", _ANY, False, make_packed, 2.1),
    CoreKernel("plain C: a channel's rows side by side", _ANY, True, make_packed, 5.0),
)
"""The first that a core has the extensions for, and that holds for a record, is chosen."""


def choose(record: Convolution, target: Target) -> Operator | None:
    """Make the operator of a convolution by the kernel that is chosen for a core; None where no kernel holds."""
    tuned = target.choice(record.layer)
    for kernel in sorted(_suitable(record, target), key=lambda item: item.name != tuned):
        operator = kernel.make(record)
        if operator is not None:
            named = operator.function.with_attr({KERNEL: kernel.name, LAYER: record.layer})
            return replace(operator, function=named)
    return None


def estimated_cycles(record: Convolution, target: Target) -> int:
    """About how many cycles a core takes for a convolution, to decide by and not to report as measured."""
    return round(record.macs * next(_suitable(record, target)).cycles_a_mac)


def _suitable(record: Convolution, target: Target) -> Iterator[CoreKernel]:
    has = frozenset(target.extensions)
    return (item for item in KERNELS if item.depthwise == record.depthwise and item.extensions <= has)
