# SPDX-License-Identifier: Apache-2.0
"""RISC-V (Instruction Set Manual, Volume I, 2 and 8; Volume II, Privileged Architecture, table 3.6: causes)."""

from collections.abc import Mapping

from hil_tests.architectures.facts import Facts, FaultCase, JumpCase, at_entry
from hil_tests.programs import handwritten
from utvm.drivers import Connection
from utvm.firmware import Firmware

_UNDEFINED = '__asm__ volatile("unimp");'


def _unaligned(place: int, _x: int) -> int:
    return place + 1


def _after_reset(connection: Connection, firmware: Firmware) -> Mapping[str, int]:
    """Unless the debugger starts the image, a core starts in the vendor's code (Volume II, 3.4)."""
    return at_entry(connection, firmware) if connection.board.start.by == "entry" else {}


RISCV = Facts(
    # Each instruction is 32 bits wide, not compressed.
    steps_code=(
        ".option push",
        ".option norvc",
        "addi t2, zero, 5",
        "addi t2, t2, 7",
        "slli t2, t2, 1",
        "jal zero, 1f",
        "addi zero, zero, 0",
        "1: addi zero, zero, 0",
        ".option pop",
    ),
    steps_changed='"t2"',
    steps_register="t2",
    steps=((4, 5), (8, 12), (12, 24), (20, 24), (24, 24)),
    registers=(
        *("ra", "sp", "gp", "tp", "fp"),
        *(f"a{number}" for number in range(8)),
        *(f"s{number}" for number in range(1, 12)),
        *(f"t{number}" for number in range(7)),
    ),
    undefined=_UNDEFINED,
    undefined_name="illegal instruction",
    trap_name="breakpoint",
    faults=(
        FaultCase(
            handwritten("bad_read", "  y[0] = *(volatile int32_t *)(uintptr_t)(uint32_t)x[0]; /* here */\n  return 0;"),
            None,
            "load access fault",
            needs="bus errors",
            address=lambda _place, x: x,
        ),
        FaultCase(handwritten("undefined", f"  {_UNDEFINED} /* here */\n  return 0;"), 0, "illegal instruction"),
        # Loads and stores of any alignment work, atomic ones do not.
        FaultCase(
            handwritten(
                "unaligned",
                '  __asm__ volatile("lr.w zero, (%0)" : : "r"((char *)x + 1) : "memory"); /* here */\n  return 0;',
            ),
            0,
            "load address misaligned",
            address=_unaligned,
        ),
    ),
    # An unmapped address.
    jumps=(JumpCase("not executable", lambda _code: 0xF0000000, "instruction access fault"),),
    overflow=("store access fault",),
    after_reset=_after_reset,
)
