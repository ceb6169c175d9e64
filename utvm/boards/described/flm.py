# SPDX-License-Identifier: Apache-2.0
"""The erase units of flash, as a pack's algorithm has them (Open-CMSIS-Pack 1.7, "Flash Programming")."""

import io
import struct
from itertools import pairwise

from utvm.boards.described.chip import ChipMemory

# Up to the units: version, name, kind, address, size, page, reserved, erased byte, two timeouts.
_DEVICE = struct.Struct("<H128sHIIIIB3xII")
_UNIT = struct.Struct("<II")
_END = 0xFFFFFFFF
_MOST_KINDS, _MOST_UNITS = 512, 1 << 16


def sectors_of(algorithm: bytes, piece: ChipMemory) -> tuple[int, ...]:
    """Return the units of a piece of flash that an algorithm erases from its beginning to its end; else none."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        elf = ELFFile(io.BytesIO(algorithm))
        symbols = elf.get_section_by_name(".symtab")
        found = symbols.get_symbol_by_name("FlashDevice") if isinstance(symbols, SymbolTableSection) else None
        section = elf.get_section(found[0]["st_shndx"]) if found else None
        if not found or section is None:
            return ()
        held = section.data()[found[0]["st_value"] - section["sh_addr"] :]
        address, size = _DEVICE.unpack_from(held)[3:5]
        kinds = _kinds(held[_DEVICE.size :])
    except (ELFError, struct.error, TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return ()  # Whether it is one is found out by who runs it.
    return _units(kinds, address, size, piece)


def _kinds(held: bytes) -> list[tuple[int, int]]:
    """Return the size of units, and where in the flash the first of them is."""
    kinds: list[tuple[int, int]] = []
    for size, start in _UNIT.iter_unpack(held[: len(held) // _UNIT.size * _UNIT.size]):
        if size == _END or len(kinds) == _MOST_KINDS:
            break
        kinds.append((size, start))
    return kinds


def _units(kinds: list[tuple[int, int]], address: int, size: int, piece: ChipMemory) -> tuple[int, ...]:
    sizes: list[int] = []
    at = piece.address
    for (unit, start), (_, end) in pairwise([*kinds, (0, size)]):
        while unit and address + start <= at < min(address + end, piece.end) and len(sizes) < _MOST_UNITS:
            sizes.append(unit)
            at += unit
    return tuple(sizes) if at == piece.end else ()
