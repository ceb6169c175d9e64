# SPDX-License-Identifier: Apache-2.0
"""Explains fault records: source line, operator, callers."""

import bisect
import contextlib
import struct
from dataclasses import replace

from utvm import drivers, errors
from utvm.boards.accelerators import accelerator_of
from utvm.firmware import Firmware
from utvm.firmware.image import callers, convention_of
from utvm.session.fault import ARCHITECTURES, DeviceFault, FaultRecord
from utvm.session.fault.meaning import Meaning

_MAX_GUESSES = 16  # Maximum number of lines in a guessed backtrace.


def explain(firmware: Firmware, record: FaultRecord, stack: bytes) -> DeviceFault:
    """Return the error that describes a fault.

    ``stack`` was saved with the record: from the exception frame to the stack's end, or truncated. A process sends
    64-bit code addresses instead: the faulting one, then its call stack.
    """
    if firmware.accelerator:
        words = accelerator_of(firmware.board).explain(record.words)
        record = replace(record, words=words, failed="assertion" if words == record.words else "accelerator")
    running = _running(firmware, record)
    if not record.stack:
        pc, *addresses = [address for (address,) in struct.iter_unpack("<Q", stack[: len(stack) & ~7])] or [0]
        # The fault handler's own frames precede the faulting address.
        return_addresses = addresses[addresses.index(pc) + 1 :] if pc in addresses else []
        # A return address follows its call. Code of the C library has no line.
        backtrace = tuple(line for address in return_addresses if (line := firmware.source_line(address - 1)))
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
        functions = [f"operator {name}, called by itself" for name in operators]
        functions += [f"function {name} of a module" for name in firmware.functions]
        return functions[record.step] if record.step is not None and record.step < len(functions) else ""
    if record.program >= len(firmware.libraries):
        return firmware.programs[record.program]
    library = firmware.libraries[record.program]
    if record.step is None or record.step >= len(library.calls):
        return f"model {library.name}"
    call = library.calls[record.step]
    return f"model {library.name}, step {record.step} of {len(library.calls)}: {call.function} ({call.kind})"


def _on_the_stack(firmware: Firmware, stack: bytes) -> list[str]:
    """Return the source lines of all code addresses on an overflowed stack, most of them return addresses."""
    convention = convention_of(firmware.elf)
    names: list[str] = []
    for word in convention.words(stack):
        likely = convention.is_return_address(word) and firmware.is_code(word)
        # With or without the Thumb bit, the call is in the two bytes before.
        line = firmware.source_line(word - 2) if likely else ""
        if line and (not names or names[-1] != line):
            names.append(line)
        if len(names) == _MAX_GUESSES:
            break
    return names


_HINT = "./inv board.gdb --elf FILE stops it before its first instruction, or at a breakpoint"


class HaltedCore:
    """A halted core, read through its debug port."""

    def __init__(self, connection: drivers.Connection) -> None:
        self._connection = connection
        self._names = {name.lower() for name in connection.gdb.register_names}

    def register(self, name: str) -> int:
        """Return the value of a register; 0 if it does not exist or cannot be read."""
        if name in self._names:
            with contextlib.suppress(errors.BoardError):
                return self._connection.gdb.read_register(name)
        return 0

    def word(self, address: int) -> int:
        """Read 32 bits of memory; 0 if they cannot be read."""
        try:
            return int.from_bytes(self._connection.read_memory(address, 4), "little")
        except errors.BoardError:
            return 0


def check_core(connection: drivers.Connection, image: Firmware) -> str:
    """Halt a core that should run, resume it and return its position. Raises BoardError if it faulted or had halted."""
    stopped = connection.has_stopped()
    connection.halt()
    core = HaltedCore(connection)
    pc = core.register("pc")
    fault = ARCHITECTURES[connection.board.architecture].current_fault(core)
    if fault is not None:
        raise errors.BoardError(_describe_fault(image, pc, *fault), _HINT)
    if stopped:
        raise errors.BoardError(
            f"the program does not run: the core has halted at {format_address(image, pc)}",
            "is there a breakpoint instruction? A debugger is connected, so that it halts there",
        )
    connection.gdb.resume()
    return format_address(image, pc)


def describe_core(connection: drivers.Connection, image: Firmware) -> str:
    """Describe the position of a core, or its fault; empty if it cannot be read."""
    try:
        return f"the core runs, at {check_core(connection, image)}"
    except errors.BoardError as error:
        return error.message
    except errors.ProbeError:
        return ""


def format_address(image: Firmware, address: int) -> str:
    """Format an address with its source line or else with the preceding symbol, if known."""
    with contextlib.suppress(errors.ToolchainError):
        line = image.source_line(address)
        if line and not line.endswith(":?"):  # Without debug information, the line names an object file.
            return f"{address:#010x} ({line})"
    code = sorted((at, name) for name, at in image.symbols.items() if not name.startswith("$"))
    index = bisect.bisect_right(code, (address, "\U0010ffff")) - 1
    start, name = code[index] if index >= 0 else (0, "")
    if not name or image.region_of(address) is None or image.region_of(address) != image.region_of(start):
        return f"{address:#010x}"
    return f"{address:#010x} ({name}{f'+{address - start}' if address > start else ''})"


def _describe_fault(image: Firmware, pc: int, fault: Meaning, origin: int | None) -> str:
    location = f" at {format_address(image, origin)}" if origin is not None else ""
    address = f", address {fault.address:#010x}" if fault.address is not None else ""
    flags = f": {'; '.join(fault.flags)}" if fault.flags else ""
    cause = f"the core took a {fault.name}{location}{flags}{address}"
    return f"the program does not run: {cause}; it is at {format_address(image, pc)}"
