# SPDX-License-Identifier: Apache-2.0
"""Images that are not ELF files: Intel HEX, UF2 and plain binaries."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm.boards import Board
from utvm.errors import ConfigError
from utvm.firmware.image import Firmware, Section

Blocks = tuple[tuple[int, bytes], ...]

_UF2 = struct.Struct("<8I476sI")
_UF2_START = b"UF2\n\x57\x51\x5d\x9e"
_UF2_END = 0x0AB16F30
_NOT_MAIN, _IS_FILE, _HAS_FAMILY = 0x1, 0x1000, 0x2000

# Families of UF2 files (uf2families.json of the format's repository), and their cores as toolchains name them.
_FAMILIES = Path(__file__).with_name("uf2_families.json")


@dataclass(frozen=True)
class BlockImage(Firmware):
    """An image of blocks, without symbols; ``elf`` is its file."""

    blocks: Blocks = ()

    @property
    def sections(self) -> tuple[Section, ...]:
        return tuple(Section("block", address, len(data), address, False) for address, data in self.blocks)

    @property
    def segments(self) -> Blocks:
        return self.blocks

    @property
    def symbols(self) -> dict[str, int]:
        return {}

    @property
    def entry_registers(self) -> dict[str, int]:
        """Registers that start the image: from the vector table on a Cortex-M, else the first address."""
        first, data = self.blocks[0]
        if self.board.architecture != "cortex_m":
            return {"pc": first}
        sp, pc = struct.unpack_from("<II", data.ljust(8, b"\0"))
        return {"sp": sp, "pc": pc & ~1}

    def source_line(self, address: int) -> str:
        return ""


def read_blocks(path: Path, board: Board, address: int | None) -> Blocks | None:
    """Return the blocks of an image by ascending address, or None if the file has none of these formats.

    Args:
        address: load address of a plain binary.

    Raises ConfigError if the file is damaged, for another core, or has no address.
    """
    raw = path.read_bytes()
    plain = path.suffix.lower() == ".bin" and not raw.startswith(b"\x7fELF")
    if address is not None:
        if not plain:
            raise ConfigError(f"{path}: --address is for a .bin file", "other files contain their addresses")
        if not raw:
            raise ConfigError(f"{path}: is empty", "did the build finish?")
        return ((address, raw),)
    if raw.startswith(_UF2_START[:4]):
        return _join(path, _read_uf2(path, raw, board))
    if raw[:1] == b":" and all(letter in b"0123456789ABCDEFabcdef" for letter in raw[1:9]):
        return _join(path, _read_hex(path, raw))
    if plain:
        start = board.region(board.layout.code).address
        raise ConfigError(
            f"{path}: a .bin file does not contain its address", f"give it, such as --address {start:#010x}"
        )
    return None


def _join(path: Path, parts: Iterator[tuple[int, bytes]]) -> Blocks:
    blocks: list[tuple[int, bytearray]] = []
    for address, data in sorted(parts):
        end = blocks[-1][0] + len(blocks[-1][1]) if blocks else 0
        if address < end:
            raise ConfigError(f"{path}: has two values for address {address:#010x}", "build it again")
        if blocks and address == end:
            blocks[-1][1].extend(data)
        else:
            blocks.append((address, bytearray(data)))
    if not blocks:
        raise ConfigError(f"{path}: has nothing that can be loaded", "did the build finish?")
    return tuple((address, bytes(data)) for address, data in blocks)


def _read_hex(path: Path, raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the data of an Intel HEX file (Intel, Hexadecimal Object File Format Specification, revision A)."""
    base, kind = 0, -1
    for number, line in enumerate(raw.split(), 1):
        where = f"{path}: line {number}"
        try:
            record = bytes.fromhex(line[1:].decode("ascii")) if line[:1] == b":" else b""
        except ValueError:
            record = b""
        if len(record) < 5 or len(record) != record[0] + 5:
            raise ConfigError(f"{where} is not a record of Intel HEX", "copy or build it again")
        if sum(record) & 0xFF:
            raise ConfigError(f"{where} has a wrong checksum", "copy or build it again")
        offset, kind, data = int.from_bytes(record[1:3], "big"), record[3], record[4:-1]
        if kind == 0 and data:
            yield base + offset, data
        elif kind == 1:
            return
        elif kind in (2, 4):  # Segment, or upper half of the address.
            base = int.from_bytes(data, "big") << (4 if kind == 2 else 16)
    raise ConfigError(f"{path}: ends without an Intel HEX end-of-file record", "copy or build it again")


def _read_uf2(path: Path, raw: bytes, board: Board) -> Iterator[tuple[int, bytes]]:
    """Yield the data of a UF2 file (github.com/microsoft/uf2, "File format")."""
    count = blocks = 0
    families = json.loads(_FAMILIES.read_text("utf-8"))
    for at in range(0, len(raw) - _UF2.size + 1, _UF2.size):
        *_, flags, address, size, _, blocks, family, data, end = _UF2.unpack_from(raw, at)
        if not raw.startswith(_UF2_START, at) or end != _UF2_END or size > len(data):
            raise ConfigError(f"{path}: is damaged at byte {at}", "copy or build it again")
        name, needed = families.get(f"0x{family:08X}", ("", "")) if flags & _HAS_FAMILY else ("", "")
        if needed and not f"{board.cpu}-".startswith(f"{needed}-"):
            raise ConfigError(
                f"{path}: is for {name}, with {needed}, and {board.full_name} has {board.cpu}",
                "build it for this board, or give --board for the other",
            )
        count += 1
        if not flags & (_NOT_MAIN | _IS_FILE):
            yield address, data[:size]
    if len(raw) % _UF2.size or count != blocks:
        raise ConfigError(f"{path}: ends after {count} blocks of {blocks}", "copy or build it again")
