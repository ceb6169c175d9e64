# SPDX-License-Identifier: Apache-2.0
"""Armv7-M (ARM DDI 0403E: A7.7 for instructions, B1.5.6 and B3.2.15 for faults), and its smaller relatives."""

import dataclasses
import struct
from collections.abc import Mapping

from hil_tests.architectures.facts import Facts, FaultCase, JumpCase
from hil_tests.programs import handwritten
from utvm.drivers import Connection
from utvm.firmware import Firmware

_UNDEFINED = '__asm__ volatile("udf #0");'


def _after_reset(connection: Connection, _firmware: Firmware) -> Mapping[str, int]:
    """The core loads its stack pointer and program counter from the vector table (B1.5.5)."""
    table = connection.board.region(connection.board.layout.code).address
    stack, start = struct.unpack("<II", connection.read_memory(table, 8))
    return {"pc": start & ~1, "sp": stack}


CORTEX_M = Facts(
    # Each instruction is 16 bits wide.
    steps_code=("movs r2, #5", "adds r2, #7", "lsls r2, r2, #1", "b 1f", "nop", "1: nop"),
    steps_changed='"r2", "cc"',
    steps_register="r2",
    steps=((2, 5), (4, 12), (6, 24), (10, 24), (12, 24)),
    registers=tuple(f"r{number}" for number in range(13)),
    undefined=_UNDEFINED,
    undefined_name="UsageFault",
    trap_name="UsageFault",
    faults=(
        FaultCase(
            handwritten("bad_read", "  y[0] = *(volatile int32_t *)(uint32_t)x[0]; /* here */\n  return 0;"),
            None,
            "BusFault",
            "PRECISERR",
            "bus errors",
            address=lambda _place, x: x,
        ),
        FaultCase(handwritten("undefined", f"  {_UNDEFINED} /* here */\n  return 0;"), 0, "UsageFault", "UNDEFINSTR"),
        FaultCase(
            handwritten("divide_by_zero", "  y[0] = 7 / x[0]; /* here */\n  return 0;"),
            0,
            "UsageFault",
            "DIVBYZERO",
            "trap: division by zero",
        ),
        FaultCase(
            handwritten(
                "unaligned",
                '  __asm__ volatile("ldrd r2, r3, [%0]" : : "r"((char *)x + 1) : "r2", "r3"); /* here */\n  return 0;',
            ),
            0,
            "UsageFault",
            "UNALIGNED",
        ),
    ),
    jumps=(
        JumpCase("not Thumb", lambda code: code.address, "UsageFault", "INVSTATE", "trap: code that is not Thumb"),
        # The first address of the peripherals, which is not executable (B3.1).
        JumpCase("not executable", lambda _code: 0x40000000, "MemManage", "IACCVIOL", "execute never", mark=1),
    ),
    overflow=("STKERR", "MSTKERR", "PRECISERR", "IMPRECISERR", "DACCVIOL", "STKOF"),
    after_reset=_after_reset,
)


# Armv6-M (ARM DDI 0419, B1.5) and Armv8-M's baseline: every fault is a HardFault, and no register gives the cause.
CORTEX_M_BASELINE = dataclasses.replace(
    CORTEX_M,
    undefined_name="HardFault",
    trap_name="HardFault",
    faults=(
        *(
            dataclasses.replace(case, exception="HardFault", flag="", address=lambda _place, _x: None)
            for case in CORTEX_M.faults
            if case.name not in ("divide_by_zero", "unaligned")
        ),
        FaultCase(
            handwritten(
                "unaligned", '  __asm__ volatile("ldr r2, [%0]" : : "r"((char *)x + 1) : "r2"); /* here */\n  return 0;'
            ),
            0,
            "HardFault",
        ),
    ),
    jumps=tuple(dataclasses.replace(case, exception="HardFault", flag="") for case in CORTEX_M.jumps),
    overflow=("HardFault",),
)
