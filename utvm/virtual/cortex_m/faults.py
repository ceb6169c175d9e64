# SPDX-License-Identifier: Apache-2.0
"""Exception numbers, faults and their status bits (ARM DDI 0403E, B1.5.14 and B3.2.15)."""

from dataclasses import dataclass

NMI, HARD_FAULT, MEM_MANAGE, BUS_FAULT, USAGE_FAULT, SV_CALL, DEBUG_MONITOR = 2, 3, 4, 5, 6, 11, 12
PEND_SV, SYS_TICK, FIRST_INTERRUPT = 14, 15, 16

# CFSR: MemManage in bits 7:0, BusFault in 15:8, UsageFault in 31:16.
IACCVIOL, IBUSERR, PRECISERR, UNSTKERR, STKERR = 1 << 0, 1 << 8, 1 << 9, 1 << 11, 1 << 12
BFARVALID, UNDEFINSTR, INVSTATE, INVPC, NOCP = 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19
STKOF = 1 << 20  # of Armv8-M
UNALIGNED, DIVBYZERO = 1 << 24, 1 << 25

# HFSR
VECTTBL, FORCED, DEBUGEVT = 1 << 1, 1 << 30, 1 << 31


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
