# SPDX-License-Identifier: Apache-2.0
"""The Cortex-M cores as data: identification, debug port, ROM tables, breakpoint and watchpoint units.

Sources: ARM DDI 0489 (Cortex-M7), ARM 100166 (Cortex-M4), ARM 100230 (Cortex-M33), ARM IHI 0029 (identification
registers), and the chips' registers as debuggers print them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from unicorn import arm_const

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.cortex_m import cycles
from utvm.virtual.cortex_m.core import WATCH_READ, WATCH_WRITE
from utvm.virtual.cortex_m.cycles import CoreTiming
from utvm.virtual.dap import FurtherPort, PortIds
from utvm.virtual.spec import CoreName

_PRESENT = 0x3
_ROM_TABLE, _GENERIC, _CORESIGHT = 0x10, 0xE0, 0x90  # component classes
_DEVARCH, _DEVTYPE = 0xFBC, 0xFCC

Words = Mapping[int, int]
"""Words of a constant page of 4 KiB, by offset."""


class ConstantPage(PlainRegisters):
    """A page of constant words; writes are ignored."""

    def __init__(self, words: Words) -> None:
        super().__init__(words, range(0x1000), size=0x1000)


def _component(part: int, component_class: int = _GENERIC, upper: int = 0xB0) -> dict[int, int]:
    """Identification registers of an Arm component: PIDR0 is ``part``, PIDR1 ``upper``."""
    peripheral = {0xFD0: 0x04, 0xFE0: part, 0xFE4: upper, 0xFE8: 0x0B}
    return peripheral | {0xFF0: 0x0D, 0xFF4: component_class, 0xFF8: 0x05, 0xFFC: 0xB1}


def _rom_table(offsets: list[int], maker: Words | None = None, *, part: int = 0) -> Words:
    """Build a ROM table from offsets of components and the identification: ``maker``, or ``part`` of an Arm
    table.
    """
    entries = {4 * index: offset | _PRESENT for index, offset in enumerate(offsets)}
    identity = _component(part, _ROM_TABLE, 0xB4)
    if maker is not None:
        identity = {0xFF0: 0x0D, 0xFF4: _ROM_TABLE, 0xFF8: 0x05, 0xFFC: 0xB1, **maker}
    return entries | identity


_CORE_COMPONENTS = [0xFFF0F000, 0xFFF02000, 0xFFF03000, 0xFFF01000]  # SCS, DWT, FPB, ITM, from 0xE00FF000
_COMPONENTS_V7 = {
    "scs": _component(0x0C),
    "dwt": _component(0x02),
    "fpb": _component(0x0E),
    "itm": _component(0x01),
}
# All components have one part number; DEVARCH differs, and DEVTYPE of the trace port.
_M33 = _component(0x21, _CORESIGHT, 0xBD)
_COMPONENTS_M33 = {
    "scs": {**_M33, _DEVARCH: 0x47702A04},
    "dwt": {**_M33, _DEVARCH: 0x47701A02},
    "fpb": {**_M33, _DEVARCH: 0x47701A03},
    "itm": {**_M33, _DEVARCH: 0x47701A01, _DEVTYPE: 0x43},
}


@dataclass(frozen=True)
class Watches:
    """The encoding of watchpoints in FUNCTION.

    Attributes:
        accesses: watched accesses by the bits of :attr:`kind`; other values are disabled.
        size: the field with log2 of the watched size; 0 if the MASK register has it.
        fixed: bits that read as one.
    """

    accesses: Mapping[int, int]
    kind: int
    size: int = 0
    fixed: int = 0


_WATCHES_V7 = Watches({5: WATCH_READ, 6: WATCH_WRITE, 7: WATCH_READ | WATCH_WRITE}, 0xF)
# MATCH for data addresses, with ACTION: debug event.
_WATCHES_V8 = Watches(
    {0x14: WATCH_READ | WATCH_WRITE, 0x15: WATCH_WRITE, 0x16: WATCH_READ}, 0x3F, 0xC00, 0x40000000
)


@dataclass(frozen=True)
class CoreKind:
    """A core.

    Attributes:
        unicorn_model: Unicorn's core that executes: with this core's floating-point unit, and at least its
            instructions.
        features: identification registers by their offset from 0xE000E000; others read as zero.
        configuration: writable bits of CCR.
        breakpoints: number of comparators of the breakpoint unit.
        breakpoint_version: 2 has breakpoints at any address, 1 only below 0x20000000.
        pages: ROM tables and other constant pages, by address.
        components: identification registers of scs, dwt, fpb and itm.
        exc_return: EXC_RETURN of a return to a handler, with floating-point registers in the frame.
        secure: has the Security Extension and stays in Secure state.
        timing: what instructions cost.
    """

    unicorn_model: int
    cpuid: int
    features: Words
    configuration: int
    breakpoints: int
    breakpoint_version: Literal[1, 2]
    port: PortIds
    pages: Mapping[int, Words]
    components: Mapping[str, Words]
    exc_return: int = 0xFFFFFFE1
    watches: Watches = _WATCHES_V7
    secure: bool = False
    timing: CoreTiming | None = None


def _features(
    processor: tuple[int, ...], instructions: tuple[int, ...], media: tuple[int, ...], others: Words | None = None
) -> Words:
    """Registers ID_PFR0, ID_PFR1, ID_DFR0, ID_MMFR0, ID_MMFR2; ID_ISAR0 to 4; MVFR0 to 2; and others."""
    offsets = (0xD40, 0xD44, 0xD48, 0xD50, 0xD58, *range(0xD60, 0xD74, 4))
    words = dict(zip(offsets, processor + instructions, strict=True)) | dict(
        zip(range(0xF40, 0xF4C, 4), media, strict=False)
    )
    return {**words, **(others or {})}


_CORTEX_M7 = CoreKind(
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M33,  # Unicorn's M7 has double precision
    cpuid=0x411FC271,  # r1p1, as in the STM32F746
    features=_features(
        # ARM DDI 0489, table 3-1
        (0x00000030, 0x00000200, 0x00100000, 0x00100030, 0x01000000),
        (0x01101110, 0x02112000, 0x20232231, 0x01111131, 0x01310132),
        (0x10110021, 0x11000011, 0x00000040),  # single precision only
        # CLIDR, CTR, CCSIDR: 4 KiB of data cache, the default selection
        {0xD78: 0x09000003, 0xD7C: 0x8303C003, 0xD80: 0xF003E019},
    ),
    configuration=0x0007031B,
    breakpoints=8,
    breakpoint_version=2,
    port=PortIds(0x5BA02477, 0x74770001, 0xE00FD003),
    # RM0385, section 40: two tables above that of the private peripherals.
    pages={
        0xE00FD000: _rom_table([0x1000], {0xFE0: 0x49, 0xFE4: 0x04, 0xFE8: 0x0A}),
        0xE00FE000: _rom_table([0x1000], part=0xC8),
        0xE00FF000: _rom_table(_CORE_COMPONENTS, part=0xC7),
    },
    components=_COMPONENTS_V7,
    timing=cycles.M7,
)

_CORTEX_M4 = CoreKind(
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M4,
    cpuid=0x410FC241,  # r0p1, as in the STM32F4 and the STM32L4
    features=_features(
        # ARM 100166, table 4-1; no caches
        (0x00000030, 0x00000200, 0x00100000, 0x00100030, 0x01000000),
        (0x01101110, 0x02112000, 0x21232231, 0x01111131, 0x01310132),
        (0x10110021, 0x11000011),  # ARM 100166, 7.2.3
    ),
    configuration=0x0000031B,
    breakpoints=6,
    breakpoint_version=1,
    # ARM 100166, 9.2: the access port wraps at 4 KiB instead of 1 KiB
    port=PortIds(0x2BA01477, 0x24770011, 0xE00FF003, wrap=0x1000),
    pages={0xE00FF000: _rom_table(_CORE_COMPONENTS, part=0xC4)},  # ARM 100166, 9.1.1
    components={**_COMPONENTS_V7, "fpb": _component(0x03)},
    timing=cycles.M4,
)

# With double precision, 16 KiB of each cache and three access ports, as in the STM32H743 (RM0433, section 60)
_CORTEX_M7_DP = replace(
    _CORTEX_M7,
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M7,
    features={**_CORTEX_M7.features, 0xD80: 0xF00FE019, 0xF40: 0x10110221, 0xF44: 0x12000011},
    # AP 1 belongs to the bus of domain 2; AP 2 shows the chip's debug components (DBGMCU) at other addresses.
    port=PortIds(
        0x6BA02477,
        0x84770001,
        0xE00FE003,
        further={
            1: FurtherPort(0x84770001, 0x00000002),
            2: FurtherPort(0x54770002, 0xE00E0003, start=0xE00E0000, size=0x20000, shows=0x5C000000),
        },
    ),
    pages={address: words for address, words in _CORTEX_M7.pages.items() if address != 0xE00FD000},
)

# As in a chip with its Security Extension off: the core then has none (ARM 100230, CFGSECEXT).
_CORTEX_M33 = CoreKind(
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M33,
    cpuid=0x410FD214,  # r0p4, as in the STM32L5
    features=_features(
        # ARM 100230, B1.4; ID_PFR1 without the extension
        (0x00000030, 0x00000200, 0x00200000, 0x00101F40, 0x01000000),
        (0x01101110, 0x02212000, 0x20232232, 0x01111131, 0x01310132),
        (0x10110021, 0x11000011, 0x00000040),
        {
            0xD7C: 0x8000C000,  # CTR: no caches
            0xFB8: 0x0000000F,  # DAUTHSTATUS: Non-secure debug is enabled, Secure is absent (DDI 0553B, D1.2)
            0xFBC: _COMPONENTS_M33["scs"][_DEVARCH],
        },
    ),
    configuration=0x0007071B,
    breakpoints=8,
    breakpoint_version=2,
    port=PortIds(0x0BE12477, 0x14770015, 0xE00FE003),
    # RM0438, section 52.6: the chip's table above that of the core
    pages={
        0xE00FE000: _rom_table([0x1000], {0xFE0: 0x72, 0xFE4: 0x04, 0xFE8: 0x0A}),
        0xE00FF000: _rom_table(_CORE_COMPONENTS, part=0xC9),
    },
    exc_return=0xFFFFFFA0,
    watches=_WATCHES_V8,
    components=_COMPONENTS_M33,
    timing=cycles.M33,
)

# With the extension, in its state after a reset, as in the nRF5340.
_CORTEX_M33_SECURE = replace(
    _CORTEX_M33,
    features={
        **_CORTEX_M33.features,
        0xD44: 0x00000210,
        0xE08: 0x00010000,  # DSCSR: CDS, in Secure state (DDI 0553B, D1.2)
        0xFB8: 0x000000FF,  # DAUTHSTATUS: debug of both states is enabled
    },
    port=PortIds(0x6BA02477, 0x84770001, 0xE00FE003),
    # The chip's own table, as in Nordic's other chips; no source for its part number was found.
    pages={
        **_CORTEX_M33.pages,
        0xE00FE000: _rom_table([0x1000], {0xFD0: 0x02, 0xFE4: 0x40, 0xFE8: 0x0C}),
    },
    exc_return=CoreKind.exc_return,
    secure=True,
)

# ARM DDI 0337, 4.2. Without DSP instructions and floating-point unit.
_CORTEX_M3 = replace(
    _CORTEX_M4,
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M3,
    cpuid=0x412FC230,  # r2p0, as in the STM32F2
    features=_features(
        (0x00000030, 0x00000200, 0x00100000, 0x00000030, 0x01000000),
        (0x01141110, 0x02111000, 0x21112231, 0x01111110, 0x01310132),
        (),
    ),
    timing=cycles.M3,
)
# Armv6-M, with the debug components of Armv7-M, CYCCNT among them, which no such core has: to count its cycles.
_CORTEX_M0 = replace(_CORTEX_M3, unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M0, cpuid=0x410CC200, timing=cycles.M0)
_CORTEX_M0_PLUS = replace(_CORTEX_M0, cpuid=0x410CC601, timing=cycles.M0_PLUS)

KINDS: Mapping[CoreName, CoreKind] = {
    "cortex-m0": _CORTEX_M0,
    "cortex-m0plus": _CORTEX_M0_PLUS,
    "cortex-m3": _CORTEX_M3,
    "cortex-m4": _CORTEX_M4,
    "cortex-m7": _CORTEX_M7,
    "cortex-m7-dp": _CORTEX_M7_DP,
    "cortex-m33": _CORTEX_M33,
    "cortex-m33-secure": _CORTEX_M33_SECURE,
}
