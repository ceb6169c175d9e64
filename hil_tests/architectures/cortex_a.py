# SPDX-License-Identifier: Apache-2.0
"""Armv7-A (ARM DDI 0406C: A5.1 and A8.8 for instructions, A3.2.1 and table B3-23 for faults)."""

from hil_tests.architectures.facts import Facts, FaultCase, JumpCase, at_entry
from hil_tests.programs import handwritten

_UNDEFINED = '__asm__ volatile("udf #0");'


CORTEX_A = Facts(
    # Each instruction is 32 bits wide.
    steps_code=("movs r2, #5", "adds r2, #7", "lsls r2, r2, #1", "b 1f", "nop", "1: nop"),
    steps_changed='"r2", "cc"',
    steps_register="r2",
    steps=((4, 5), (8, 12), (12, 24), (20, 24), (24, 24)),
    registers=tuple(f"r{number}" for number in range(13)),
    undefined=_UNDEFINED,
    undefined_name="undefined instruction",
    trap_name="undefined instruction",
    faults=(
        FaultCase(
            handwritten("bad_read", "  y[0] = *(volatile int32_t *)(uint32_t)x[0]; /* here */\n  return 0;"),
            None,
            "data abort",
            "translation fault",
            address=lambda _place, x: x,
        ),
        FaultCase(handwritten("undefined", f"  {_UNDEFINED} /* here */\n  return 0;"), 0, "undefined instruction"),
        FaultCase(
            handwritten(
                "unaligned",
                '  __asm__ volatile("ldrd r2, r3, [%0]" : : "r"((char *)x + 1) : "r2", "r3"); /* here */\n  return 0;',
            ),
            0,
            "data abort",
            "alignment fault",
            address=lambda place, _x: place + 1,
        ),
    ),
    jumps=(
        # The empty programmable logic of a Zynq. The mark selects Thumb code.
        JumpCase("not executable", lambda _code: 0x40000000, "prefetch abort", "translation fault", mark=1),
    ),
    overflow=("translation fault",),
    after_reset=at_entry,
)
