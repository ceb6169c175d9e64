# SPDX-License-Identifier: Apache-2.0
"""Records that describe the faults of an architecture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class ReadableCore(Protocol):
    """A halted core."""

    def register(self, name: str) -> int:
        """Value of a register, by the name that its debugger has for it; 0 where there is none."""

    def word(self, address: int) -> int:
        """32 bits of memory; 0 where there is none."""


@dataclass(frozen=True)
class Meaning:
    """A fault in the words of an architecture's manual.

    Attributes:
        name: the exception.
        flags: the status bits that are set, each with its meaning.
        address: the data address that faulted, if the core recorded it.
        status: the status registers themselves, for a reader; or nothing.
    """

    name: str
    flags: tuple[str, ...] = ()
    address: int | None = None
    status: str = ""


@dataclass(frozen=True)
class Architecture:
    """Fault records of one architecture.

    Attributes:
        registers: names by DWARF's number; none where a record has none.
        stack_pointer: the name of one of them.
        program_counter: the name of one of them.
        meaning: reads an exception's number and the six status words.
        machine: ELF machine, such as ``EM_ARM``; empty where images are no firmware.
        standing: the fault that a halted core is in, and the address of the instruction that caused it, if known.
    """

    registers: tuple[str, ...]
    stack_pointer: str
    program_counter: str
    meaning: Callable[[int, Sequence[int]], Meaning]
    machine: str = ""
    standing: Callable[[ReadableCore], "tuple[Meaning, int | None] | None"] = lambda _: None
