# SPDX-License-Identifier: Apache-2.0
"""From a fault record to what a developer wants to know: source line, operator, callers."""

import struct
from dataclasses import replace

from utvm.boards.accelerators import accelerator_of
from utvm.firmware import Firmware
from utvm.firmware.unwind import callers, convention_of
from utvm.session.fault import DeviceFault, FaultRecord

_DEEPEST = 16  # Lines of a guess.


def explain(firmware: Firmware, record: FaultRecord, stack: bytes) -> DeviceFault:
    """Return the error that tells a fault.

    Args:
        stack: what the board keeps with the record: from the exception frame to the stack's end, or a part of it.
            A process sends addresses of code instead, 64 bits each: where the fault happened, then its stack.
    """
    if firmware.accelerator:
        words = accelerator_of(firmware.board).explain(record.words)
        record = replace(record, words=words, failed="assertion" if words == record.words else "accelerator")
    running = _running(firmware, record)
    if not record.stack:
        pc, *places = [address for (address,) in struct.iter_unpack("<Q", stack[: len(stack) & ~7])] or [0]
        # The handler's own calls come before the place of the fault.
        callers_of_it = places[places.index(pc) + 1 :] if pc in places else []
        # A return address is behind its call. What is in the C library has no line.
        backtrace = tuple(line for address in callers_of_it if (line := firmware.source_line(address - 1)))
        return DeviceFault(record, firmware.source_line(pc), running, backtrace)
    if record.pc is None:
        guess = _on_the_stack(firmware, stack)
        return DeviceFault(record, "", running, tuple(f"{line} (found on the stack)" for line in guess))
    addresses = callers(firmware.elf, tuple(record.registers.values()), record.stack, stack)
    lines = tuple(firmware.source_line(address - 1) or f"{address:#010x}" for address in addresses)
    return DeviceFault(record, firmware.source_line(record.pc), running, lines)


def _running(firmware: Firmware, record: FaultRecord) -> str:
    if record.program is None:
        return ""
    if record.program >= len(firmware.programs):
        operators = [entry.function for library in firmware.libraries for entry in library.entry_points]
        called = [f"operator {name}, called by itself" for name in operators]
        called += [f"function {name} of a module" for name in firmware.functions]
        return called[record.step] if record.step is not None and record.step < len(called) else ""
    if record.program >= len(firmware.libraries):
        return firmware.programs[record.program]
    library = firmware.libraries[record.program]
    if record.step is None or record.step >= len(library.calls):
        return f"model {library.name}"
    call = library.calls[record.step]
    return f"model {library.name}, step {record.step} of {len(library.calls)}: {call.function} ({call.kind})"


def _on_the_stack(firmware: Firmware, stack: bytes) -> list[str]:
    """Return the lines of code whose addresses lie on a stack that overflowed, most of them return addresses."""
    convention = convention_of(firmware.elf)
    found: list[str] = []
    for word in convention.words(stack):
        likely = convention.is_return_address(word) and firmware.is_code(word)
        # Whatever the mark of code is, the call is in the two bytes before.
        line = firmware.source_line(word - 2) if likely else ""
        if line and (not found or found[-1] != line):
            found.append(line)
        if len(found) == _DEEPEST:
            break
    return found
