# SPDX-License-Identifier: Apache-2.0
"""What the suites know of each architecture that boards have: one module an architecture."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from hil_tests.architectures.cortex_a import CORTEX_A
from hil_tests.architectures.cortex_m import CORTEX_M
from hil_tests.architectures.facts import Facts, FaultCase, JumpCase
from hil_tests.architectures.riscv import RISCV
from utvm.hil.plugin import board_of

__all__ = ["TRAP_NAMES", "Facts", "FaultCase", "JumpCase", "facts_of", "parameters"]

_FACTS: Mapping[str, Facts] = {"cortex_a": CORTEX_A, "cortex_m": CORTEX_M, "riscv": RISCV}

TRAP_NAMES: Mapping[str, str] = {
    "cortex_a": "undefined instruction",
    "cortex_m": "UsageFault",
    "host": "SIGILL",
    "riscv": "breakpoint",
}
"""What C's ``__builtin_trap()`` ends in: what the compiler makes of it is an instruction of its choice."""


def facts_of(config: pytest.Config) -> Facts | None:
    """Return what is known of the run's board; None for one without a debug port."""
    return _FACTS.get(board_of(config).architecture)


def parameters(config: pytest.Config, kind: Literal["faults", "jumps"]) -> list[Any]:
    """Return as parameters each case that an architecture has; what the board's does not trap it has not."""
    facts = facts_of(config)
    known = {case.name: case for other in _FACTS.values() for case in getattr(other, kind)}
    own = {case.name: case for case in getattr(facts, kind)} if facts else {}
    return [
        pytest.param(own.get(name), marks=[pytest.mark.needs(f"trap: {case.trap}")] if case.trap else [], id=name)
        for name, case in known.items()
    ]
