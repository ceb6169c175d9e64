# SPDX-License-Identifier: Apache-2.0
"""Facts about each architecture that the suites test, one module per architecture."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from hil_tests.architectures.cortex_a import CORTEX_A
from hil_tests.architectures.cortex_m import CORTEX_M, CORTEX_M_BASELINE
from hil_tests.architectures.facts import Facts, FaultCase, JumpCase
from hil_tests.architectures.riscv import RISCV
from utvm.hil.plugin import board_of

__all__ = ["Facts", "FaultCase", "JumpCase", "facts_of", "parameters", "trap_name_of"]

_FACTS: Mapping[tuple[str, bool], Facts] = {
    ("cortex_a", True): CORTEX_A,
    ("cortex_m", True): CORTEX_M,
    ("cortex_m", False): CORTEX_M_BASELINE,
    ("riscv", True): RISCV,
}
"""By architecture, and by whether a core reports the cause of a fault."""


def facts_of(config: pytest.Config) -> Facts | None:
    """Facts about the board of this run; None for a board without a debug port."""
    row = board_of(config).cpu_row
    return _FACTS.get((row.architecture, row.tells_faults))


def trap_name_of(config: pytest.Config) -> str:
    """Exception that C's ``__builtin_trap()`` raises; a signal in a process."""
    facts = facts_of(config)
    return facts.trap_name if facts else "SIGILL"


def parameters(config: pytest.Config, kind: Literal["faults", "jumps"]) -> list[Any]:
    """Cases of an architecture as pytest parameters, marked with the features that they need."""
    facts = facts_of(config)
    known = {case.name: case for other in _FACTS.values() for case in getattr(other, kind)}
    own = {case.name: case for case in getattr(facts, kind)} if facts else {}
    return [
        pytest.param(own.get(name), marks=[pytest.mark.needs(case.needs)] if case.needs else [], id=name)
        for name, case in (known | own).items()
    ]
