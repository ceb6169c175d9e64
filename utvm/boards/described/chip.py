# SPDX-License-Identifier: Apache-2.0
"""A chip, whoever describes it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from utvm.base.storage.files import check_readable
from utvm.errors import ConfigError

_MOST_SECTORS = 1 << 16
# An eighth of all addresses is what the architecture keeps for a kind of memory, and no memory.
_MOST_BYTES = 1 << 29
# In YAML these are no names.
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True)
class ChipMemory:
    """A piece of a chip's memory.

    Attributes:
        sectors: bytes of each erase unit in the order of addresses; none where that is not said.
        first: whether the core starts there.
    """

    name: str
    address: int
    size: int
    kind: Literal["ram", "flash"]
    sectors: tuple[int, ...] = ()
    first: bool = False

    @property
    def end(self) -> int:
        """The first address after it."""
        return self.address + self.size


@dataclass(frozen=True)
class Chip:
    """What a description says of a chip.

    Attributes:
        cpu: the row of ``toolchains/arm-none-eabi.yaml`` for its core, or the smallest that runs there.
        sure: whether it is that core; if not, the description only says which instructions it has.
        interrupts: lines of its interrupt controller; None where that is not said.
        source: who says so, in words.
        target: its name in pyOCD, where that knows it, or does with the pack that describes it.
        pack: what makes a pack of what pyOCD needs of that pack, if it is at hand.
    """

    name: str
    cpu: str
    sure: bool
    memory: tuple[ChipMemory, ...]
    interrupts: int | None
    source: str
    target: str = ""
    pack: Callable[[], bytes] | None = None


def number(text: str | None) -> int | None:
    """Return what a description has as a number; None where it is none."""
    try:
        return int((text or "").strip(), 0)
    except ValueError:
        return None


def part_name(said: str, otherwise: str) -> str:
    """Return what a piece of memory is called in a board's file, after what a description calls it."""
    name = re.sub(r"[^a-z0-9]+", "-", said.lower()).strip("-")
    return name if name[:1].isalpha() and name not in _WORDS else f"{otherwise}-{name}".rstrip("-")


def units(size: int, sector: int) -> tuple[int, ...]:
    """Return the erase units of so much flash; none where they cannot be these."""
    whole = sector > 0 and size % sector == 0 and size // sector <= _MOST_SECTORS
    return (sector,) * (size // sector) if whole else ()


def without_overlaps(memory: list[ChipMemory]) -> tuple[ChipMemory, ...]:
    """Return pieces in the order of their addresses: of two that overlap or have one name, the one said first."""
    kept: list[ChipMemory] = []
    for piece in memory:
        if 0 < piece.size < _MOST_BYTES and not any(
            (piece.address < other.end and other.address < piece.end) or piece.name == other.name for other in kept
        ):
            kept.append(piece)
    return tuple(sorted(kept, key=lambda piece: piece.address))


def check_words(*said: str) -> None:
    """Refuse what would be more than a word in the files of a board. Raises ConfigError."""
    for words in said:
        if not (words.isprintable() and words.isascii() and len(words) < 200):
            raise ConfigError(
                f"{words[:60]!r} is no name for a chip or its description",
                "printable characters of ASCII make one",
            )


_MOST_SVD_BYTES = 64 * 1024 * 1024
_MOST_LINES = 480  # Of Armv8-M's interrupt controller.
# Core, bits of its floating-point unit, and the row that is both.
_CPUS: Mapping[tuple[str, int], str] = {
    ("CM0", 0): "cortex-m0",
    ("CM0+", 0): "cortex-m0plus",
    ("CM0PLUS", 0): "cortex-m0plus",
    ("CM1", 0): "cortex-m0",
    ("CM3", 0): "cortex-m3",
    ("CM4", 0): "cortex-m4",
    ("CM4", 32): "cortex-m4-fpv4-sp",
    ("CM7", 32): "cortex-m7-fpv5-sp",
    ("CM7", 64): "cortex-m7-fpv5-d16",
    ("CM23", 0): "cortex-m23",
    ("CM33", 0): "cortex-m33",
    ("CM33", 32): "cortex-m33-fpv5-sp",
}


def refine(chip: Chip, path: Path) -> Chip:
    """Return a chip with what the file of its registers says: the core where that was a guess, and its
    interrupts.
    """
    check_readable(path, "name a file on the disk: is it there, and yours to read?")
    try:
        text = path.read_bytes() if path.stat().st_size <= _MOST_SVD_BYTES else b""
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    root = read_xml(path, text)
    if root.tag != "device":
        raise ConfigError(f"{path}: is no description of a chip's registers", "give the chip's .svd")
    return replace(refined(chip, root), source=f"{chip.source}, {path.name}")


def refined(chip: Chip, root: Element) -> Chip:
    """Return a chip with what its registers say."""
    cpu = root.find("cpu")
    if cpu is not None and not chip.sure:
        bits = 0 if not _is(cpu, "fpuPresent") else 64 if _is(cpu, "fpuDP") else 32
        core = _CPUS.get(((cpu.findtext("name") or "").strip(), bits))
        chip = replace(chip, cpu=core or chip.cpu, sure=core is not None)
    lines = interrupts_of(root)
    return replace(chip, interrupts=lines or chip.interrupts)


def _is(cpu: Element, name: str) -> bool:
    return (cpu.findtext(name) or "").strip().lower() in ("1", "true")


def interrupts_of(root: Element) -> int | None:
    """Return the lines that a chip's registers name: one more than the highest."""
    found = (interrupt.findtext("value") for interrupt in root.iter("interrupt"))
    lines = [line for value in found if (line := number(value)) is not None and line < _MOST_LINES]
    return max(lines) + 1 if lines else None


def read_xml(path: Path, text: bytes) -> Element:
    """Return what a description holds, without the namespaces that some write before its words."""
    hint = "is the file whole? give what the chip's maker has published"
    if b"<!ENTITY" in text.replace(b"\0", b""):  # descriptions have none, in UTF-16 neither
        raise ConfigError(f"{path}: defines entities of its own, which descriptions of chips do not", hint)
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise ConfigError(f"{path}: is no XML: {error}", hint) from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
