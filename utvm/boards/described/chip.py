# SPDX-License-Identifier: Apache-2.0
"""Record of a described chip, and the reader of CMSIS-SVD files (1.3.10).

Of an SVD file it takes the core, the interrupts, and the registers as the text that :mod:`utvm.virtual.blocks` reads.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from utvm.base.storage.config import read_yaml
from utvm.base.storage.files import check_readable
from utvm.errors import ConfigError
from utvm.virtual.blocks import RegisterBlock

MOST_FILE_BYTES = 64 * 1024 * 1024
"""Size limit of a description."""
_MOST_SECTORS = 1 << 16
_MOST_BYTES = 1 << 29  # An eighth of the addresses is an area of the architecture, not a memory.
_MOST_LINES = 480  # Of Armv8-M's interrupt controller.
_YAML_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
CORES: dict[str, Any] = read_yaml(Path(__file__).with_name("cpus.yaml"))[0]
"""Tables of cores: toolchain rows, equals, part numbers, and instruction sets."""


@dataclass(frozen=True)
class ChipMemory:
    """A memory of a chip; the core starts in the ``first``. Erase units are in address order, empty if unknown."""

    name: str
    address: int
    size: int
    kind: Literal["ram", "flash"]
    sectors: tuple[int, ...] = ()
    first: bool = False

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(frozen=True)
class Chip:
    """A described chip.

    Attributes:
        cpu: row of ``toolchains/arm-none-eabi.yaml``.
        sure: True if the core is that one; otherwise ``cpu`` is the smallest one whose code runs there.
        interrupts: lines of the interrupt controller; None if unknown.
        source: name of the description.
        target: name in pyOCD, if known to it or by the pack.
        pack: makes a small pack with the parts that pyOCD needs, if available.
        peripherals: text of its peripherals (:mod:`utvm.virtual.blocks`), if an SVD file has them.
    """

    name: str
    cpu: str
    sure: bool
    memory: tuple[ChipMemory, ...]
    interrupts: int | None
    source: str
    target: str = ""
    pack: Callable[[], bytes] | None = None
    peripherals: str = ""


def parse_number(text: str | None) -> int | None:
    """Parse a number of a description; None if it is not one."""
    try:
        return int((text or "").strip(), 0)
    except ValueError:
        return None


def memory_name(text: str) -> str:
    """Make a name for ``board.yaml`` from a description's name of a memory."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if name[:1].isalpha() and name not in _YAML_WORDS else f"memory-{name}".rstrip("-")


def split_sectors(size: int, sector: int) -> tuple[int, ...]:
    """Equal erase units of a flash; empty if they cannot fill it."""
    fits = sector > 0 and size % sector == 0 and size // sector <= _MOST_SECTORS
    return (sector,) * (size // sector) if fits else ()


def without_overlaps(memory: Iterable[ChipMemory]) -> tuple[ChipMemory, ...]:
    """Sort memories by address; of two that overlap or share a name, the first one listed wins."""
    result: list[ChipMemory] = []
    for piece in memory:
        if 0 < piece.size < _MOST_BYTES and not any(
            (piece.address < other.end and other.address < piece.end) or piece.name == other.name for other in result
        ):
            result.append(piece)
    return tuple(sorted(result, key=lambda piece: piece.address))


def check_words(*texts: str) -> None:
    """Refuse texts that are unsafe in the files of a board."""
    for text in texts:
        if not (text.isprintable() and text.isascii() and len(text) < 200):
            raise ConfigError(
                f"{text[:60]!r} is not a valid name for a chip or its description", "use printable ASCII characters"
            )


def add_registers(chip: Chip, root: Element) -> Chip:
    """Add the interrupts of an SVD file's root, and the core if it was a guess."""
    cpu = root.find("cpu")
    if cpu is not None and not chip.sure:
        bits = 0 if not _is_set(cpu, "fpuPresent") else 64 if _is_set(cpu, "fpuDP") else 32
        core = CORES["rows"].get((cpu.findtext("name") or "").strip().replace("PLUS", "+"), {}).get(bits)
        chip = replace(chip, cpu=core or chip.cpu, sure=core is not None)
    return replace(chip, interrupts=interrupts_of(root) or chip.interrupts)


def _is_set(cpu: Element, name: str) -> bool:
    return (cpu.findtext(name) or "").strip().lower() in ("1", "true")


def interrupts_of(root: Element) -> int | None:
    """Number of interrupt lines: one more than the highest in an SVD file."""
    numbers = (parse_number(interrupt.findtext("value")) for interrupt in root.iter("interrupt"))
    lines = [number for number in numbers if number is not None and number < _MOST_LINES]
    return max(lines) + 1 if lines else None


def read_xml(path: Path, text: bytes) -> Element:
    """Parse XML, without namespaces and entities."""
    hint = "give the complete file, as the chip's maker published it"
    if b"<!ENTITY" in text.replace(b"\0", b""):  # in UTF-16, too
        raise ConfigError(f"{path}: defines XML entities, which are not supported", hint)
    with ConfigError.on((ElementTree.ParseError, LookupError, ValueError), f"{path}: is not valid XML:", hint):
        root = ElementTree.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


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
