# SPDX-License-Identifier: Apache-2.0
"""What the suites know of an architecture: instructions written by hand, and the faults that it has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from utvm.boards.parts import MemoryRegion
from utvm.compiler import Library
from utvm.drivers import Connection
from utvm.firmware import Firmware


@dataclass(frozen=True)
class FaultCase:
    """A program that faults at the line that says ``here``, and what the fault is.

    Attributes:
        x: what the program is given; None is an address where nothing is.
        exception: its name in the architecture's manual.
        flag: how one of the status bits begins that are told with it; or nothing.
        needs: what a board must be capable of for it, where not every one is.
        address: what is told as the address of the data, if anything, by the address of the program's input and
            by x.
    """

    library: Library
    x: int | None
    exception: str
    flag: str = ""
    needs: str = ""
    address: Callable[[int, int], int | None] = lambda _place, _x: None

    @property
    def name(self) -> str:
        """Says what is wrong."""
        return self.library.name


@dataclass(frozen=True)
class JumpCase:
    """A jump to what is no code.

    Attributes:
        name: says what is there.
        target: the address, by the memory that images are in.
        exception: as in :class:`FaultCase`.
        flag: as in :class:`FaultCase`.
        needs: as in :class:`FaultCase`.
        mark: what is added to the address to jump there.
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
        steps_code: assembler, one instruction a line: 5 into a register, 7 added to it, that doubled, a jump over
            an instruction that does nothing, to another one. Sizes are known without a disassembler.
        steps_changed: what that changes, for the C compiler.
        steps_register: the register.
        steps: after each step, how far the program counter is from the label, and the register.
        registers: core registers that hold whatever they are given.
        undefined: a C statement, an instruction that is none.
        undefined_name: the exception that it takes.
        trap_name: what C's ``__builtin_trap()`` ends in: it becomes an instruction of the compiler's choice.
        faults: programs that fault.
        jumps: jumps to what is no code.
        overflow: what a stack that overflows is told as: how the exception's name begins, or one of its flags.
        after_reset: the registers that a reset sets, before the first instruction, by the image that is there.
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


def at_entry(_bench: Connection, firmware: Firmware) -> Mapping[str, int]:
    """Return what a reset sets where the debugger has the core begin with the image."""
    return {"pc": firmware.symbols["utvm_reset"], "sp": firmware.symbols["_utvm_stack_end"]}
