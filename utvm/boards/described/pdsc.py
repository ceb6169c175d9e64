# SPDX-License-Identifier: Apache-2.0
"""CMSIS packs (Open-CMSIS-Pack 1.7, "/package/devices element" and "Flash Programming")."""

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
from typing import Literal
from xml.etree.ElementTree import Element

from utvm.base.storage.files import UNREADABLE_ZIP
from utvm.boards.described import chip
from utvm.errors import ConfigError

_HINT = "give a .pdsc, a .pack, or a target file of probe-rs"
_FPU_BITS = {"": 0, "0": 0, "NO_FPU": 0, "1": 32, "FPU": 32, "SP_FPU": 32, "DP_FPU": 64}
_YES = ("1", "true")
_LEVELS = ("subFamily", "device", "variant")
# FlashDevice up to its sectors: version, name, kind, address, size, page, reserved, erased byte, two timeouts.
_DEVICE = struct.Struct("<H128sHIIIIB3xII")
_SECTOR = struct.Struct("<II")
_END = 0xFFFFFFFF
_MOST_KINDS, _MOST_SECTORS = 512, 1 << 16


@dataclass(frozen=True)
class _Pack:
    """A description, and a reader of other files of its pack, which returns None for a missing one."""

    path: Path
    text: bytes
    root: Element
    member: Callable[[str], bytes | None]

    def members(self, levels: list[Element], element: str, attribute: str) -> dict[str, bytes | None]:
        """Files that elements name, innermost first."""
        paths = (_normalise(child.get(attribute)) for level in reversed(levels) for child in level.iterfind(element))
        return {path: self.member(path) for path in dict.fromkeys(paths) if path}


def _normalise(name: str | None) -> str:
    path = posixpath.normpath((name or ".").strip().replace("\\", "/"))
    return "" if path.startswith(("/", ".")) or ":" in path else path


def read_pack(path: Path) -> Mapping[str, Callable[[], chip.Chip]]:
    """A reader for each chip of a pack, by name."""
    with ConfigError.on(UNREADABLE_ZIP, f"{path}: is not a CMSIS pack:", _HINT), zipfile.ZipFile(path) as pack:
        entries = [entry for entry in pack.infolist() if entry.filename.endswith(".pdsc")]
        if len(entries) != 1:
            raise ConfigError(f"{path}: is not a CMSIS pack: it has {len(entries)} .pdsc files", _HINT)
        if entries[0].file_size > chip.MOST_FILE_BYTES:
            raise ConfigError(f"{path}: is not a CMSIS pack: {entries[0].filename} is too large", _HINT)
        text = pack.read(entries[0])
    folder = posixpath.dirname(entries[0].filename)

    def member(name: str) -> bytes | None:
        unreadable = ConfigError.on(UNREADABLE_ZIP, f"{path}: cannot read its {name}:", "download the pack again")
        with unreadable, zipfile.ZipFile(path) as pack:
            known = {entry.filename.lower(): entry for entry in pack.infolist()}
            entry = known.get(posixpath.join(folder, name).lower())
            return pack.read(entry) if entry and entry.file_size <= chip.MOST_FILE_BYTES else None

    return _read(path, text, member)


def read(path: Path) -> Mapping[str, Callable[[], chip.Chip]]:
    """A reader for each chip of a pack's description, by name; other files of the pack may be beside it."""

    def member(name: str) -> bytes | None:
        file = path.parent / name
        fits = file.is_file() and file.stat().st_size <= chip.MOST_FILE_BYTES
        return file.read_bytes() if fits and file.resolve().is_relative_to(path.parent.resolve()) else None

    with ConfigError.on_os_error(f"{path}: cannot be read", "check that you may read it"):
        if path.stat().st_size > chip.MOST_FILE_BYTES:
            raise ConfigError(f"{path}: is too large for a description of chips", _HINT)
        return _read(path, path.read_bytes(), member)


def _read(path: Path, text: bytes, member: Callable[[str], bytes | None]) -> Mapping[str, Callable[[], chip.Chip]]:
    pack = _Pack(path, text, chip.read_xml(path, text), member)
    chips = {
        name: functools.partial(_chip, pack, name, levels)
        for family in pack.root.iterfind("devices/family")
        for name, levels in _devices(family, [family])
    }
    if not chips:
        raise ConfigError(f"{path}: describes no chips", _HINT)
    return chips


def _devices(
    element: Element, above: list[Element], below: Sequence[str] = _LEVELS
) -> Iterator[tuple[str, list[Element]]]:
    for depth, level in enumerate(below):
        for inner in element.iterfind(level):
            levels = [*above, inner]
            if level != "subFamily" and inner.find("variant") is None:
                yield inner.get("Dvariant") or inner.get("Dname") or "", levels
            yield from _devices(inner, levels, below[depth + 1 :])


def _chip(pack: _Pack, name: str, levels: list[Element]) -> chip.Chip:
    processor = _processor(levels)
    core, unit = processor.get("Dcore", ""), processor.get("Dfpu", "")
    bits, short = _FPU_BITS.get(unit, -1), core.replace("Cortex-M", "CM")
    rows = chip.CORES["rows"].get(chip.CORES["like"].get(core, short), {})
    cpu = rows.get(bits) or rows.get(0)
    if cpu is None:
        described = f"{core or 'a core without a name'} {unit if bits else ''}".rstrip()
        raise ConfigError(
            f"{pack.path}: {name}: there is no row for {described}",
            "add one to toolchains/arm-none-eabi.yaml, as docs/porting.md explains",
        )
    if cpu == "cortex-m33" and processor.get("Ddsp") == "DSP":
        cpu = "cortex-m33-dsp"
    with ConfigError.on(ValueError, f"{pack.path}: {name}:", "check that the description is complete"):
        memory = chip.without_overlaps(piece for level in reversed(levels) for piece in _memory(level, processor))
    algorithms = pack.members(levels, "algorithm", "name")
    memory = tuple(_with_sectors(piece, algorithms) if piece.kind == "flash" else piece for piece in memory)
    svd = next(((file, data) for file, data in pack.members(levels, "debug", "svd").items() if data), None)
    interrupts = chip.interrupts_of(chip.read_xml(pack.path / svd[0], svd[1])) if svd else None
    target = re.sub(r"[^a-z0-9]+", "_", name.lower())  # pyOCD's name of a target of a pack
    small = functools.partial(_small_pack, pack, levels)
    sure = bits in chip.CORES["rows"].get(short, {})
    return chip.Chip(name, cpu, sure, memory, interrupts, pack.path.name, target, small)


def _small_pack(pack: _Pack, levels: list[Element]) -> bytes:
    """A reproducible pack with the files that pyOCD needs for a chip; empty if an algorithm is missing."""
    algorithms = pack.members(levels, "algorithm", "name")
    if not algorithms or not all(algorithms.values()):
        return b""
    licence = _normalise(pack.root.findtext("license"))
    files = {"described.pdsc": pack.text, **algorithms, **pack.members(levels, "debug", "svd")}
    files[licence] = pack.member(licence)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            if content:
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _processor(levels: list[Element]) -> dict[str, str]:
    """Attributes of the first core; those of inner elements win."""
    cores: dict[str, dict[str, str]] = {}
    for element in (element for level in levels for element in level.iterfind("processor")):
        cores.setdefault(element.get("Pname", ""), {}).update(element.attrib)
    common = cores.pop("", {})
    return common | next(iter(cores.values()), {})


def _memory(level: Element, processor: Mapping[str, str]) -> Iterator[chip.ChipMemory]:
    """Yield the chip's own memories; raises ValueError for one without address or size."""
    for index, element in enumerate(level.iterfind("memory")):
        name = element.get("name") or element.get("id") or f"memory{index}"
        access = element.get("access", "")
        # Skip aliases, peripherals, external memory, and memory of another core.
        if element.get("alias") or "p" in access or element.get("external") in _YES:
            continue
        if element.get("Pname") not in (None, processor.get("Pname")):
            continue
        address, size = chip.parse_number(element.get("start")), chip.parse_number(element.get("size"))
        if address is None or size is None:
            raise ValueError(f"memory {name} has no valid start or size")
        is_flash = "w" not in access if access else name.upper().startswith("IROM")
        kind: Literal["ram", "flash"] = "flash" if is_flash else "ram"
        first = element.get("startup") in _YES
        yield chip.ChipMemory(chip.memory_name(name), address, size, kind, first=first)


def _with_sectors(piece: chip.ChipMemory, algorithms: Mapping[str, bytes | None]) -> chip.ChipMemory:
    sectors = (_sectors(data or b"", piece) for data in algorithms.values())
    return replace(piece, sectors=next(filter(None, sectors), ()))


def _sectors(algorithm: bytes, piece: chip.ChipMemory) -> tuple[int, ...]:
    """Erase units of a whole flash, from an algorithm's ``FlashDevice``; empty if they do not cover it."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        elf = ELFFile(io.BytesIO(algorithm))
        table = elf.get_section_by_name(".symtab")
        symbols = table.get_symbol_by_name("FlashDevice") if isinstance(table, SymbolTableSection) else None
        section = elf.get_section(symbols[0]["st_shndx"]) if symbols else None
        if not symbols or section is None:
            return ()
        data = section.data()[symbols[0]["st_value"] - section["sh_addr"] :]
        address, size = _DEVICE.unpack_from(data)[3:5]
    except (ELFError, struct.error, TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return ()  # pyOCD reports the error when it runs the algorithm.
    kinds: list[tuple[int, int]] = []  # Size of sectors, and offset of the first one.
    data = data[_DEVICE.size :]
    for sector, start in _SECTOR.iter_unpack(data[: len(data) // _SECTOR.size * _SECTOR.size]):
        if sector == _END or len(kinds) == _MOST_KINDS:
            break
        kinds.append((sector, start))
    sizes: list[int] = []
    at = piece.address
    for (sector, start), (_, end) in pairwise([*kinds, (0, size)]):
        while sector and address + start <= at < min(address + end, piece.end) and len(sizes) < _MOST_SECTORS:
            sizes.append(sector)
            at += sector
    return tuple(sizes) if at == piece.end else ()
