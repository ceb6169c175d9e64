# SPDX-License-Identifier: Apache-2.0
"""The compiler's interface to an accelerator: offers to compute a part of a network, and their cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

AcceleratorUse = Literal["auto", "off", "all"]
"""Operators for an accelerator: those estimated to be faster, none, or all it supports."""

INCLUDE = "utvm.include"
"""Attribute of a lowered function: its driver's header. The C printer gets the function unchanged."""


class Refused(Exception):
    """An accelerator cannot compute an operator; the message is the reason in the report."""


@dataclass(frozen=True)
class Part:
    """One of several functions of an operator; ``reads``: its inputs from 0, then the results of earlier parts."""

    operator: Any
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Offer:
    """An offer to compute an operator by ``parts``; ``arranged_bytes`` are copied by the CPU to change layouts."""

    cycles: int
    moved_bytes: int
    arranged_bytes: int
    parts: Callable[[], Sequence[Part]]


@dataclass(frozen=True)
class Assistant:
    """A board's accelerator: kind and configuration; ``revision`` changes with the code generator."""

    identity: str
    revision: str
    offer: Callable[[Any], Offer]
    cpu_cycles: float
    everything: bool
