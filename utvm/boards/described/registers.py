# SPDX-License-Identifier: Apache-2.0
"""The peripherals of an SVD file (CMSIS-SVD 1.3.10), as the text that :mod:`utvm.virtual.blocks` reads."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree.ElementTree import Element

from utvm.base.storage.files import check_readable
from utvm.boards.described.chip import MOST_FILE_BYTES, Chip, add_registers, parse_number, read_xml
from utvm.errors import ConfigError
from utvm.virtual.blocks import RegisterBlock

_ACCESS = {"read-only": "r", "write-only": "w", "writeOnce": "w", "write-once": "w"}
_MOST_REGISTERS = 1 << 16  # Per peripheral.
Registers = dict[int, tuple[int, str]]


@dataclass(frozen=True)
class _Defaults:
    """Properties that registers inherit from the levels above them."""

    size: int = 32
    access: str = ""
    value: int = 0

    def of(self, element: Element) -> "_Defaults":
        size = parse_number(element.findtext("size"))
        value = parse_number(element.findtext("resetValue"))
        access = element.findtext("access")
        return _Defaults(
            size or self.size,
            self.access if access is None else _ACCESS.get(access.strip(), ""),
            self.value if value is None else value,
        )


def refine(chip: Chip, path: Path) -> Chip:
    """Add an SVD file's data: the peripherals, the interrupts, and the core if it was a guess."""
    check_readable(path, "check that the file exists and that you may read it")
    with ConfigError.on_os_error(f"{path}: cannot be read"):
        text = path.read_bytes() if path.stat().st_size <= MOST_FILE_BYTES else b""
    root = read_xml(path, text)
    if root.tag != "device":
        raise ConfigError(f"{path}: is not a description of a chip's registers", "give the chip's .svd")
    chip = add_registers(chip, root)
    return replace(chip, source=f"{chip.source}, {path.name}", peripherals=peripherals_of(root))


def peripherals_of(root: Element) -> str:
    """The text of an SVD file's peripherals; empty if it has none."""
    elements = {(item.findtext("name") or "").strip(): item for item in root.iterfind("peripherals/peripheral")}
    blocks = [block for name in elements if (block := _block(name, elements, _Defaults().of(root)))]
    return text_of(root.findtext("name") or "chip", blocks) if blocks else ""


def _block(name: str, elements: Mapping[str, Element], defaults: _Defaults) -> RegisterBlock | None:
    levels = [elements[name]]
    while (base := elements.get(levels[-1].get("derivedFrom", ""))) is not None and base not in levels:
        levels.append(base)
    for level in reversed(levels):
        defaults = defaults.of(level)
    address = parse_number(levels[0].findtext("baseAddress"))
    if address is None or not name:
        return None
    sizes = (parse_number(level.findtext("addressBlock/size")) for level in levels)
    ends = (
        (parse_number(level.findtext("addressBlock/offset")) or 0) + size
        for level, size in zip(levels, sizes, strict=True)
        if size
    )
    listed = next((listed for level in levels if (listed := level.find("registers")) is not None), None)
    registers: Registers = {}
    for offset, register in [] if listed is None else _expand(listed, 0, defaults):
        _merge(registers, offset, register)
    irqs = sorted({parse_number(value.text) or 0 for value in levels[0].iterfind("interrupt/value")})
    group = next((group for level in levels if (group := (level.findtext("groupName") or "").strip())), name)
    size = max([next(ends, 0), *(offset + 4 for offset in registers)])
    return RegisterBlock(_word(name), address, size, _word(group), tuple(irqs), registers)


def _word(text: str) -> str:
    return re.sub(r"\s+", "_", text.strip())


def _expand(parent: Element, base: int, defaults: _Defaults) -> Iterator[tuple[int, _Defaults]]:
    """Yield the registers of a peripheral or cluster, one for each element of an array."""
    for element in parent:
        if element.tag not in ("register", "cluster"):
            continue
        own = defaults.of(element)
        offset = base + (parse_number(element.findtext("addressOffset")) or 0)
        step = parse_number(element.findtext("dimIncrement")) or 0
        for index in range(min(parse_number(element.findtext("dim")) or 1, _MOST_REGISTERS)):
            if element.tag == "cluster":
                yield from _expand(element, offset + index * step, own)
            else:
                yield offset + index * step, own


def _merge(registers: Registers, offset: int, register: _Defaults) -> None:
    """Add a register, or a part of a word; of two at one place, the first one gives the reset value."""
    word, shift = offset & ~3, 8 * (offset & 3)
    known, access = registers.get(word, (0, register.access))
    if word not in registers or shift:
        known |= register.value << shift & 0xFFFFFFFF
    registers[word] = known, access if access == register.access else ""


def text_of(chip: str, blocks: list[RegisterBlock]) -> str:
    """Format peripherals, in the order of their addresses."""
    lines = [_word(chip)]
    seen: dict[tuple[tuple[int, tuple[int, str]], ...], str] = {}
    for block in sorted(blocks, key=lambda block: block.address):
        key = tuple(sorted(block.registers.items()))
        like = seen.setdefault(key, block.name) if key else block.name
        words = [f"@{like}"] if like != block.name else list(_words(block.registers))
        irqs = ",".join(map(str, block.irqs)) or "-"
        lines.append(" ".join([block.name, f"{block.address:x}", f"{block.size:x}", block.group, irqs, *words]))
    return "\n".join(lines) + "\n"


def _words(registers: Registers) -> Iterator[str]:
    runs: list[tuple[int, int, int, str]] = []
    for offset, (value, access) in sorted(registers.items()):
        if runs and runs[-1][1:] == (offset - 4, value, access):
            runs[-1] = (runs[-1][0], offset, value, access)
        else:
            runs.append((offset, offset, value, access))
    for first, last, value, access in runs:
        span = f"{first:x}" if first == last else f"{first:x}-{last:x}"
        yield span + (f"={value:x}" if value else "") + (f":{access}" if access else "")
