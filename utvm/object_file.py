# SPDX-License-Identifier: Apache-2.0
"""Giving a compiled object file the contents of its constants, which the compiler was not told."""

from collections.abc import Mapping
from pathlib import Path

from elftools.elf.elffile import ELFFile

from utvm.errors import ToolchainError


def fill(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write constants into an object file.

    Args:
        contents: symbol to its bytes, all of them.

    Raises:
        ToolchainError: the file has no such constant of that size.
    """
    if not contents:
        return
    with path.open("r+b") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        places = {}
        for name, data in contents.items():
            called = table.get_symbol_by_name(name) if table else None  # an object without any symbol has no table
            found = [each for each in called or () if each["st_size"] == len(data)]
            section = elf.get_section(found[0]["st_shndx"]) if len(found) == 1 else None
            if section is None or section["sh_type"] != "SHT_PROGBITS":
                raise ToolchainError(
                    f"the compiler has made no constant {name} of {len(data)} bytes",
                    "which compiler is it? please report it",
                )
            places[name] = section["sh_offset"] + found[0]["st_value"]
        for name, place in places.items():
            file.seek(place)
            file.write(contents[name])
