# SPDX-License-Identifier: Apache-2.0
"""Parses a GDB server's XML (GDB manual, appendix "Target Descriptions" and section "Memory Map Format")."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

_XINCLUDE = "http://www.w3.org/2001/XInclude"
_XI_INCLUDE = f"{{{_XINCLUDE}}}include"
_SLOWEST_FLASH_BYTES_PER_SECOND = 16384


class DescriptionError(Exception):
    """XML that is not a target description or a memory map."""


class NotFlashError(Exception):
    """A range to be programmed is not in flash."""


@dataclass(frozen=True)
class Register:
    """A register with the server's number."""

    name: str
    number: int
    bits: int

    @property
    def size(self) -> int:
        return (self.bits + 7) // 8


@dataclass(frozen=True)
class FlashArea:
    """A run of flash sectors of equal size. Sizes in bytes."""

    start: int
    size: int
    sector: int

    @property
    def end(self) -> int:
        return self.start + self.size


def parse_registers(document: str, read_annex: Callable[[str], str]) -> tuple[Register, ...]:
    """Return the registers of ``target.xml``, by number; ``read_annex`` fetches an included file."""
    registers: list[Register] = []
    _collect_registers(_parse(document), read_annex, registers)
    return tuple(sorted(registers, key=lambda register: register.number))


def _collect_registers(element: ElementTree.Element, read_annex: Callable[[str], str], found: list[Register]) -> None:
    for child in element:
        try:
            if child.tag == _XI_INCLUDE:
                _collect_registers(_parse(read_annex(child.attrib["href"])), read_annex, found)
            elif child.tag == "reg":
                following = found[-1].number + 1 if found else 0
                number = int(child.get("regnum") or following)
                found.append(Register(child.attrib["name"], number, int(child.attrib["bitsize"])))
            else:
                _collect_registers(child, read_annex, found)
        except (KeyError, ValueError) as error:
            raise DescriptionError(f"a register without its {error}") from error


def parse_flash(document: str) -> tuple[FlashArea, ...]:
    """Return the flash areas of a memory map, by address."""
    areas: list[FlashArea] = []
    try:
        for memory in _parse(document).iter("memory"):
            if memory.get("type") == "flash":
                sector = next(p.text or "" for p in memory.iter("property") if p.get("name") == "blocksize")
                areas.append(FlashArea(int(memory.attrib["start"], 0), int(memory.attrib["length"], 0), int(sector, 0)))
    except (KeyError, ValueError, StopIteration) as error:
        raise DescriptionError(f"a flash area without its numbers: {error}") from error
    return tuple(sorted(areas, key=lambda area: area.start))


def erase_ranges(areas: tuple[FlashArea, ...], segments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the disjoint ranges of whole sectors that contain the segments, all as address and size in bytes."""
    merged: list[tuple[int, int]] = []
    for address, size in sorted(segment for segment in segments if segment[1]):
        start = _sector_start(areas, address, (address, size))
        end = start
        while end < address + size:
            area = _area_at(areas, end, (address, size))
            sectors = -(-(address + size - end) // area.sector)
            end = min(area.end, end + area.sector * sectors)
        if merged and start <= sum(merged[-1]):
            start, _ = merged.pop()
        merged.append((start, end - start))
    return merged


def _sector_start(areas: tuple[FlashArea, ...], address: int, segment: tuple[int, int]) -> int:
    area = _area_at(areas, address, segment)
    return area.start + (address - area.start) // area.sector * area.sector


def _area_at(areas: tuple[FlashArea, ...], address: int, segment: tuple[int, int]) -> FlashArea:
    for area in areas:
        if area.start <= address < area.end:
            return area
    raise NotFlashError(
        f"segment of {segment[1]} bytes at {segment[0]:#010x} is not all in flash: {address:#010x} is not"
    )


def _parse(document: str) -> ElementTree.Element:
    if "xmlns:xi=" not in document:
        # QEMU 7.2 uses the prefix without declaring it.
        document = document.replace("<target>", f'<target xmlns:xi="{_XINCLUDE}">', 1)
    try:
        return ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise DescriptionError(f"not XML: {error}") from error


def flash_timeout(size: int) -> float:
    """Return a timeout in seconds for a slow probe to erase or program ``size`` bytes of flash."""
    return 20.0 + size / _SLOWEST_FLASH_BYTES_PER_SECOND
