# SPDX-License-Identifier: Apache-2.0
"""Chips as CMSIS packs describe them: Open-CMSIS-Pack specification 1.7, "/package/devices element"."""

import functools
import io
import posixpath
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from xml.etree.ElementTree import Element

from utvm.base.storage.files import UNREADABLE_ZIP
from utvm.boards.described.chip import (
    Chip,
    ChipMemory,
    interrupts_of,
    number,
    part_name,
    read_xml,
    without_overlaps,
)
from utvm.errors import ConfigError

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


_MOST_BYTES = 64 * 1024 * 1024
_HINT = "give a .pdsc, a .pack, or a target file of probe-rs"
# Core, floating-point unit, and the row that is both. A row without a unit runs on a core that has one.
_CPUS: Mapping[tuple[str, str], str] = {
    ("Cortex-M0", ""): "cortex-m0",
    ("Cortex-M0+", ""): "cortex-m0plus",
    ("Cortex-M1", ""): "cortex-m0",
    ("Cortex-M3", ""): "cortex-m3",
    ("Cortex-M4", ""): "cortex-m4",
    ("Cortex-M4", "SP_FPU"): "cortex-m4-fpv4-sp",
    ("Cortex-M7", "SP_FPU"): "cortex-m7-fpv5-sp",
    ("Cortex-M7", "DP_FPU"): "cortex-m7-fpv5-d16",
    ("Cortex-M23", ""): "cortex-m23",
    ("Cortex-M33", ""): "cortex-m33",
    ("Cortex-M33", "SP_FPU"): "cortex-m33-fpv5-sp",
    ("Cortex-M55", "SP_FPU"): "cortex-m55-mve",
    ("Cortex-M55", "DP_FPU"): "cortex-m55-mve",
}
# Cores without a row of their own that run what is made for another, and whose number in CPUID is not that one's.
_LIKE: Mapping[str, str] = {
    "SC000": "Cortex-M0",
    "SC300": "Cortex-M3",
    "Cortex-M35P": "Cortex-M33",
    "Star-MC1": "Cortex-M33",
    "Cortex-M52": "Cortex-M55",
    "Cortex-M85": "Cortex-M55",
}
_WITHOUT_UNIT = ("", "0", "NO_FPU")
_UNITS = {"1": "SP_FPU", "FPU": "SP_FPU"}
_YES = ("1", "true")
_LEVELS = ("subFamily", "device", "variant")


@dataclass(frozen=True)
class _Pack:
    """A description, and how the files of its pack are had: by their names, None where one is missing."""

    path: Path
    text: bytes
    root: Element
    member: Callable[[str], bytes | None]


def read_pack(path: Path) -> Mapping[str, Callable[[], Chip]]:
    """Return what a pack describes, by name. Raises ConfigError."""
    try:
        with zipfile.ZipFile(path) as pack:
            inside = [entry for entry in pack.infolist() if entry.filename.endswith(".pdsc")]
            if len(inside) != 1:
                raise ConfigError(f"{path}: is no CMSIS pack: it has {len(inside)} .pdsc files", _HINT)
            if inside[0].file_size > _MOST_BYTES:
                raise ConfigError(f"{path}: is no CMSIS pack: {inside[0].filename} is too large", _HINT)
            text = pack.read(inside[0])
    except UNREADABLE_ZIP as error:
        raise ConfigError(f"{path}: is no CMSIS pack: {error}", _HINT) from error
    return _read(path, text, functools.partial(_member, path, posixpath.dirname(inside[0].filename)))


def _member(path: Path, folder: str, name: str) -> bytes | None:
    """Return a file of a pack; where it lies is said from its description on."""
    try:
        with zipfile.ZipFile(path) as pack:
            known = {entry.filename.lower(): entry for entry in pack.infolist()}
            entry = known.get(posixpath.join(folder, name).lower())
            return pack.read(entry) if entry and entry.file_size <= _MOST_BYTES else None
    except UNREADABLE_ZIP as error:
        raise ConfigError(f"{path}: {name} in it cannot be read: {error}", "fetch the pack again") from error


def read(path: Path) -> Mapping[str, Callable[[], Chip]]:
    """Return what a pack's description describes, by name. Raises ConfigError."""

    def beside(name: str) -> bytes | None:
        file = path.parent / name
        fits = file.is_file() and file.stat().st_size <= _MOST_BYTES
        return file.read_bytes() if fits and file.resolve().is_relative_to(path.parent.resolve()) else None

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: is too large for a description of chips", _HINT)
        return _read(path, path.read_bytes(), beside)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}", "is the pack there, and yours to read?"
        ) from error


def _read(path: Path, text: bytes, member: Callable[[str], bytes | None]) -> Mapping[str, Callable[[], Chip]]:
    pack = _Pack(path, text, read_xml(path, text), member)
    found = {
        name: functools.partial(_chip, pack, name, levels)
        for family in pack.root.iterfind("devices/family")
        for name, levels in _devices(family, [family])
    }
    if not found:
        raise ConfigError(f"{path}: describes no chips", _HINT)
    return found


def _inside(name: str | None) -> str:
    inside = posixpath.normpath((name or ".").strip().replace("\\", "/"))
    return "" if inside.startswith(("/", ".")) or ":" in inside else inside


def _named(levels: list[Element], element: str, attribute: str) -> list[str]:
    found = (_inside(each.get(attribute)) for level in reversed(levels) for each in level.iterfind(element))
    return [name for name in dict.fromkeys(found) if name]


def _cut(pack: _Pack, levels: list[Element]) -> bytes:
    """Return a pack with what pyOCD takes of it for one chip: description, flash algorithms, registers, terms.

    The same files make the same bytes. Nothing is returned where its algorithms are not at hand.
    """
    algorithms = {name: pack.member(name) for name in _named(levels, "algorithm", "name")}
    if not algorithms or not all(algorithms.values()):
        return b""
    others = (*_named(levels, "debug", "svd"), _inside(pack.root.findtext("license")))
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as whole:
        files = {"described.pdsc": pack.text, **algorithms, **{name: pack.member(name) for name in others}}
        for name, content in files.items():
            if content:
                whole.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def _devices(
    element: Element, above: list[Element], below: Sequence[str] = _LEVELS
) -> Iterator[tuple[str, list[Element]]]:
    """Yield each device or variant, with the elements that it is in, the outermost first."""
    for depth, level in enumerate(below):
        for inner in element.iterfind(level):
            levels = [*above, inner]
            if level != "subFamily" and inner.find("variant") is None:
                yield inner.get("Dvariant") or inner.get("Dname") or "", levels
            yield from _devices(inner, levels, below[depth + 1 :])


def _chip(pack: _Pack, name: str, levels: list[Element]) -> Chip:
    path = pack.path
    core = _processor(levels)
    said = core.get("Dcore", "")
    unit = core.get("Dfpu", "")
    unit = "" if unit in _WITHOUT_UNIT else _UNITS.get(unit, unit)
    like = _LIKE.get(said, said)
    cpu = _CPUS.get((like, unit)) or _CPUS.get((like, ""))
    if cpu is None:
        raise ConfigError(
            f"{path}: {name}: there is no row for {said or 'a core without a name'} {unit}".rstrip(),
            "toolchains/arm-none-eabi.yaml has the rows; docs/porting.md says how to write one",
        )
    if cpu == "cortex-m33" and core.get("Ddsp") == "DSP":
        cpu = "cortex-m33-dsp"
    try:
        memory = without_overlaps([piece for level in reversed(levels) for piece in _memory(level, core)])
    except ValueError as error:
        raise ConfigError(f"{path}: {name}: {error}", "is the description whole?") from error
    algorithms = [pack.member(file) or b"" for file in _named(levels, "algorithm", "name")]
    memory = tuple(_with_sectors(piece, algorithms) if piece.kind == "flash" else piece for piece in memory)
    interrupts = None
    for file in _named(levels, "debug", "svd"):
        if registers := pack.member(file):
            interrupts = interrupts_of(read_xml(path / file, registers))
            break
    target = re.sub(r"[^a-z0-9]+", "_", name.lower())  # as pyOCD calls what a pack has
    cut = functools.partial(_cut, pack, levels)
    return Chip(name, cpu, (said, unit) in _CPUS, memory, interrupts, path.name, target, cut)


def _with_sectors(piece: ChipMemory, algorithms: list[bytes]) -> ChipMemory:
    said = (sectors_of(algorithm, piece) for algorithm in algorithms)
    return replace(piece, sectors=next(filter(None, said), ()))


def _processor(levels: list[Element]) -> dict[str, str]:
    """Return the attributes of the first core: what stands further in counts."""
    named: dict[str, dict[str, str]] = {}
    for element in (element for level in levels for element in level.iterfind("processor")):
        named.setdefault(element.get("Pname", ""), {}).update(element.attrib)
    whole = named.pop("", {})
    return whole | next(iter(named.values()), {})


def _memory(level: Element, processor: Mapping[str, str]) -> Iterator[ChipMemory]:
    """Yield what is memory of the chip's own; raises ValueError where it has no place."""
    for index, element in enumerate(level.iterfind("memory")):
        name = element.get("name") or element.get("id") or f"memory{index}"
        access = element.get("access", "")
        # What shows something else, is a peripheral's, is another core's, or is on another chip.
        if element.get("alias") or "p" in access or element.get("external") in _YES:
            continue
        if element.get("Pname") not in (None, processor.get("Pname")):
            continue
        address, size = number(element.get("start")), number(element.get("size"))
        if address is None or size is None:
            raise ValueError(f"memory {name} has no start or no size that is a number")
        is_flash = "w" not in access if access else name.upper().startswith("IROM")
        yield ChipMemory(
            part_name(name, "memory"),
            address,
            size,
            "flash" if is_flash else "ram",
            first=element.get("startup") in _YES,
        )
