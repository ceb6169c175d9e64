"""What a GDB server says about its target in XML: the registers and the memory map.

Source: GDB manual, appendix "Target Descriptions" and section "Memory Map Format".
"""

from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree

_XI_INCLUDE = "{http://www.w3.org/2001/XInclude}include"


class DescriptionError(Exception):
    """XML that is not a target description or a memory map."""


@dataclass(frozen=True)
class Register:
    """A register as the server numbers it."""

    name: str
    number: int
    bits: int

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return (self.bits + 7) // 8


@dataclass(frozen=True)
class FlashArea:
    """A row of flash sectors of one size. Sizes in bytes."""

    start: int
    size: int
    sector: int

    @property
    def end(self) -> int:
        """First address after the area."""
        return self.start + self.size


def parse_registers(document: str, read_annex: Callable[[str], str]) -> tuple[Register, ...]:
    """Return the registers of a target description, by number.

    Args:
        document: ``target.xml``.
        read_annex: fetches a file that the document includes.

    Raises:
        DescriptionError: it cannot be read.
    """
    registers: list[Register] = []
    _collect_registers(_parse(document), read_annex, registers)
    return tuple(sorted(registers, key=lambda register: register.number))


def _collect_registers(
    element: ElementTree.Element, read_annex: Callable[[str], str], registers: list[Register]
) -> None:
    for child in element:
        try:
            if child.tag == _XI_INCLUDE:
                _collect_registers(_parse(read_annex(child.attrib["href"])), read_annex, registers)
            elif child.tag == "reg":
                following = registers[-1].number + 1 if registers else 0
                number = int(child.get("regnum") or following)
                registers.append(Register(child.attrib["name"], number, int(child.attrib["bitsize"])))
            else:
                _collect_registers(child, read_annex, registers)
        except (KeyError, ValueError) as error:
            raise DescriptionError(f"a register without its {error}") from error


def parse_flash(document: str) -> tuple[FlashArea, ...]:
    """Return the flash areas of a memory map, by address.

    Raises:
        DescriptionError: it cannot be read.
    """
    areas: list[FlashArea] = []
    try:
        for memory in _parse(document).iter("memory"):
            if memory.get("type") == "flash":
                sector = next(p.text or "" for p in memory.iter("property") if p.get("name") == "blocksize")
                areas.append(
                    FlashArea(int(memory.attrib["start"], 0), int(memory.attrib["length"], 0), int(sector, 0))
                )
    except (KeyError, ValueError, StopIteration) as error:
        raise DescriptionError(f"a flash area without its numbers: {error}") from error
    return tuple(sorted(areas, key=lambda area: area.start))


def sectors_of(areas: tuple[FlashArea, ...], address: int, size: int) -> tuple[int, int]:
    """Return start and size, in bytes, of the whole sectors that hold a range.

    Raises:
        ValueError: part of the range is not flash; the argument is the first address that is not.
    """
    if size == 0:
        return address, 0
    first = _area_at(areas, address)
    start = first.start + (address - first.start) // first.sector * first.sector
    at = start
    while at < address + size:
        area = _area_at(areas, at)
        sectors_left = -(-(address + size - at) // area.sector)
        at = min(area.end, at + area.sector * sectors_left)
    return start, at - start


def _area_at(areas: tuple[FlashArea, ...], address: int) -> FlashArea:
    for area in areas:
        if area.start <= address < area.end:
            return area
    raise ValueError(address)


def _parse(document: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise DescriptionError(f"not XML: {error}") from error
