# SPDX-License-Identifier: Apache-2.0
"""What a chip's registers (CMSIS-SVD 1.3.10, "/device/cpu" and "interrupt") say of its core and its interrupts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from utvm.base.storage.files import check_readable
from utvm.boards.described.chip import Chip, number
from utvm.errors import ConfigError

_MOST_BYTES = 64 * 1024 * 1024
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
        text = path.read_bytes() if path.stat().st_size <= _MOST_BYTES else b""
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
