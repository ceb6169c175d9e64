# SPDX-License-Identifier: Apache-2.0
"""Halting debug: DHCSR, DCRSR, DCRDR, DEMCR and DFSR (ARM DDI 0403E, C1.6; DDI 0553B, D1.2).

:class:`DebugControl` holds the registers. What a debugger asks for by writing them it asks of a
:class:`DebugTarget`, the core.
"""

from typing import Protocol

from utvm.virtual.bus import Device

DFSR = 0xD30
DHCSR = 0xDF0
DCRSR = 0xDF4
DCRDR = 0xDF8
DEMCR = 0xDFC

_KEY = 0xA05F
C_DEBUGEN = 1 << 0
C_HALT = 1 << 1
C_STEP = 1 << 2
C_MASKINTS = 1 << 3
_S_REGRDY = 1 << 16
_S_HALT = 1 << 17
_S_SLEEP = 1 << 18
_S_LOCKUP = 1 << 19
_S_SDE = 1 << 20  # of the Security Extension: what is secure may be debugged
_S_RETIRE_ST = 1 << 24
_S_RESET_ST = 1 << 25

# DFSR
DFSR_HALTED = 1 << 0
DFSR_BKPT = 1 << 1
DFSR_DWTTRAP = 1 << 2
DFSR_VCATCH = 1 << 3

# DEMCR
VC_CORERESET = 1 << 0
VC_MMERR = 1 << 4
VC_NOCPERR = 1 << 5
VC_CHKERR = 1 << 6
VC_STATERR = 1 << 7
VC_BUSERR = 1 << 8
VC_INTERR = 1 << 9
VC_HARDERR = 1 << 10
MON_EN = 1 << 16
TRCENA = 1 << 24
_DEMCR_MASK = 0x010F07F1

_REGNR = 0x7F
_REGWNR = 1 << 16


class DebugTarget(Protocol):
    """What a debugger drives."""

    @property
    def count(self) -> int:
        """Instructions executed so far."""

    @property
    def halted(self) -> bool:
        """Whether the core is in Debug state."""

    @property
    def sleeping(self) -> bool:
        """Whether the core waits for an interrupt or event."""

    @property
    def locked_up(self) -> bool:
        """Whether the core has locked up."""

    def halt(self, reason: int) -> None:
        """Enter Debug state for a reason, one bit of DFSR."""

    def resume(self) -> None:
        """Leave Debug state."""

    def debug_step(self) -> None:
        """Leave Debug state for one instruction."""

    def debug_changed(self) -> None:
        """Note a change of DHCSR or DEMCR."""

    def read_debug_register(self, selector: int) -> int:
        """Return the core register of a DCRSR selector."""

    def write_debug_register(self, selector: int, value: int) -> None:
        """Set the core register of a DCRSR selector."""


class DebugControl(Device):
    """The registers, at their offsets from 0xE000E000. A system reset leaves most alone.

    Attributes:
        fault_status: DFSR.
    """

    def __init__(self, target: DebugTarget, secure: bool) -> None:
        self._target = target
        self._always = _S_REGRDY | (_S_SDE if secure else 0)
        self.power_on()

    def power_on(self) -> None:
        """Take the state after power-on."""
        self._control = 0
        self._data = 0
        self.fault_status = 0
        self._exception_control = 0
        self._reset_seen = True
        self._count_seen = 0

    @property
    def enabled(self) -> bool:
        """Whether a debugger has enabled halting debug."""
        return bool(self._control & C_DEBUGEN)

    @property
    def interrupts_masked(self) -> bool:
        """Whether the debugger holds back PendSV, SysTick and external interrupts."""
        return self.enabled and bool(self._control & C_MASKINTS)

    @property
    def trace_enabled(self) -> bool:
        """DEMCR.TRCENA, without which the DWT stands still."""
        return bool(self._exception_control & TRCENA)

    @property
    def monitor_enabled(self) -> bool:
        """DEMCR.MON_EN."""
        return bool(self._exception_control & MON_EN)

    def catches(self, vector: int) -> bool:
        """Whether the debugger wants a halt for a vector catch bit."""
        return self.enabled and bool(self._exception_control & vector)

    def note_reset(self) -> None:
        """Remember a reset for S_RESET_ST. It takes back C_HALT and C_STEP."""
        self._reset_seen = True
        self._control &= C_DEBUGEN | C_MASKINTS

    def load(self, offset: int) -> int:
        if offset == DHCSR:
            return self._load_status()
        return {DCRDR: self._data, DEMCR: self._exception_control, DFSR: self.fault_status}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == DFSR:
            self.fault_status &= ~value
        elif offset == DCRDR:
            self._data = self._data & ~lanes | value
        elif offset == DEMCR:
            mask = _DEMCR_MASK & lanes
            self._exception_control = self._exception_control & ~mask | value & mask
            self._target.debug_changed()
        elif offset == DHCSR and value >> 16 == _KEY:
            self._control_execution(value)
        elif offset == DCRSR and self._target.halted:
            if value & _REGWNR:
                self._target.write_debug_register(value & _REGNR, self._data)
            else:
                self._data = self._target.read_debug_register(value & _REGNR)

    def _load_status(self) -> int:
        target = self._target
        value = self._control & 0xF | self._always
        value |= target.halted and _S_HALT
        value |= target.sleeping and _S_SLEEP
        value |= target.locked_up and _S_LOCKUP
        value |= (target.count != self._count_seen) and _S_RETIRE_ST
        value |= self._reset_seen and _S_RESET_ST
        self._count_seen = target.count
        self._reset_seen = False
        return value

    def _control_execution(self, value: int) -> None:
        target = self._target
        self._control = value & (C_DEBUGEN | C_HALT | C_STEP | C_MASKINTS)
        if not value & C_DEBUGEN:
            self._control = 0
            target.resume()
        elif value & C_HALT:
            if not target.halted:
                target.halt(DFSR_HALTED)
        elif target.halted and value & C_STEP:
            target.debug_step()
            self._control |= C_HALT
        elif target.halted:
            target.resume()
        target.debug_changed()

    def note_halt(self) -> None:
        """Show C_HALT, which the core sets when it enters Debug state by itself."""
        self._control |= C_HALT
