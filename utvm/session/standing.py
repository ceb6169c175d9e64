# SPDX-License-Identifier: Apache-2.0
"""Where the core of a board stands: whether a program that was started really runs."""

import bisect
import contextlib

from utvm.drivers import Connection
from utvm.errors import BoardError, ProbeError, ToolchainError
from utvm.firmware import Firmware
from utvm.session.fault import ARCHITECTURES
from utvm.session.fault.meaning import Meaning

_HINT = "./inv board.gdb --elf FILE stops it before its first instruction, or where you say"


class HaltedCore:
    """The core of a board, read through its debug port."""

    def __init__(self, connection: Connection) -> None:
        self._bench = connection
        self._names = {name.lower() for name in connection.gdb.register_names}

    def register(self, name: str) -> int:
        """Value of a register; 0 where there is none."""
        if name in self._names:
            with contextlib.suppress(BoardError):
                return self._bench.gdb.read_register(name)
        return 0

    def word(self, address: int) -> int:
        """32 bits of memory; 0 where there is none."""
        try:
            return int.from_bytes(self._bench.read_memory(address, 4), "little")
        except BoardError:
            return 0


def check_core(connection: Connection, image: Firmware) -> str:
    """Look at a core that should run, for a moment in which it is halted, and return where it is."""
    stopped = connection.has_stopped()
    connection.halt()
    core = HaltedCore(connection)
    pc = core.register("pc")
    fault = ARCHITECTURES[connection.board.architecture].standing(core)
    if fault is not None:
        raise BoardError(_told(image, pc, *fault), _HINT)
    if stopped:
        raise BoardError(
            f"the program does not run: the core has halted at {place(image, pc)}",
            "is there a breakpoint instruction? A debugger is connected, so that it halts there",
        )
    connection.gdb.resume()
    return place(image, pc)


def look_at(connection: Connection, image: Firmware) -> str:
    """Return where a core is, in words, or which fault it is in; empty where nobody can look."""
    try:
        return f"the core runs, at {check_core(connection, image)}"
    except BoardError as error:
        return error.message
    except ProbeError:
        return ""


def place(image: Firmware, address: int) -> str:
    """Return an address with its source line, or with the symbol before it, as far as the image has that."""
    with contextlib.suppress(ToolchainError):
        line = image.source_line(address)
        if line and not line.endswith(":?"):  # without debug information it has the name of an object file
            return f"{address:#010x} ({line})"
    code = sorted((at, name) for name, at in image.symbols.items() if not name.startswith("$"))
    index = bisect.bisect_right(code, (address, "\U0010ffff")) - 1
    start, name = code[index] if index >= 0 else (0, "")
    if not name or image.region_of(address) is None or image.region_of(address) != image.region_of(start):
        return f"{address:#010x}"
    return f"{address:#010x} ({name}{f'+{address - start}' if address > start else ''})"


def _told(image: Firmware, pc: int, fault: Meaning, origin: int | None) -> str:
    where = f" at {place(image, origin)}" if origin is not None else ""
    address = f", address {fault.address:#010x}" if fault.address is not None else ""
    flags = f": {'; '.join(fault.flags)}" if fault.flags else ""
    cause = f"the core took a {fault.name}{where}{flags}{address}"
    return f"the program does not run: {cause}; it stands at {place(image, pc)}"
