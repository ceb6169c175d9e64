"""A fault that the board reported, decoded for a reader (ARM DDI 0403E, B3.2.15 to B3.2.18).

A board that is a process has signals in place of exceptions.
"""

import signal
import struct
from dataclasses import dataclass

from utvm.errors import BoardError

_MAGIC = 0x544C5546
_WORDS = 29
_TEXT_BYTES = 96
RECORD_SIZE = 4 * _WORDS + _TEXT_BYTES
"""Bytes of ``utvm_fault_t``."""

_NOTHING = 0xFFFFFFFF
_FIRST_SIGNAL = 0x10000

_EXCEPTIONS = {
    2: "NMI",
    3: "HardFault",
    4: "MemManage",
    5: "BusFault",
    6: "UsageFault",
    11: "SVCall",
    12: "DebugMonitor",
    14: "PendSV, the watchdog: it ran for longer than it was allowed to",
    15: "SysTick",
}

_CFSR_FLAGS = {
    0: "IACCVIOL: instruction fetch from a forbidden address",
    1: "DACCVIOL: data access to a forbidden address",
    3: "MUNSTKERR: memory management fault on leaving an exception",
    4: "MSTKERR: memory management fault on entering an exception",
    5: "MLSPERR: memory management fault while saving floating-point state",
    8: "IBUSERR: bus error on an instruction fetch",
    9: "PRECISERR: bus error on a data access, at this instruction",
    10: "IMPRECISERR: bus error on a data access, some instructions ago",
    11: "UNSTKERR: bus error on leaving an exception (stack corrupt?)",
    12: "STKERR: bus error on entering an exception (stack overflow?)",
    13: "LSPERR: bus error while saving floating-point state",
    16: "UNDEFINSTR: undefined instruction",
    17: "INVSTATE: jump to an address that is not Thumb code",
    18: "INVPC: illegal exception return",
    19: "NOCP: coprocessor or floating-point unit is off",
    24: "UNALIGNED: unaligned access",
    25: "DIVBYZERO: division by zero",
}

_MMARVALID, _BFARVALID = 1 << 7, 1 << 15
_HFSR_FLAGS = {
    1: "VECTTBL: vector table could not be read",
    30: "FORCED: escalated from another fault",
    31: "DEBUGEVT: breakpoint instruction without a debugger",
}


@dataclass(frozen=True)
class FaultRecord:
    """What the fault handler kept. Addresses and registers are 32-bit unsigned integers.

    Attributes:
        frame: r0, r1, r2, r3, r12, lr, pc, xpsr as the exception stacked them, or None when the stack itself had
            failed.
        saved: r4 to r11.
        program: index of the program that was running, or None.
        step: the step of it, or None.
        stack: where the part of the stack begins that belongs to the fault.
        stack_bytes: its size.
        words: what an assertion said, or nothing.
    """

    exception: int
    cfsr: int
    hfsr: int
    mmfar: int
    bfar: int
    exc_return: int
    sp: int
    frame: tuple[int, ...] | None
    saved: tuple[int, ...] = (0,) * 8
    program: int | None = None
    step: int | None = None
    stack: int = 0
    stack_bytes: int = 0
    words: str = ""

    @classmethod
    def parse(cls, data: bytes) -> "FaultRecord | None":
        """Read the bytes of ``utvm_fault_t`` (little-endian words); None when no fault is recorded.

        What follows the record is left alone.
        """
        if len(data) < RECORD_SIZE:
            return None
        words = struct.unpack_from(f"<{_WORDS}I", data)
        if words[0] != _MAGIC:
            return None
        exception, cfsr, hfsr, mmfar, bfar, exc_return, sp = words[1:8]
        frame = words[9:17] if words[8] else None
        program, step = (None if number == _NOTHING else number for number in words[25:27])
        text = data[4 * _WORDS : RECORD_SIZE].partition(b"\0")[0].decode(errors="replace")
        registers = (exception, cfsr, hfsr, mmfar, bfar, exc_return, sp)
        return cls(*registers, frame, words[17:25], program, step, words[27], words[28], text)

    @property
    def pc(self) -> int | None:
        """Address of the instruction that faulted, if known."""
        return self.frame[6] if self.frame else None

    @property
    def name(self) -> str:
        """The exception's name in the architecture manual, or the signal's."""
        if self.exception >= _FIRST_SIGNAL:
            number = self.exception - _FIRST_SIGNAL
            return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return _EXCEPTIONS.get(self.exception, f"interrupt {self.exception - 16}")

    @property
    def flags(self) -> tuple[str, ...]:
        """The status bits that are set, each with its meaning."""
        found = [text for bit, text in _CFSR_FLAGS.items() if self.cfsr >> bit & 1]
        found += [text for bit, text in _HFSR_FLAGS.items() if self.hfsr >> bit & 1]
        return tuple(found)

    @property
    def address(self) -> int | None:
        """The data address that faulted, if the core recorded it."""
        if self.cfsr & _BFARVALID:
            return self.bfar
        return self.mmfar if self.cfsr & _MMARVALID else None

    def describe(self, source_line: str) -> str:
        """Return a few lines for a report: exception, flags, address, place and registers."""
        lines = [f"assertion failed: {self.words}"] if self.words else []
        lines.append(f"the board took a {self.name}")
        if self.exception >= _FIRST_SIGNAL:
            return "\n".join([*lines, f"  at {source_line}"] if source_line else lines)
        lines += [f"  {flag}" for flag in self.flags]
        if self.address is not None:
            lines.append(f"  address {self.address:#010x}")
        if self.frame is None:
            lines.append(f"  the stack had failed: sp {self.sp:#010x} is outside it; pc unknown")
        else:
            lines.append(f"  at pc {self.frame[6]:#010x}  {source_line}".rstrip())
            names = ("r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr")
            lines.append("  " + " ".join(f"{n}={v:#x}" for n, v in zip(names, self.frame, strict=True)))
        lines.append(f"  CFSR={self.cfsr:#010x} HFSR={self.hfsr:#010x} EXC_RETURN={self.exc_return:#010x}")
        return "\n".join(lines)


class DeviceFault(BoardError):
    """The program faulted on the board. The board answered: this is the program's failure.

    Attributes:
        record: what the board kept.
        source_line: where it happened, as :meth:`utvm.firmware.Firmware.source_line` gives it.
        running: what was running: a model and its operator, in words; or nothing.
        backtrace: who had called that, the innermost first, as source lines.
    """

    def __init__(
        self, record: FaultRecord, source_line: str, running: str = "", backtrace: tuple[str, ...] = ()
    ) -> None:
        lines = [record.describe(source_line)]
        if running:
            lines.append(f"  running: {running}")
        lines += [f"  called by {place}" for place in backtrace]
        super().__init__("\n".join(lines))
        self.record = record
        self.source_line = source_line
        self.running = running
        self.backtrace = backtrace
