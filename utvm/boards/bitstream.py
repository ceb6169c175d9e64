# SPDX-License-Identifier: Apache-2.0
"""Xilinx bitstreams (``.bit``): checked before they are sent to a chip.

A header of fields, each with a letter, a length and a value, precedes the configuration data. The format is
known from tools that read it. The chip compares the data's IDCODE with its own, which is that of a die:
the package does not matter (Xilinx UG470, "Device Identification Register").
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from utvm import boards, errors
from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import check_readable, open_regular, write_whole
from utvm.boards.parts import Logic
from utvm.errors import ConfigError

_MAGIC = bytes.fromhex("00090ff00ff00ff00ff0000001")
_SYNC = bytes.fromhex("aa995566")
_FIELDS = {"a": "design", "b": "part", "c": "date", "d": "time"}
_SYNC_WITHIN = 512  # Padding and bus-width words come first.
_IDCODE = bytes.fromhex("30018001")  # Write one word to the register IDCODE (UG470, tables 5-20 and 5-23).
_REVISION = 0xF0000000  # Bits of an IDCODE that the chip does not compare.


@dataclass(frozen=True)
class Bitstream:
    """Header and data of a bitstream; ``design`` is its name, with options after semicolons.

    ``part`` is the chip, without the prefix ``xc`` and the speed grade.
    """

    design: str
    part: str
    date: str
    time: str
    data: bytes


def read_bitstream(path: Path, logic: Logic) -> Bitstream:
    """Read a bitstream and check that it is complete and for a chip's die."""
    check_readable(path, "--bitstream FILE.bit")
    with errors.ConfigError.on_os_error(f"{path}: cannot be read"):
        raw = path.read_bytes()
    if not raw.startswith(_MAGIC):
        raise errors.ConfigError(f"{path}: is not a Xilinx bitstream: wrong magic number")
    header: dict[str, str] = {}
    at = len(_MAGIC)
    for letter, name in _FIELDS.items():
        length = int.from_bytes(raw[at + 1 : at + 3], "big")
        value = raw[at + 3 : at + 3 + length]
        if raw[at : at + 1] != letter.encode() or len(value) != length:
            raise errors.ConfigError(f"{path}: its header is damaged at byte {at}, where its {name} should be")
        header[name] = value.rstrip(b"\0").decode("ascii", "replace")
        at += 3 + length
    length = int.from_bytes(raw[at + 1 : at + 5], "big")
    data = raw[at + 5 :]
    if raw[at : at + 1] != b"e":
        raise errors.ConfigError(f"{path}: its header is damaged at byte {at}, where its data should be")
    if len(data) != length:
        raise ConfigError(f"{path}: has {len(data):,} bytes of data, and its header says {length:,}")
    # Grade and package follow the die.
    if not re.match(rf"(x[acq])?{re.escape(logic.die)}[il]*[a-z]{{2,3}}\d", header["part"]):
        raise ConfigError(f"{path}: is for the chip {header['part']!r}, and this one is {logic.die}")
    if _SYNC not in data[:_SYNC_WITHIN]:
        raise ConfigError(f"{path}: its data does not start with a synchronisation word")
    if (at := data.find(_IDCODE, 0, _SYNC_WITHIN)) >= 0:
        idcode = int.from_bytes(data[at + 4 : at + 8], "big")
        if (idcode ^ logic.idcode) & ~_REVISION:
            raise ConfigError(f"{path}: is for a die with IDCODE {idcode:#010x}, and this one has {logic.idcode:#010x}")
    return Bitstream(**header, data=data)


def loaded_bitstream(board: boards.Board) -> str:
    """Return the name of the bitstream loaded last; empty if none was."""
    try:
        with open(_record_file(board), "rb", opener=open_regular) as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""


def remember_bitstream(board: boards.Board, name: str) -> None:
    file = _record_file(board)
    with errors.ConfigError.on_os_error(f"{file}: cannot be written", "is the disk full?"):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, os.fsencode(name))


def _record_file(board: boards.Board) -> Path:
    return cache_root() / "logic" / board.name
