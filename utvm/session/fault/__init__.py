# SPDX-License-Identifier: Apache-2.0
"""Decodes and formats the faults that boards report."""

import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utvm.errors import BoardError
from utvm.session.fault import cortex_a, cortex_m, riscv
from utvm.session.fault.meaning import Architecture, Meaning

_FIRST_SIGNAL = 0x10000  # utvm/runtime/host/port.c


def _meaning(exception: int, _: Sequence[int]) -> Meaning:
    number = exception - _FIRST_SIGNAL
    return Meaning(signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}")


PROCESS = Architecture((), "", "", _meaning)

ARCHITECTURES: Mapping[str, Architecture] = {
    "cortex_a": cortex_a.CORTEX_A,
    "cortex_m": cortex_m.CORTEX_M,
    "host": PROCESS,
    "riscv": riscv.RISCV,
}
"""Architectures by folder name in the runtime."""

_MAGIC = 0x544C5546
_STATUS_WORDS = 6
_REGISTERS = 33
# utvm_fault_t: magic, exception, status, registers_valid, program, step, stack_bytes; stack, registers; words.
_LAYOUT = struct.Struct(f"<II{_STATUS_WORDS}IIIIIQ{_REGISTERS}Q96s")
RECORD_SIZE = _LAYOUT.size
"""Size of ``utvm_fault_t`` in bytes."""

_NONE = 0xFFFFFFFF
_REGISTERS_PER_LINE = 6


@dataclass(frozen=True)
class FaultRecord:
    """The fault handler's record. Addresses and registers are unsigned integers.

    Attributes:
        registers: values by name at the fault; only the stack pointer if the stack itself failed.
        program: index of the running program, or None.
        step: its current step, or None.
        stack: address of the saved part of the stack, of ``stack_bytes`` bytes.
        words: message of a failed assertion; else empty.
        failed: kind of the failure with a message: "assertion" or "accelerator".
    """

    meaning: Meaning
    registers: Mapping[str, int]
    architecture: Architecture
    program: int | None = None
    step: int | None = None
    stack: int = 0
    stack_bytes: int = 0
    words: str = ""
    failed: str = "assertion"

    @classmethod
    def parse(cls, data: bytes, architecture: str) -> "FaultRecord | None":
        """Parse ``utvm_fault_t`` by folder name in the runtime, ignoring later bytes; None without a fault."""
        if len(data) < RECORD_SIZE:
            return None
        magic, exception, *rest = _LAYOUT.unpack_from(data)
        if magic != _MAGIC:
            return None
        core = ARCHITECTURES[architecture]
        status, rest = rest[:_STATUS_WORDS], rest[_STATUS_WORDS:]
        valid, program, step, stack_bytes, stack, *values, text = rest
        registers = {
            key: value for key, value in zip(core.registers, values, strict=False) if valid or key == core.stack_pointer
        }
        return cls(
            core.meaning(exception, status),
            registers,
            core,
            None if program == _NONE else program,
            None if step == _NONE else step,
            stack,
            stack_bytes,
            text.partition(b"\0")[0].decode(errors="replace"),
        )

    @property
    def pc(self) -> int | None:
        """Address of the faulting instruction, if known."""
        return self.registers.get(self.architecture.program_counter)

    @property
    def sp(self) -> int:
        """Stack pointer at the fault."""
        return self.registers[self.architecture.stack_pointer]

    def describe(self, source_line: str) -> str:
        """Format exception, flags, address, source line and registers for a report."""
        meaning = self.meaning
        lines = [f"{self.failed} failed: {self.words}"] if self.words else []
        lines.append(f"the board took a {meaning.name}")
        if not self.architecture.registers:
            return "\n".join([*lines, f"  at {source_line}"] if source_line else lines)
        lines += [f"  {flag}" for flag in meaning.flags]
        if meaning.address is not None:
            lines.append(f"  address {meaning.address:#010x}")
        if self.pc is None:
            lines.append(f"  the stack had failed: sp {self.sp:#010x} is outside it; pc unknown")
        else:
            lines.append(f"  at pc {self.pc:#010x}  {source_line}".rstrip())
            values = [f"{name}={value:#x}" for name, value in self.registers.items()]
            for first in range(0, len(values), _REGISTERS_PER_LINE):
                lines.append("  " + " ".join(values[first : first + _REGISTERS_PER_LINE]))
        lines.append(f"  {meaning.status}")
        return "\n".join(lines)


class DeviceFault(BoardError):
    """The program faulted on the board. The board still works: this is a failure of the program.

    Attributes:
        record: the fault record.
        source_line: location of the fault, as from :meth:`utvm.firmware.Firmware.source_line`.
        running: description of the running model and operator, or empty.
        backtrace: source lines of the callers, innermost first.
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
