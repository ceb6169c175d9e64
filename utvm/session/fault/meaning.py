# SPDX-License-Identifier: Apache-2.0
"""Records that describe the faults of an architecture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from utvm.base.storage.config import read_yaml

TEXTS: Mapping[str, Mapping[int, str]] = read_yaml(Path(__file__).with_name("texts.yaml"))[0]
"""Texts of exceptions and status bits, by table and number."""


class ReadableCore(Protocol):
    """A halted core."""

    def register(self, name: str) -> int:
        """Return the value of a register by the debugger's name; 0 if it does not exist."""

    def word(self, address: int) -> int:
        """Read 32 bits of memory; 0 if they cannot be read."""


@dataclass(frozen=True)
class Meaning:
    """A fault, in the terms of the architecture's manual.

    Attributes:
        name: the exception.
        flags: the set status bits, with descriptions.
        address: the faulting data address, if recorded.
        status: formatted status registers, or empty.
    """

    name: str
    flags: tuple[str, ...] = ()
    address: int | None = None
    status: str = ""


@dataclass(frozen=True)
class Architecture:
    """Fault records of one architecture.

    Attributes:
        registers: names in the order of DWARF numbers; empty if records hold no registers.
        stack_pointer, program_counter: names of registers.
        meaning: decodes an exception number and the six status words.
        machine: ELF machine, such as ``EM_ARM``; empty for host processes.
        current_fault: reads the fault of a halted core, and the address of the faulting instruction if known.
    """

    registers: tuple[str, ...]
    stack_pointer: str
    program_counter: str
    meaning: Callable[[int, Sequence[int]], Meaning]
    machine: str = ""
    current_fault: Callable[[ReadableCore], "tuple[Meaning, int | None] | None"] = lambda _: None
