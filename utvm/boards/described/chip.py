# SPDX-License-Identifier: Apache-2.0
"""Record of a described chip, and the reader of CMSIS-SVD files (1.3.10, "/device/cpu" and "interrupt")."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from utvm.base.storage.config import read_yaml
from utvm.errors import ConfigError

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
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise ConfigError(f"{path}: is not valid XML: {error}", hint) from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
