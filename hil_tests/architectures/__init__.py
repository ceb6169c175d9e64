"""What the suites know of each architecture that boards have: one module an architecture."""

from collections.abc import Mapping

import pytest

from hil_tests.architectures.cortex_m import CORTEX_M
from hil_tests.architectures.facts import Facts, FaultCase, JumpCase
from hil_tests.architectures.riscv import RISCV
from utvm.hil.plugin import board_of

__all__ = ["TRAP_NAMES", "Facts", "FaultCase", "JumpCase", "facts_of"]

_FACTS: Mapping[str, Facts] = {"cortex_m": CORTEX_M, "riscv": RISCV}

TRAP_NAMES: Mapping[str, str] = {"cortex_m": "UsageFault", "host": "SIGILL", "riscv": "breakpoint"}
"""What C's ``__builtin_trap()`` ends in: what the compiler makes of it is an instruction of its choice."""


def facts_of(config: pytest.Config) -> Facts | None:
    """Return what is known of the run's board; None for one without a debug port."""
    return _FACTS.get(board_of(config).architecture)
