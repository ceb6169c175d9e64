# SPDX-License-Identifier: Apache-2.0
"""Object files: filling in constants that the compiler did not get, and the target core."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from utvm.errors import ToolchainError

_RISCV_FLOAT_ABI = 0x6
# Tag_CPU_arch of Arm's ABI for ELF ("Addenda to, and Errata in, the ABI for the Arm Architecture", 3.3.5): which
# code runs on which core. Levels 7 to 10 mean Thumb of profile M.
_RUNS_ON = {
    11: {11, 12},  # Armv6-M
    12: {11, 12},
    13: {10, 11, 12, 13},  # Armv7E-M
    16: {11, 12, 16},  # Armv8-M, baseline and mainline
    17: {10, 11, 12, 13, 16, 17},
    21: {10, 11, 12, 13, 16, 17, 21},  # Armv8.1-M
}
_ARMV7 = 10


@dataclass(frozen=True)
class ObjectCore:
    """The core that an ELF file is built for.

    Attributes:
        machine: ``EM_ARM``...
        float_abi: whether floats are passed in floating-point registers; on RISC-V, which ABI.
        level: ``Tag_CPU_arch``; 0 if missing.
    """

    machine: str
    bits: int
    float_abi: int = 0
    level: int = 0
    profile: str = ""
    fpu: bool = False

    def misfit(self, board: "ObjectCore") -> str:
        """Return why code for this core does not run on a board's core; empty if it does."""
        if (self.machine, self.bits) != (board.machine, board.bits):
            return f"{self._name}, and the board's is {board._name}"
        if self.float_abi != board.float_abi:
            return f"its floats go through {self._floats}, and the board's through {board._floats}"
        if self.fpu and not board.fpu:
            return "it needs a floating-point unit, and the board has none"
        profiles = {self.profile, board.profile} - {"", "\0"}
        runs = _RUNS_ON.get(board.level, {11, 12, _ARMV7} if board.profile == "M" else set(range(_ARMV7 + 1)))
        if self.level and board.level and (len(profiles) > 1 or self.level not in runs):
            return f"its instructions are of architecture {self._level}, the board's of {board._level}"
        return ""

    @property
    def _name(self) -> str:
        return f"{self.machine.removeprefix('EM_')} with {self.bits} bits"

    @property
    def _floats(self) -> str:
        return "registers of an FPU" if self.float_abi else "those of integers"

    @property
    def _level(self) -> str:
        return f"{self.level}{'-' if self.profile else ''}{self.profile} (Tag_CPU_arch)"


def core_of(elf: ELFFile) -> ObjectCore:
    machine, bits = str(elf["e_machine"]), int(elf.elfclass)
    if machine == "EM_RISCV":
        return ObjectCore(machine, bits, elf["e_flags"] & _RISCV_FLOAT_ABI)
    output = elf.get_section_by_name(".ARM.attributes") if machine == "EM_ARM" else None
    if output is None:
        return ObjectCore(machine, bits)
    values = {
        attribute.tag: attribute.value
        for part in output.iter_subsections()
        for file in part.iter_subsubsections()
        if file.header.tag == "TAG_FILE"
        for attribute in file.iter_attributes()
    }
    return ObjectCore(
        machine,
        bits,
        values.get("TAG_ABI_VFP_ARGS", 0),
        values.get("TAG_CPU_ARCH", 0),
        chr(values.get("TAG_CPU_ARCH_PROFILE", 0)).strip("\0"),
        bool(values.get("TAG_FP_ARCH", 0)),
    )


def defined_names(elf: ELFFile) -> dict[str, str]:
    """Return the global names that an object defines, with their kinds: ``STT_FUNC``, ``STT_OBJECT``..."""
    table = elf.get_section_by_name(".symtab")
    return {
        symbol.name: str(symbol["st_info"]["type"])
        for symbol in (table.iter_symbols() if table else ())
        if symbol["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK") and symbol["st_shndx"] != "SHN_UNDEF"
    }


def undefined_names(elf: ELFFile) -> set[str]:
    table = elf.get_section_by_name(".symtab")
    symbols = table.iter_symbols() if table else ()
    return {symbol.name for symbol in symbols if symbol.name and symbol["st_shndx"] == "SHN_UNDEF"}


def fill(path: Path, contents: Mapping[str, bytes]) -> None:
    if not contents:
        return
    with path.open("r+b") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        places = {}
        for name, data in contents.items():
            symbols = table.get_symbol_by_name(name) if table else None  # an object without symbols has no table
            matches = [symbol for symbol in symbols or () if symbol["st_size"] == len(data)]
            section = elf.get_section(matches[0]["st_shndx"]) if len(matches) == 1 else None
            if section is None or section["sh_type"] != "SHT_PROGBITS":
                raise ToolchainError(
                    f"the compiler created no constant {name} of {len(data)} bytes",
                    "please report this, with the compiler's name and version",
                )
            places[name] = section["sh_offset"] + matches[0]["st_value"]
        for name, place in places.items():
            file.seek(place)
            file.write(contents[name])
