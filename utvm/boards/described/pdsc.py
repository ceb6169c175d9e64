# SPDX-License-Identifier: Apache-2.0
"""Chips as CMSIS packs describe them: Open-CMSIS-Pack specification 1.7, "/package/devices element"."""

import functools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from utvm.boards.described.chip import Chip, ChipMemory, number, without_overlaps
from utvm.boards.described.svd import interrupts_of, read_xml
from utvm.errors import ConfigError
from utvm.files import UNREADABLE_ZIP

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
_WITHOUT_UNIT = ("", "0", "NO_FPU")
_UNITS = {"1": "SP_FPU", "FPU": "SP_FPU"}
_LEVELS = ("subFamily", "device", "variant")


def read_pack(path: Path) -> Mapping[str, Callable[[], Chip]]:
    """Return what a pack describes, by name. Raises ConfigError."""
    try:
        with zipfile.ZipFile(path) as pack:
            inside = [entry for entry in pack.infolist() if entry.filename.endswith(".pdsc")]
            if len(inside) != 1 or inside[0].file_size > _MOST_BYTES:
                raise ConfigError(f"{path}: is no CMSIS pack: it has {len(inside)} .pdsc files", _HINT)
            text = pack.read(inside[0])
    except UNREADABLE_ZIP as error:
        raise ConfigError(f"{path}: is no CMSIS pack: {error}", _HINT) from error
    return _read(path, text, functools.partial(_member, path))


def _member(path: Path, name: str) -> bytes | None:
    """Return a file of a pack, whose name may be written as Windows does."""
    try:
        with zipfile.ZipFile(path) as pack:
            known = {entry.filename.lower(): entry for entry in pack.infolist()}
            entry = known.get(name.replace("\\", "/").lower())
            return pack.read(entry) if entry and entry.file_size <= _MOST_BYTES else None
    except UNREADABLE_ZIP as error:
        raise ConfigError(f"{path}: {name} in it cannot be read: {error}", "fetch the pack again") from error


def read(path: Path) -> Mapping[str, Callable[[], Chip]]:
    """Return what a pack's description describes, by name. Raises ConfigError."""

    def beside(name: str) -> bytes | None:
        file = path.parent / name.replace("\\", "/")
        return file.read_bytes() if file.is_file() else None

    try:
        return _read(path, path.read_bytes(), beside)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}", "is the pack there, and yours to read?"
        ) from error


def _read(path: Path, text: bytes, member: Callable[[str], bytes | None]) -> Mapping[str, Callable[[], Chip]]:
    root = read_xml(path, text)
    found = {
        name: functools.partial(_chip, path, name, levels, member)
        for family in root.iterfind("devices/family")
        for name, levels in _devices(family, [family])
    }
    if not found:
        raise ConfigError(f"{path}: describes no chips", _HINT)
    return found


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


def _chip(path: Path, name: str, levels: list[Element], member: Callable[[str], bytes | None]) -> Chip:
    core = _processor(levels)
    unit = core.get("Dfpu", "")
    unit = "" if unit in _WITHOUT_UNIT else _UNITS.get(unit, unit)
    cpu = _CPUS.get((core.get("Dcore", ""), unit)) or _CPUS.get((core.get("Dcore", ""), ""))
    if cpu is None:
        raise ConfigError(
            f"{path}: {name}: there is no row for {core.get('Dcore') or 'a core without a name'} {unit}".rstrip(),
            "toolchains/arm-none-eabi.yaml has the rows; docs/porting.md says how to write one",
        )
    if cpu == "cortex-m33" and core.get("Ddsp") == "DSP":
        cpu = "cortex-m33-dsp"
    sure = (core.get("Dcore", ""), unit) in _CPUS
    memory = without_overlaps([piece for level in reversed(levels) for piece in _memory(level, core.get("Pname"))])
    files = [file for level in reversed(levels) for debug in level.iterfind("debug") if (file := debug.get("svd"))]
    registers = member(files[0]) if files else None
    interrupts = interrupts_of(read_xml(path, registers)) if registers else None
    return Chip(name, cpu, sure, memory, interrupts, path.name, name.lower())


def _processor(levels: list[Element]) -> dict[str, str]:
    """Return the attributes of the first core: what stands further in counts."""
    named: dict[str, dict[str, str]] = {}
    for element in (element for level in levels for element in level.iterfind("processor")):
        named.setdefault(element.get("Pname", ""), {}).update(element.attrib)
    whole = named.pop("", {})
    return whole | next(iter(named.values()), {})


def _memory(level: Element, core: str | None) -> Iterator[ChipMemory]:
    for index, element in enumerate(level.iterfind("memory")):
        if element.get("Pname") not in (None, core):
            continue
        name = element.get("name") or element.get("id") or f"memory{index}"
        access = element.get("access", "")
        is_flash = "w" not in access if access else name.upper().startswith("IROM")
        yield ChipMemory(
            re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or f"memory{index}",
            number(element.get("start")),
            number(element.get("size")),
            "flash" if is_flash else "ram",
            first=element.get("startup") == "1",
        )
