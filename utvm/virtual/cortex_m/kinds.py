# SPDX-License-Identifier: Apache-2.0
"""What differs between the cores that can be modelled, as data: a row a core.

Sources: ARM DDI 0489 (Cortex-M7), ARM 100166 (Cortex-M4), and what debuggers print of the chips with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from unicorn import arm_const

from utvm.virtual.cortex_m.identity import ITM, Pages, rom_table, trace_port
from utvm.virtual.dap import PortIds
from utvm.virtual.spec import CoreName


@dataclass(frozen=True)
class CoreKind:
    """A core.

    Attributes:
        unicorn_model: what Unicorn calls it.
        cpuid: its CPUID register.
        features: its identification registers, by their offset from 0xE000E000; the others read as zero.
        configuration: the bits of CCR that can be written.
        breakpoints: comparators of its breakpoint unit.
        breakpoint_version: 2 has breakpoints anywhere, 1 only in code below 0x20000000.
        port: what its debug port and access port say.
        pages: its ROM tables, and what else of 4 KiB is constant, by address.
    """

    unicorn_model: int
    cpuid: int
    features: Mapping[int, int]
    configuration: int
    breakpoints: int
    breakpoint_version: Literal[1, 2]
    port: PortIds
    pages: Pages


_CORTEX_M7 = CoreKind(
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M7,
    cpuid=0x411FC271,  # r1p1, as in the STM32F746
    features={
        # ID_PFR0 to ID_ISAR4, CLIDR, CTR (ARM DDI 0489, table 3-1)
        0xD40: 0x00000030,
        0xD44: 0x00000200,
        0xD48: 0x00100000,
        0xD50: 0x00100030,
        0xD58: 0x01000000,
        0xD60: 0x01101110,
        0xD64: 0x02112000,
        0xD68: 0x20232231,
        0xD6C: 0x01111131,
        0xD70: 0x01310132,
        0xD78: 0x09000003,
        0xD7C: 0x8303C003,
        0xD80: 0xF003E019,  # CCSIDR: 4 KiB of data cache, the default selection
        # MVFR: single precision only
        0xF40: 0x10110021,
        0xF44: 0x11000011,
        0xF48: 0x00000040,
    },
    configuration=0x0007031B,
    breakpoints=8,
    breakpoint_version=2,
    port=PortIds(0x5BA02477, 0x74770001, 0xE00FD003),
    # RM0385, section 40: two tables above that of the private peripherals.
    pages={
        0xE0000000: trace_port(ITM),
        0xE00FD000: rom_table([0x1000], {0xFE0: 0x49, 0xFE4: 0x04, 0xFE8: 0x0A}),
        0xE00FE000: rom_table([0x1000], part=0xC8),
        0xE00FF000: rom_table([0xFFF0F000, 0xFFF02000, 0xFFF03000, 0xFFF01000], part=0xC7),
    },
)

_CORTEX_M4 = CoreKind(
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M4,
    cpuid=0x410FC241,  # r0p1, as in the STM32F4 and the STM32L4
    features={
        # ID_PFR0 to ID_ISAR4 (ARM 100166, table 4-1); no caches
        0xD40: 0x00000030,
        0xD44: 0x00000200,
        0xD48: 0x00100000,
        0xD50: 0x00100030,
        0xD58: 0x01000000,
        0xD60: 0x01101110,
        0xD64: 0x02112000,
        0xD68: 0x21232231,
        0xD6C: 0x01111131,
        0xD70: 0x01310132,
        # MVFR0 and 1 (ARM 100166, 7.2.3)
        0xF40: 0x10110021,
        0xF44: 0x11000011,
    },
    configuration=0x0000031B,
    breakpoints=6,
    breakpoint_version=1,
    port=PortIds(0x2BA01477, 0x24770011, 0xE00FF003),
    # ARM 100166, 9.1.1: SCS, DWT, FPB, ITM
    pages={
        0xE0000000: trace_port(ITM),
        0xE00FF000: rom_table([0xFFF0F000, 0xFFF02000, 0xFFF03000, 0xFFF01000], part=0xC4),
    },
)

KINDS: Mapping[CoreName, CoreKind] = {"cortex-m4": _CORTEX_M4, "cortex-m7": _CORTEX_M7}
