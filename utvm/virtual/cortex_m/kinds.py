# SPDX-License-Identifier: Apache-2.0
"""What a debugger reads to find out what is on a chip: ROM tables and component identification (ARM IHI 0029)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from unicorn import arm_const

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m.counter import WATCH_READ, WATCH_WRITE
from utvm.virtual.dap import FurtherPort, PortIds
from utvm.virtual.spec import CoreName

_PRESENT = 0x3
_ROM_TABLE = 0x10
_GENERIC = 0xE0
_CORESIGHT = 0x90
_DEVARCH, _DEVTYPE = 0xFBC, 0xFCC
_IDENTITY = range(0xFD0, 0x1000, 4)

Pages = Mapping[int, Mapping[int, int]]
"""Words of constant pages, by the address of the page and the offset in it."""

Component = Literal["scs", "dwt", "fpb", "itm"]
Components = Mapping[Component, Mapping[int, int]]
"""The words by which a core's own components say what they are, by their offset in 4 KiB."""


def _component_id(offset: int, part: int, component_class: int = _GENERIC, upper: int = 0xB0) -> int:
    """Return a peripheral or component identification word of an Arm component, zero elsewhere.

    Args:
        offset: from the component's 4 KiB page.
        part: PIDR0, the low byte of the part number.
        component_class: CIDR1.
        upper: PIDR1.
    """
    words = {0xFD0: 0x04, 0xFE0: part, 0xFE4: upper, 0xFE8: 0x0B}
    words |= {0xFF0: 0x0D, 0xFF4: component_class, 0xFF8: 0x05, 0xFFC: 0xB1}
    return words.get(offset, 0)


class ConstantPage(Device):
    """A page of constant words; writes are ignored."""

    size = 0x1000

    def __init__(self, words: Mapping[int, int]) -> None:
        self._words = words

    def load(self, offset: int) -> int:
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        pass


def rom_table(offsets: list[int], maker: Mapping[int, int] | None = None, *, part: int = 0) -> Mapping[int, int]:
    """Return the words of a ROM table.

    Args:
        offsets: from the table to what is on the chip.
        maker: the identification registers of a chip's own table; else it is Arm's.
        part: PIDR0 of a table of Arm's.
    """
    entries = {4 * index: offset | _PRESENT for index, offset in enumerate(offsets)}
    identity = _words(part, _ROM_TABLE, 0xB4)
    if maker is not None:
        identity = {0xFF0: 0x0D, 0xFF4: _ROM_TABLE, 0xFF8: 0x05, 0xFFC: 0xB1, **maker}
    return entries | identity


def _words(part: int, component_class: int = _GENERIC, upper: int = 0xB0) -> dict[int, int]:
    return {offset: _component_id(offset, part, component_class, upper) for offset in _IDENTITY}


# Part numbers; PIDR1 holds their upper digit.
COMPONENTS_V7: Components = {"scs": _words(0x0C), "dwt": _words(0x02), "fpb": _words(0x0E), "itm": _words(0x01)}
COMPONENTS_M4: Components = {**COMPONENTS_V7, "fpb": _words(0x03)}
# One part number is that of all; DEVARCH, and DEVTYPE of the trace port, tell them apart.
_M33 = _words(0x21, _CORESIGHT, 0xBD)
COMPONENTS_M33: Components = {
    "scs": {**_M33, _DEVARCH: 0x47702A04},
    "dwt": {**_M33, _DEVARCH: 0x47701A02},
    "fpb": {**_M33, _DEVARCH: 0x47701A03},
    "itm": {**_M33, _DEVARCH: 0x47701A01, _DEVTYPE: 0x43},
}


@dataclass(frozen=True)
class Watches:
    """How comparators say what they watch.

    Attributes:
        accesses: by FUNCTION's bits of :attr:`kind`; any other watches nothing.
        kind: those bits.
        size: of FUNCTION, the binary logarithm of how many bytes are watched; else a register of its own has that.
        fixed: what FUNCTION reads as beside.
    """

    accesses: Mapping[int, int]
    kind: int
    size: int = 0
    fixed: int = 0


WATCHES_V7 = Watches({5: WATCH_READ, 6: WATCH_WRITE, 7: WATCH_READ | WATCH_WRITE}, 0xF)
# With ACTION a debug event; a comparator is for data addresses.
WATCHES_V8 = Watches(
    {0x14: WATCH_READ | WATCH_WRITE, 0x15: WATCH_WRITE, 0x16: WATCH_READ}, 0x3F, 0xC00, 0x40000000
)


@dataclass(frozen=True)
class CoreKind:
    """A core.

    Attributes:
        unicorn_model: what Unicorn calls the one that executes: with the floating-point unit, and at least the
            instructions, of this core.
        cpuid: its CPUID register.
        features: its identification registers, by their offset from 0xE000E000; the others read as zero.
        configuration: the bits of CCR that can be written.
        breakpoints: comparators of its breakpoint unit.
        breakpoint_version: 2 has breakpoints anywhere, 1 only in code below 0x20000000.
        port: what its debug port and access port say.
        pages: its ROM tables, and what else of 4 KiB is constant, by address.
        components: what its own components say that they are.
        exc_return: EXC_RETURN for a handler, with floating-point registers in the frame.
        watches: how its watchpoints are set.
        secure: whether it has the Security Extension: then it is in Secure state, for good.
    """

    unicorn_model: int
    cpuid: int
    features: Mapping[int, int]
    configuration: int
    breakpoints: int
    breakpoint_version: Literal[1, 2]
    port: PortIds
    pages: Pages
    components: Components
    exc_return: int = 0xFFFFFFE1
    watches: Watches = WATCHES_V7
    secure: bool = False


_CORTEX_M7 = CoreKind(
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M33,  # Unicorn's M7 has double precision
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
        0xE00FD000: rom_table([0x1000], {0xFE0: 0x49, 0xFE4: 0x04, 0xFE8: 0x0A}),
        0xE00FE000: rom_table([0x1000], part=0xC8),
        0xE00FF000: rom_table([0xFFF0F000, 0xFFF02000, 0xFFF03000, 0xFFF01000], part=0xC7),
    },
    components=COMPONENTS_V7,
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
    # ARM 100166, 9.2: the access port wraps at 4 KiB, not at 1
    port=PortIds(0x2BA01477, 0x24770011, 0xE00FF003, wrap=0x1000),
    # ARM 100166, 9.1.1: SCS, DWT, FPB, ITM
    pages={
        0xE00FF000: rom_table([0xFFF0F000, 0xFFF02000, 0xFFF03000, 0xFFF01000], part=0xC4),
    },
    components=COMPONENTS_M4,
)

# With double precision, 16 KiB of each cache and three access ports, as in the STM32H743 (RM0433, section 60)
_CORTEX_M7_DP = replace(
    _CORTEX_M7,
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M7,
    features={**_CORTEX_M7.features, 0xD80: 0xF00FE019, 0xF40: 0x10110221, 0xF44: 0x12000011},
    # AP 1 is that of the bus of domain 2, AP 2 shows the chip's debug components (DBGMCU) at other addresses.
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

# As where a chip has its Security Extension off: then it is not there (ARM 100230, CFGSECEXT).
_CORTEX_M33 = CoreKind(
    unicorn_model=arm_const.UC_CPU_ARM_CORTEX_M33,
    cpuid=0x410FD214,  # r0p4, as in the STM32L5
    features={
        # ID_PFR0 to ID_ISAR4 (ARM 100230, B1.4), ID_PFR1 without the extension
        0xD40: 0x00000030,
        0xD44: 0x00000200,
        0xD48: 0x00200000,
        0xD50: 0x00101F40,
        0xD58: 0x01000000,
        0xD60: 0x01101110,
        0xD64: 0x02212000,
        0xD68: 0x20232232,
        0xD6C: 0x01111131,
        0xD70: 0x01310132,
        0xD7C: 0x8000C000,  # CTR: no caches
        # MVFR
        0xF40: 0x10110021,
        0xF44: 0x11000011,
        0xF48: 0x00000040,
        0xFB8: 0x0000000F,  # DAUTHSTATUS: all debugging of what is not secure, and nothing is (DDI 0553B, D1.2)
        0xFBC: COMPONENTS_M33["scs"][0xFBC],
    },
    configuration=0x0007071B,
    breakpoints=8,
    breakpoint_version=2,
    port=PortIds(0x0BE12477, 0x14770015, 0xE00FE003),
    # RM0438, section 52.6: the chip's table above that of the core: SCS, DWT, FPB, ITM
    pages={
        0xE00FE000: rom_table([0x1000], {0xFE0: 0x72, 0xFE4: 0x04, 0xFE8: 0x0A}),
        0xE00FF000: rom_table([0xFFF0F000, 0xFFF02000, 0xFFF03000, 0xFFF01000], part=0xC9),
    },
    exc_return=0xFFFFFFA0,
    watches=WATCHES_V8,
    components=COMPONENTS_M33,
)

# With the extension, in the state in which it comes out of a reset, as in the nRF5340.
_CORTEX_M33_SECURE = replace(
    _CORTEX_M33,
    features={
        **_CORTEX_M33.features,
        0xD44: 0x00000210,
        0xE08: 0x00010000,  # DSCSR: CDS, in Secure state (DDI 0553B, D1.2)
        0xFB8: 0x000000FF,  # DAUTHSTATUS: all debugging of both states
    },
    port=PortIds(0x6BA02477, 0x84770001, 0xE00FE003),
    # The chip's own table, as Nordic's other ones have it; its part number there is in no source that was found.
    pages={
        **_CORTEX_M33.pages,
        0xE00FE000: rom_table([0x1000], {0xFD0: 0x02, 0xFE4: 0x40, 0xFE8: 0x0C}),
    },
    exc_return=CoreKind.exc_return,
    secure=True,
)

KINDS: Mapping[CoreName, CoreKind] = {
    "cortex-m4": _CORTEX_M4,
    "cortex-m7": _CORTEX_M7,
    "cortex-m7-dp": _CORTEX_M7_DP,
    "cortex-m33": _CORTEX_M33,
    "cortex-m33-secure": _CORTEX_M33_SECURE,
}
