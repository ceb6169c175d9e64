# SPDX-License-Identifier: Apache-2.0
"""Facts about an architecture: handwritten instructions and its faults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from utvm.boards.parts import MemoryRegion
from utvm.compiler import Library
from utvm.drivers import Connection
from utvm.firmware import Firmware


@dataclass(frozen=True)
class FaultCase:
    """A program that faults at the line with the comment ``here``, and its fault.

    Attributes:
        x: input of the program; None is an unmapped address.
        exception: its name in the architecture's manual.
        flag: prefix of a reported status bit, or empty.
        needs: a required board feature, if any.
        address: the reported data address, if any, computed from the address of the program's input and x.
    """

    library: Library
    x: int | None
    exception: str
    flag: str = ""
    needs: str = ""
    address: Callable[[int, int], int | None] = lambda _place, _x: None

    @property
    def name(self) -> str:
        """Name of the case."""
        return self.library.name


@dataclass(frozen=True)
class JumpCase:
    """A jump to an address without code.

    Attributes:
        name: name of the case.
        target: computes the address from the region of the image.
        exception: as in :class:`FaultCase`.
        flag: as in :class:`FaultCase`.
        needs: as in :class:`FaultCase`.
        mark: added to the address for the jump.
    """

    name: str
    target: Callable[[MemoryRegion], int]
    exception: str
    flag: str = ""
    needs: str = ""
    mark: int = 0


@dataclass(frozen=True)
class Facts:
    """One architecture.

    Attributes:
        steps_code: assembler, one instruction per line: load 5, add 7, double, and jump over a no-op to
            another one. The sizes are known without a disassembler.
        steps_changed: clobbered registers, for the C compiler.
        steps_register: the register.
        steps: offset of the program counter from the label, and the register, after each step.
        registers: core registers that keep any written value.
        undefined: a C statement with an undefined instruction.
        undefined_name: its exception.
        trap_name: exception of C's ``__builtin_trap()``, an instruction of the compiler's choice.
        faults: programs that fault.
        jumps: jumps to addresses without code.
        overflow: reported for a stack overflow: a prefix of the exception's name, or of one of its flags.
        after_reset: registers that a reset sets before the first instruction, computed from the image.
    """

    steps_code: tuple[str, ...]
    steps_changed: str
    steps_register: str
    steps: tuple[tuple[int, int], ...]
    registers: tuple[str, ...]
    undefined: str
    undefined_name: str
    trap_name: str
    faults: tuple[FaultCase, ...]
    jumps: tuple[JumpCase, ...]
    overflow: tuple[str, ...]
    after_reset: Callable[[Connection, Firmware], Mapping[str, int]]


def at_entry(_connection: Connection, firmware: Firmware) -> Mapping[str, int]:
    """Registers after a reset if the debugger starts the image."""
    return {"pc": firmware.symbols["utvm_reset"], "sp": firmware.symbols["_utvm_stack_end"]}
