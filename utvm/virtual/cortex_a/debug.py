# SPDX-License-Identifier: Apache-2.0
"""The debug registers of a Cortex-A9, and the instructions that a debugger issues: ARM DDI 0406C, C6 and C11.

Breakpoints match an address or, for steps, any other address. Registers of watchpoints and vector catch have no
effect. The caller holds the machine's lock.
"""

from collections.abc import Callable

from utvm.virtual.bus import Bus, BusError
from utvm.virtual.cortex_a.cpu import HALT_REQUEST, THUMB, CortexA9, Register
from utvm.virtual.jtag.core import BUT, EXECUTE, LOAD, STORE

# Registers by their offset (table C11-1)
_DIDR, _DTRRX, _ITR, _DSCR, _DTRTX, _DRCR = 0x000, 0x080, 0x084, 0x088, 0x08C, 0x090
_BVR, _BCR, _WVR = 0x100, 0x140, 0x180
_OSLSR, _PRSR = 0x304, 0x314
_LSR, _AUTHSTATUS = 0xFB4, 0xFB8
_BREAKPOINTS = 6
# DIDR: four watchpoints, six breakpoints, two of them for contexts, version 7, no PC sampling
_FEATURES = 3 << 28 | (_BREAKPOINTS - 1) << 24 | 1 << 20 | 3 << 16 | 0x5030
# Identification registers of coprocessor 15: from MIDR and from ID_PFR0 on (C11.10.1)
_IDENTIFICATION = {0xD00 + 4 * n: (0, 0, 0, n) for n in range(8)} | {
    0xD20 + 4 * n: (0, 0, 1 + n // 8, n % 8) for n in range(16)
}

# DSCR (C11.11.20)
_HALTED, _RESTARTED = 1 << 0, 1 << 1
_ABORTED, _UNDEFINED = 1 << 6, 1 << 8
_EXECUTES, _HALTING = 1 << 13, 1 << 14
_WRITABLE = 0x003CFC00
_FAST = 2
_COMPLETE = 1 << 24
_TX, _RX = 1 << 29 | 1 << 26, 1 << 30 | 1 << 27  # each with its latched copy

# BCR (C11.11.2)
_ENABLED, _MISMATCH, _KIND = 1 << 0, 4 << 20, 7 << 20

Instruction = Callable[[int], None]


class DebugUnit:
    """Debug registers of a core."""

    def __init__(self, cpu: CortexA9, bus: Bus) -> None:
        self._cpu = cpu
        self._core = cpu.core
        self._bus = bus
        self._registers: dict[int, int] = {}
        self._control = 0
        self._sticky = 0
        self._latched = 0
        self._to_debugger = self._to_core = 0
        self._full = 0  # _TX, _RX
        # Mask and value of an opcode, and its function; the first match counts.
        self._instructions: tuple[tuple[int, int, Instruction], ...] = (
            (0xFFFF0FFF, 0xEE000E15, self._send),
            (0xFFFF0FFF, 0xEE100E15, self._receive),
            (0xFFF0FFFF, 0xECB05E01, self._load_and_send),
            (0xFFF0FFFF, 0xECA05E01, self._receive_and_store),
            (0xFF100F10, 0xEE100F10, self._read_cp15),
            (0xFF100F10, 0xEE000F10, self._write_cp15),
            (0xFFBF0FFF, 0xE10F0000, self._read_status),
            (0xFFB0FFF0, 0xE120F000, self._write_status),
            (0xFFFF0FFF, 0xE1A0000F, lambda op: self._set(op, self._core.pc + self._pc_offset)),
            (0xFFFFFFF0, 0xE1A0F000, lambda op: self._jump(self._core.read_r(op & 15) & ~1)),
            (0xFFFFFFF0, 0xE12FFF10, lambda op: self._exchange(self._core.read_r(op & 15))),
            (0xFFFF0FFF, 0xEEF10A10, lambda op: self._set(op, self._core.fpscr)),
            (0xFFFF0FFF, 0xEEE10A10, self._write_fpscr),
            (0xFFE00FD0, 0xEC400B10, self._move_double),
            (0xFE000000, 0xE4000000, lambda op: self._access(op, 1 if op >> 22 & 1 else 4, op & 0xFFF)),
            (0xFE4000F0, 0xE04000B0, lambda op: self._access(op, 2, op >> 4 & 0xF0 | op & 15)),
            (0xFFFFFF00, 0xF57FF000, lambda op: None),  # barriers
            (0xFFFFFFFF, 0xE320F000, lambda op: None),  # NOP
        )

    def read(self, offset: int) -> int:
        """Read a register; missing ones read as 0."""
        if offset == _DTRTX:
            value = self._to_debugger
            self._full &= ~_TX
            if self._is_fast:
                self._execute(self._latched)
            return value
        if offset in _IDENTIFICATION:
            return self._core.read_cp15(_IDENTIFICATION[offset]) or 0
        fixed = {
            _DIDR: _FEATURES,
            _DSCR: self._status,
            _PRSR: 1 | self._cpu.halted << 4,  # powered
            _AUTHSTATUS: 0xFF,
        }
        return fixed[offset] if offset in fixed else self._registers.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        if offset == _ITR:
            # In fast mode, each access to the data registers executes it.
            self._latched = value
            if not self._is_fast:
                self._execute(value)
        elif offset == _DTRRX:
            self._to_core = value
            self._full |= _RX
            if self._is_fast:
                self._execute(self._latched)
        elif offset == _DSCR:
            self._control = value & _WRITABLE
            self._cpu.halts_at_bkpt = bool(value & _HALTING)
            self._set_breakpoints()
        elif offset == _DRCR:
            self._request(value)
        elif offset not in (_DTRTX, _OSLSR, _PRSR, _LSR):
            self._registers[offset] = value
            if _BVR <= offset < _WVR:
                self._set_breakpoints()

    @property
    def _is_fast(self) -> bool:
        return self._control >> 20 & 3 == _FAST

    @property
    def _status(self) -> int:
        state = _HALTED if self._cpu.halted else 0
        return self._control | state | _RESTARTED | self._cpu.entry << 2 | self._sticky | self._full | _COMPLETE

    def _request(self, value: int) -> None:
        if value & 4:
            self._sticky = 0
        if value & 2 and self._cpu.halted:
            self._cpu.resume()
        if value & 1:
            self._cpu.halt(HALT_REQUEST)

    def _set_breakpoints(self) -> None:
        triggers = []
        for number in range(_BREAKPOINTS):
            control, address = (self._registers.get(base + 4 * number, 0) for base in (_BCR, _BVR))
            bytes_of_word = control >> 5 & 15
            if control & _ENABLED and control & _KIND in (0, _MISMATCH) and bytes_of_word:
                # Byte address select: one half of a word.
                start = address & ~3 | (2 if bytes_of_word & 3 == 0 else 0)
                triggers.append((start, BUT if control & _MISMATCH else EXECUTE))
        self._core.set_triggers(triggers if self._control & _HALTING else [])

    def _execute(self, op: int) -> None:
        if not self._cpu.halted or not self._control & _EXECUTES or self._sticky:
            return
        for mask, value, run in self._instructions:
            if op & mask == value:
                run(op)
                return
        self._sticky |= _UNDEFINED

    def _set(self, op: int, value: int) -> None:
        self._core.write_r(op >> 12 & 15, value)

    @property
    def _pc_offset(self) -> int:
        return 4 if self._core.cpsr & THUMB else 8

    def _send(self, op: int) -> None:
        self._to_debugger = self._core.read_r(op >> 12 & 15)
        self._full |= _TX

    def _receive(self, op: int) -> None:
        self._full &= ~_RX
        self._set(op, self._to_core)

    def _load_and_send(self, op: int) -> None:
        value = self._access_memory(op, 4)
        if value is not None:
            self._to_debugger = value
            self._full |= _TX

    def _receive_and_store(self, op: int) -> None:
        self._full &= ~_RX
        self._access_memory(op, 4, self._to_core)

    def _read_cp15(self, op: int) -> None:
        value = self._core.read_cp15(_register_of(op))
        if value is None:
            self._sticky |= _UNDEFINED
        else:
            self._set(op, value)

    def _write_cp15(self, op: int) -> None:
        if not self._core.write_cp15(_register_of(op), self._core.read_r(op >> 12 & 15)):
            self._sticky |= _UNDEFINED

    def _read_status(self, op: int) -> None:
        self._set(op, self._core.spsr if op >> 22 & 1 else self._core.cpsr)

    def _write_status(self, op: int) -> None:
        value, lanes = self._core.read_r(op & 15), sum(0xFF << 8 * n for n in range(4) if op >> 16 + n & 1)
        if op >> 22 & 1:
            self._core.spsr = self._core.spsr & ~lanes | value & lanes
        else:
            self._core.cpsr = self._core.cpsr & ~lanes | value & lanes

    def _jump(self, address: int) -> None:
        self._core.pc = address
        self._cpu.parked = False

    def _exchange(self, address: int) -> None:
        self._core.cpsr = self._core.cpsr & ~THUMB | (THUMB if address & 1 else 0)
        self._jump(address & ~1)

    def _write_fpscr(self, op: int) -> None:
        self._core.fpscr = self._core.read_r(op >> 12 & 15)

    def _move_double(self, op: int) -> None:
        low, high, number = op >> 12 & 15, op >> 16 & 15, op >> 1 & 16 | op & 15
        if op >> 20 & 1:
            value = self._core.read_d(number)
            self._core.write_r(low, value)
            self._core.write_r(high, value >> 32)
        else:
            self._core.write_d(number, self._core.read_r(low) | self._core.read_r(high) << 32)

    def _access(self, op: int, size: int, step: int) -> None:
        if op >> 20 & 1:
            value = self._access_memory(op, size, step=step)
            if value is not None:
                self._set(op, value)
        else:
            self._access_memory(op, size, self._core.read_r(op >> 12 & 15), step)

    def _access_memory(self, op: int, size: int, value: int | None = None, step: int = 4) -> int | None:
        """Read or write memory at Rn and increment Rn. On failure, set a sticky bit and return None."""
        base = op >> 16 & 15
        address = self._core.read_r(base)
        try:
            physical = self._core.physical(address, LOAD if value is None else STORE)
            if physical is None:
                raise BusError(address)
            if value is None:
                result = int.from_bytes(self._bus.read(physical, size), "little")
            else:
                self._bus.write(physical, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))
                result = 0
        except BusError:
            self._sticky |= _ABORTED
            return None
        self._core.write_r(base, address + (step if op >> 23 & 1 else -step))
        return result


def _register_of(op: int) -> Register:
    return op >> 21 & 7, op >> 16 & 15, op & 15, op >> 5 & 7
