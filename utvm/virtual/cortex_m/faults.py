# SPDX-License-Identifier: Apache-2.0
"""Exception numbers, faults and their status bits (ARM DDI 0403E, B1.5.14 and B3.2.15)."""

from dataclasses import dataclass

NMI = 2
HARD_FAULT = 3
MEM_MANAGE = 4
BUS_FAULT = 5
USAGE_FAULT = 6
SV_CALL = 11
DEBUG_MONITOR = 12
PEND_SV = 14
SYS_TICK = 15
FIRST_INTERRUPT = 16

# CFSR: MemManage in bits 7:0, BusFault in 15:8, UsageFault in 31:16.
IACCVIOL = 1 << 0
IBUSERR = 1 << 8
PRECISERR = 1 << 9
UNSTKERR = 1 << 11
STKERR = 1 << 12
BFARVALID = 1 << 15
UNDEFINSTR = 1 << 16
INVSTATE = 1 << 17
INVPC = 1 << 18
NOCP = 1 << 19
STKOF = 1 << 20  # of Armv8-M
UNALIGNED = 1 << 24
DIVBYZERO = 1 << 25

# HFSR
VECTTBL = 1 << 1
FORCED = 1 << 30
DEBUGEVT = 1 << 31


@dataclass(frozen=True)
class Fault:
    """A fault of one instruction.

    Attributes:
        exception: number of the exception that it raises, if enabled.
        status: its bits in CFSR.
        address: the data address, for BFAR, or None.
    """

    exception: int
    status: int
    address: int | None = None


def fetch_fault(address: int) -> Fault:
    """Fault of an instruction fetch: by the default memory map, or by the bus (ARM DDI 0403E, B3.1)."""
    execute_never = 0x40000000 <= address < 0x60000000 or address >= 0xA0000000
    return Fault(MEM_MANAGE, IACCVIOL) if execute_never else Fault(BUS_FAULT, IBUSERR)


def data_fault(address: int) -> Fault:
    """Fault of a load or store that the bus refuses."""
    return Fault(BUS_FAULT, PRECISERR | BFARVALID, address)


def usage_fault(status: int) -> Fault:
    return Fault(USAGE_FAULT, status)
