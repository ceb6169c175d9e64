# SPDX-License-Identifier: Apache-2.0
"""The table of convolution kernels for particular cores, and the choice of one."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from utvm.compiler.kernels import functions, records
from utvm.compiler.kernels.cores.dsp import make_depthwise_with_dsp, make_planes_with_dsp, make_with_dsp
from utvm.compiler.kernels.cores.packed import make_dense_pairs, make_narrow, make_packed_operator
from utvm.compiler.kernels.cores.vectors import make_lanes, make_with_vectors
from utvm.compiler.kernels.cores.winograd import make_winograd_with_vectors, make_with_winograd
from utvm.compiler.target import Goal, Target


@dataclass(frozen=True)
class CoreKernel:
    """A convolution kernel.

    Attributes:
        cycles_a_mac: an estimate, from the networks of ``benchmarks/cores.py``.
        goals: those for which it is chosen; none for all.
    """

    name: str
    extensions: frozenset[str]
    depthwise: bool
    make: Callable[[records.Convolution], records.Operator | None]
    cycles_a_mac: float
    goals: tuple[Goal, ...] = ()


HELD = ", weights in RAM"  # End of a kernel's name.
_ANY: frozenset[str] = frozenset()
_DSP = frozenset({"dsp"})
_DUAL = frozenset({"dsp", "dual"})
_MVE = frozenset({"mve"})
_NEON = frozenset({"neon"})

_make_with_mve, _make_with_neon = (functools.partial(make_with_vectors, alone=alone) for alone in (True, False))
_make_large_filters, _make_few = (functools.partial(make_narrow, large=large) for large in (True, False))
_make_packed_planes = functools.partial(make_planes_with_dsp, packed=True)
_make_large_planes = functools.partial(make_planes_with_dsp, packed=True, least_taps=25)
_make_large = functools.partial(make_with_winograd, thrifty=False)


def _two_products(extensions: frozenset[str], wide: bool, held: bool, *goals: Goal, packed: bool = False) -> CoreKernel:
    name = "DSP extension: two products in an instruction" + HELD * held + ", packed scales" * packed
    make = functools.partial(make_with_dsp, dual=extensions is _DUAL, wide=wide, held=held, packed=packed)
    return CoreKernel(name, extensions, False, make, 0.9, goals)


KERNELS = (
    CoreKernel("MVE: Winograd's algorithm", _MVE, False, make_winograd_with_vectors, 0.1, ("speed",)),
    CoreKernel("MVE: 16 products in an instruction", _MVE, False, _make_with_mve, 0.16),
    CoreKernel("MVE: a channel's four by four values in a vector", _MVE, True, _make_with_mve, 1.0),
    CoreKernel("MVE: eight channels in a vector", _MVE, True, make_lanes, 1.0),
    CoreKernel("NEON: eight products in an instruction", _NEON, False, _make_with_neon, 0.4),
    CoreKernel("NEON: a channel's four by four values in a vector", _NEON, True, _make_with_neon, 2.0),
    CoreKernel("DSP extension: Winograd's algorithm", _DSP, False, make_with_winograd, 0.4, ("balance",)),
    CoreKernel("DSP extension: Winograd's algorithm, large tiles", _DSP, False, _make_large, 0.4, ("speed",)),
    _two_products(_DUAL, False, False, "flash", packed=True),
    _two_products(_DSP, False, False, "flash", packed=True),
    _two_products(_DUAL, True, True, "balance", "speed"),
    _two_products(_DUAL, False, True, "balance", "speed"),
    _two_products(_DUAL, True, False, "speed"),
    _two_products(_DUAL, False, False),
    _two_products(_DSP, False, True, "balance", "speed"),
    _two_products(_DSP, False, False),
    CoreKernel("DSP extension: a channel at a time, bytes", _DSP, True, _make_packed_planes, 2.3, ("flash",)),
    CoreKernel("DSP extension: a channel at a time, bytes", _DUAL, True, _make_large_planes, 2.3, ("balance",)),
    CoreKernel(
        "DSP extension: a channel at a time, two products in an instruction", _DSP, True, make_planes_with_dsp, 2.3
    ),
    CoreKernel("DSP extension: four channels in a word", _DSP, True, make_depthwise_with_dsp, 5.0),
    CoreKernel("plain C: two channels in a word", _ANY, False, make_dense_pairs, 2.1, ("balance", "speed")),
    CoreKernel("plain C: two pixels in a word", _ANY, False, make_packed_operator, 2.1),
    CoreKernel("plain C: large filters from the image", _ANY, True, _make_large_filters, 5.0, ("balance", "speed")),
    CoreKernel("plain C: rows of a few pixels", _ANY, True, _make_few, 5.0),
    CoreKernel("plain C: a channel's rows side by side", _ANY, True, make_packed_operator, 5.0),
)
"""In order of preference: the first that the core supports and that fits the record is chosen."""


def choose(record: records.Convolution, target: Target) -> records.Operator | None:
    """Make the operator of a convolution by the kernel chosen for the core; None if no kernel fits."""
    tuned, simple = target.choice(record.layer), records.simplify(record)
    for kernel in sorted(_suitable(record, target), key=lambda item: item.name != tuned):
        operator = kernel.make(simple)
        if operator is not None:
            function = operator.function.with_attr({functions.KERNEL: kernel.name, functions.LAYER: record.layer})
            return replace(operator, function=function)
    return None


def estimated_cycles(record: records.Convolution, target: Target) -> int:
    """Estimate a core's cycles for a convolution. For decisions only, not to be reported as measured."""
    general = (kernel for kernel in _suitable(record, target) if not kernel.goals)
    return round(record.macs * next(general).cycles_a_mac)


def _suitable(record: records.Convolution, target: Target) -> Iterator[CoreKernel]:
    has = frozenset(target.extensions)
    # Strips would copy their weights again and again, to RAM that counts where the input comes by rows.
    no_copies = target.input_rows and record.whole_rows > 0
    return (
        item
        for item in KERNELS
        if item.depthwise == record.depthwise
        and item.extensions <= has
        and target.goal in (item.goals or [target.goal])
        and not (no_copies and item.name.endswith(HELD))
    )
