"""What the suites know of each architecture, by its folder in the runtime: faults, and a few instructions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Fault:
    """How a fault is told.

    Attributes:
        exception: its name.
        flag: how one of its flags begins, or nothing where it has none.
        address: whose address is told with it: none's, that which the program was given, or the byte behind its
            input's first.
    """

    exception: str
    flag: str = ""
    address: Literal["", "given", "input"] = ""


@dataclass(frozen=True)
class Steps:
    """A few instructions that set r2, and what a debugger sees after each: how far the core has come, and r2."""

    code: tuple[str, ...]
    seen: tuple[tuple[int, int], ...]


_ARITHMETIC = ("movs r2, #5", "adds r2, #7", "lsls r2, r2, #1", "b 1f", "nop", "1: nop")

FAULTS: Mapping[str, Mapping[str, Fault]] = {
    # ARM DDI 0403E, B1.5.6 and B3.2.15
    "cortex_m": {
        "bad_read": Fault("BusFault", "PRECISERR", "given"),
        "undefined": Fault("UsageFault", "UNDEFINSTR"),
        "divide_by_zero": Fault("UsageFault", "DIVBYZERO"),
        "unaligned": Fault("UsageFault", "UNALIGNED"),
        "not_executable": Fault("MemManage", "IACCVIOL"),
    },
    # ARM DDI 0406C, table B3-23; LDRD: A3.2.1
    "cortex_a": {
        "bad_read": Fault("data abort", "translation fault", "given"),
        "undefined": Fault("undefined instruction"),
        "unaligned": Fault("data abort", "alignment fault", "input"),
        "not_executable": Fault("prefetch abort", "translation fault"),
    },
    "host": {"undefined": Fault("SIGILL")},
}

STACK_OVERFLOW: Mapping[str, frozenset[str]] = {
    "cortex_m": frozenset({"STKERR", "MSTKERR", "PRECISERR", "IMPRECISERR"}),
    "cortex_a": frozenset({"translation fault"}),
}
"""The flags, up to their colon, of which one comes with a stack that overflows."""

STEPS: Mapping[str, Steps] = {
    # Each instruction is 16 bits wide (ARM DDI 0403E, A7.7).
    "cortex_m": Steps(_ARITHMETIC, ((2, 5), (4, 12), (6, 24), (10, 24), (12, 24))),
    # Each is 32 bits wide (ARM DDI 0406C, A5.1).
    "cortex_a": Steps(_ARITHMETIC, ((4, 5), (8, 12), (12, 24), (20, 24), (24, 24))),
}
