# SPDX-License-Identifier: Apache-2.0
"""An accelerator, as the compiler sees it: offers to compute a part of a network, and their cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Wish = Literal["auto", "off", "all"]
"""Work for an accelerator: operators that it is estimated to make faster, none, or all that it can do."""

INCLUDE = "utvm.include"
"""Attribute of a lowered function: the header file of the driver that it calls. The driver stops the program where
the accelerator fails. Such a function goes to the C printer as it is."""


class Refused(Exception):
    """An accelerator cannot do an operator; the message gives the reason to the report."""


@dataclass(frozen=True)
class Part:
    """One function of several that do an operator together, on the CPU or on the accelerator.

    Attributes:
        reads: which tensors it takes before its constants: 0 and on are the operator's own inputs, behind those
            the results of earlier parts.
    """

    operator: Any
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Offer:
    """An offer to compute an operator.

    Attributes:
        arranged_bytes: that the CPU writes or reads once more, to have them as the accelerator wants them.
        parts: makes the functions, in their order; the last one's output is the operator's.
    """

    cycles: int
    moved_bytes: int
    arranged_bytes: int
    parts: Callable[[], Sequence[Part]]


@dataclass(frozen=True)
class Assistant:
    """A board's accelerator, as a model is compiled for it.

    Attributes:
        identity: its kind and configuration: a library that uses it runs nowhere else.
        revision: changes with whatever its code is made by.
        cpu_cycles: how many cycles the CPU has in one of the accelerator's.
    """

    identity: str
    revision: str
    offer: Callable[[Any], Offer]
    cpu_cycles: float
    everything: bool
