# SPDX-License-Identifier: Apache-2.0
"""Xilinx bitstreams (``.bit``): checked before they are sent to a chip.

A header of fields, each with a letter, a length and a value, precedes the configuration data. Their meaning is
known from tools that read such files.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from utvm import boards, errors
from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import check_readable, open_regular, write_whole

_MAGIC = bytes.fromhex("00090ff00ff00ff00ff0000001")
_SYNC = bytes.fromhex("aa995566")
_FIELDS = {"a": "design", "b": "part", "c": "date", "d": "time"}
_SYNC_WITHIN = 512  # Padding and bus-width words come first.


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


def read_bitstream(path: Path, part: str) -> Bitstream:
    """Read a bitstream and check that it is complete and for a chip, given by its part name."""
    check_readable(path, "--bitstream FILE.bit")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise errors.ConfigError(f"{path}: cannot be read: {error.strerror}") from error
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
        raise errors.ConfigError(f"{path}: has {len(data):,} bytes of data, and its header says {length:,}")
    if header["part"] != part:
        raise errors.ConfigError(f"{path}: is for the chip {header['part']!r}, and this one is {part}")
    if _SYNC not in data[:_SYNC_WITHIN]:
        raise errors.ConfigError(f"{path}: its data starts with no synchronisation word")
    return Bitstream(**header, data=data)


def loaded_bitstream(board: boards.Board) -> str:
    """Return the name of the bitstream loaded last; empty if none was."""
    try:
        with open(_place(board), "rb", opener=open_regular) as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""


def remember_bitstream(board: boards.Board, name: str) -> None:
    place = _place(board)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, os.fsencode(name))
    except OSError as error:
        raise errors.ConfigError(f"{place}: cannot be written: {error.strerror}", "is the disk full?") from error


def _place(board: boards.Board) -> Path:
    return cache_root() / "logic" / board.name
