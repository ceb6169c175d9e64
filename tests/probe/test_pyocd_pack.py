# SPDX-License-Identifier: Apache-2.0
"""The pack that is created for pyOCD from a board's file: its ELF file and description, as its readers see them.

Format: Open-CMSIS-Pack, "Flash programming" and "Package description (*.pdsc)".
"""

import io
import struct
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from elftools.elf.elffile import ELFFile

from utvm import boards, runtime
from utvm.boards import Board, algorithm_of
from utvm.boards.parts import PyOcdPart
from utvm.errors import ConfigError, ToolchainError
from utvm.probe.pyocd.server import pack_for

_DEVICE = struct.Struct("<H128sHIIIIB3xII")
_PART = PyOcdPart.model_validate(
    {"target": "mine", "algorithm": {"name": "nrf53_nvmc", "numbers": {"nvmc": 0x50039000}}}
)


def _with_algorithm(board: Board) -> Board:
    assert board.physical
    return board.model_copy(update={"physical": board.physical.model_copy(update={"pyocd": _PART})})


def _create_pack(board: Board, folder: Path) -> tuple[ElementTree.Element, ELFFile]:
    path = pack_for(board, _PART, folder)
    assert path
    with zipfile.ZipFile(path) as pack:
        description = ElementTree.fromstring(pack.read(f"utvm.{board.name}.pdsc"))
        algorithm = description.find(".//algorithm")
        assert algorithm is not None
        return description, ELFFile(io.BytesIO(pack.read(algorithm.attrib["name"])))


def test_sectors_are_those_of_the_board(tmp_path: Path) -> None:
    description, elf = _create_pack(_with_algorithm(boards.load("stm32f746")), tmp_path)
    data = elf.get_section_by_name("DevDscr").data()
    values = _DEVICE.unpack_from(data)
    assert values[3:5] == (0x08000000, 0x100000)
    sectors = list(struct.iter_unpack("<II", data[_DEVICE.size :]))
    # RM0385, table 4: four of 32 KiB, one of 128, three of 256
    assert sectors == [(0x8000, 0), (0x20000, 0x20000), (0x40000, 0x40000), (0xFFFFFFFF, 0xFFFFFFFF)]
    rights = {memory.attrib["name"]: memory.attrib["access"] for memory in description.iter("memory")}
    assert rights["flash"] == "rx"
    assert rights["sram1"] == "rwx"


def test_code_is_at_0_without_variables(tmp_path: Path) -> None:
    _, elf = _create_pack(boards.load("nrf5340dk"), tmp_path)
    code = elf.get_section_by_name("PrgCode")
    assert code["sh_addr"] == 0
    assert elf.get_section_by_name("PrgData") is None
    names = {symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
    assert {"Init", "UnInit", "EraseSector", "ProgramPage", "FlashDevice"} <= names


def test_algorithm_with_variables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = boards.load("nrf5340dk")
    algorithm = algorithm_of(board)
    assert algorithm
    source = algorithm.source
    changed = tmp_path / "nrf53_nvmc.c"
    changed.write_text(source.read_text().replace("  allow(", "  static int erased;\n  erased++;\n  allow(", 1))
    monkeypatch.setattr(runtime, "find_shared", lambda *names: changed)
    with pytest.raises(ToolchainError, match="a flash algorithm has no variables"):
        _create_pack(board, tmp_path)


def test_folder_of_a_board_may_have_the_algorithm(tmp_path: Path) -> None:
    known = boards.load("nrf5340dk")
    algorithm = algorithm_of(known)
    assert algorithm
    folder = tmp_path / "nrf5340dk"
    folder.mkdir()
    text = (known.directory / "board.yaml").read_text().replace("name: nrf53_nvmc", "name: mine")
    (folder / "board.yaml").write_text(text)
    with pytest.raises(ConfigError, match="there is none named 'mine'"):
        boards.load(str(folder))
    code = "\nint BlankCheck(uint32_t address, uint32_t size, uint8_t value);\n"
    code += "int BlankCheck(uint32_t address, uint32_t size, uint8_t value) { return address + size == value; }\n"
    (folder / "mine.c").write_text(algorithm.source.read_text() + code)
    board = boards.load(str(folder))
    assert board.physical
    assert board.physical.pyocd
    pack_file = pack_for(board, board.physical.pyocd, tmp_path)
    assert pack_file
    with zipfile.ZipFile(pack_file) as pack:
        elf = ELFFile(io.BytesIO(pack.read("algorithm.FLM")))
    assert "BlankCheck" in {symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()}


def test_board_with_two_flashes_is_refused() -> None:
    board = boards.load("stm32f746")
    flash = board.region("flash")
    second = flash.model_copy(update={"name": "second", "address": 0x90000000})
    with pytest.raises(ConfigError, match="one region of kind flash") as caught:
        algorithm_of(_with_algorithm(board).model_copy(update={"memory": (*board.memory, second)}))
    assert "there are 2" in caught.value.message
