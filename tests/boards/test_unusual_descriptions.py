# SPDX-License-Identifier: Apache-2.0
"""Unusual and invalid descriptions of chips give a board or one clear error."""

import io
import zipfile
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm import boards
from utvm.boards import Board, described
from utvm.errors import ConfigError

_CORE = '<processor Dcore="Cortex-M4" Dfpu="1"/>'
_FLASH = '<memory id="IROM1" start="0x08000000" size="0x10000" startup="true" default="1"/>'
_RAM = '<memory id="IRAM1" start="0x20000000" size="0x8000" default="1"/>'


def _pdsc(folder: Path, device: str, family: str = _CORE, root: str = "package", name: str = "STM32F4XX") -> Path:
    text = f'<{root}><license>LICENSE.txt</license><devices><family Dfamily="F">{family}<device Dname="{name}">'
    (folder / "some.pdsc").write_text(f"{text}{device}</device></family></devices></package>")
    return folder / "some.pdsc"


def _create_board(source: Path, folder: Path, name: str = "STM32F4XX") -> Board:
    return described.write(described.find(source, name), folder / "board", "cmsis-dap")


def _map(board: Board) -> list[tuple[str, int, int]]:
    return [(region.name, region.address, region.size) for region in board.memory]


_USUAL = [("irom1", 0x08000000, 0x10000), ("iram1-stack", 0x20000000, 0x2000), ("iram1", 0x20002000, 0x6000)]


@pytest.mark.parametrize(
    ("device", "family"),
    [
        # Memory by name and access, as in newer descriptions; with memory that is not the chip's own.
        (
            '<memory name="IROM1" access="rx" start="0x08000000" size="0x10000" startup="1"/>'
            '<memory name="IRAM1" access="rwx" start="0x20000000" size="0x8000"/>'
            '<memory name="IRAM1_NS" access="rwxn" start="0x30000000" size="0x8000" alias="IRAM1"/>'
            '<memory name="PERIPH" access="rwp" start="0x40000000" size="0x10000"/>'
            '<memory name="SDRAM" access="rwx" start="0x60000000" size="0x1000000" external="1"/>',
            _CORE,
        ),
        # A device overrides its family.
        (_FLASH + _RAM, _CORE + '<memory id="IRAM1" start="0x30000000" size="0x100000"/>'),
        # A core without a name inherits; of several cores, the first one starts.
        (
            f'<processor Pname="big"/><processor Pname="small" Dcore="Cortex-M0"/>{_FLASH}{_RAM}'
            '<memory Pname="small" id="IRAM2" start="0x10000000" size="0x100"/>',
            _CORE,
        ),
    ],
)
def test_variants_of_a_description_give_the_same_board(tmp_path: Path, device: str, family: str) -> None:
    board = _create_board(_pdsc(tmp_path, device, family), tmp_path)
    assert (_map(board), board.cpu) == (_USUAL, "cortex-m4-fpv4-sp")


def test_xml_namespace_is_ignored(tmp_path: Path) -> None:
    source = _pdsc(tmp_path, _FLASH + _RAM, root='package xmlns="urn:packs"')
    assert _map(_create_board(source, tmp_path)) == _USUAL


@pytest.mark.parametrize(("core", "row"), [('Cortex-M85" Dfpu="DP_FPU', "cortex-m55-mve"), ("SC300", "cortex-m3")])
def test_core_without_a_row_uses_a_compatible_one(tmp_path: Path, core: str, row: str) -> None:
    board = _create_board(
        _pdsc(tmp_path, _FLASH + _RAM, f'<processor Dcore="{core}"/>', name="R7FA8"), tmp_path, "R7FA8"
    )
    assert board.cpu == row
    assert board.physical
    assert board.physical.identity.mask == 0xFF000000
    assert "check: the smallest core" in (tmp_path / "board" / "board.yaml").read_text()


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (_FLASH + '<memory id="IRAM1" size="0x8000"/>', "memory IRAM1 has no valid start or size"),
        (_FLASH + '<memory id="IRAM1" start="0x20000000" size="all"/>', "memory IRAM1 has no valid start or size"),
        (_FLASH + '<memory id="IRAM1" start="0x2000000000" size="0x8000"/>', "is not a valid board"),
        (_RAM, "has too little memory"),
    ],
)
def test_invalid_description_leaves_no_folder(tmp_path: Path, device: str, message: str) -> None:
    source = _pdsc(tmp_path, device)
    completed = inv("board.new", "--chip", "STM32F4XX", "--from", source, "--output", tmp_path / "made")
    assert completed.returncode == 2, completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "made").exists()


def test_pack_is_cut_to_the_files_of_one_chip(tmp_path: Path) -> None:
    (tmp_path / "secret.FLM").write_text("of somebody else")
    files = {"Flash/own.FLM": b"an algorithm", "SVD/own.svd": b"<device/>", "LICENSE.txt": b"terms", "manual.pdf": b"m"}
    device = _FLASH + _RAM + '<debug svd="SVD\\own.svd"/><algorithm name="Flash\\own.FLM" start="0" size="1"/>'
    device += '<algorithm name="..\\secret.FLM" start="0" size="1"/><algorithm name="/etc/passwd"/>'
    folder = tmp_path / "pack"
    folder.mkdir()
    source = _pdsc(folder, device, name="XX32F1")
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "some.pack", "w") as pack:
        pack.write(source, "below/Vendor.pdsc")
        for name, content in files.items():
            pack.writestr(f"below/{name}", content)
    for number, file in enumerate((source, tmp_path / "some.pack")):
        board = described.write(described.find(file, "XX32F1"), tmp_path / f"made{number}", "st-link")
        assert board.by_pyocd
        assert board.physical
        assert board.physical.pyocd
        assert board.physical.pyocd.pack == "chip.pack"
        with zipfile.ZipFile(board.directory / "chip.pack") as cut:
            assert set(cut.namelist()) == {"described.pdsc", *files} - {"manual.pdf"}
            assert cut.read("Flash/own.FLM") == b"an algorithm"
    first, second = ((tmp_path / f"made{number}" / "chip.pack").read_bytes() for number in range(2))
    assert first == second


def test_description_without_its_pack_asks_for_pyocd(tmp_path: Path) -> None:
    source = _pdsc(tmp_path, _FLASH + _RAM + '<algorithm name="Flash/own.FLM"/>', name="XX32 F1")
    completed = inv("board.new", "--chip", "xx32 f1", "--from", source, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "pyocd pack install xx32_f1" in completed.stdout
    assert {file.name for file in (tmp_path / "xx32-f1").iterdir()} == {"board.yaml"}


def _zip(text: str, name: str = "a.pdsc") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as pack:
        # A fixed time: pytest's processes must give the cases the same names.
        pack.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


_LAUGHS = '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><x>&c;</x>'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdsc", _LAUGHS.encode("utf-16"), "defines XML entities"),
        ("a.pdsc", b'<?xml version="1.0" encoding="nonsense"?><package/>', "is not valid XML"),
        ("a.pdsc", "<package>\u00e9</package>".encode("latin-1"), "is not valid XML"),
        ("a.pack", _zip(" " * (80 << 20)), "is too large"),
        ("a.pack", _zip("<package/>")[:60], "is not a CMSIS pack"),
        ("a.pack", _zip("<package/>", "a.txt"), "it has 0 .pdsc files"),
        ("a.yaml", b"variants: [{name: A}]", "the description is incomplete"),
        ("a.yaml", b"\xff\xfe\x00", "is not valid YAML"),
        ("a.yaml", b"a: &a [*a]", "is not a target file of probe-rs"),
        ("a.yaml", b'variants: [{name: "A\\nport: {name: x}"}]', "describes no chip 'A'"),
    ],
)
def test_malformed_file_is_a_clear_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    completed = inv("board.new", "--chip", "A", "--from", tmp_path / name, "--output", tmp_path / "made")
    assert completed.returncode == 2, completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "made").exists()


_VARIANT = """
variants:
- name: {name}
  cores: [{{name: main, type: armv7em, core_access_options: !Arm {{ap: 0}}}}]
  memory_map:
  - !Nvm {{range: {{start: 0x8000000, end: 0x8100000}}, cores: [main], access: {{boot: true}}}}
  - !Generic {{range: {{start: 0x40000000, end: 0x50000000}}, cores: [main]}}
  - !Ram {{name: "{ram}", range: {{start: 0x20000000, end: 0x20010000}}, cores: [main]}}
  flash_algorithms: [one]
flash_algorithms:
- name: one
  flash_properties:
    address_range: {{start: 0x8000000, end: 0x9000000}}
    sectors: [{{size: {size}, address: 0}}]
"""


@pytest.mark.parametrize(("ram", "name"), [("SRAM 1", "sram-12"), ("no", "memory-no2"), ("1e5", "memory-1e52")])
def test_memory_name_becomes_a_valid_name(tmp_path: Path, ram: str, name: str) -> None:
    (tmp_path / "a.yaml").write_text(_VARIANT.format(name="STM32F4A", ram=ram, size="0x4000"))
    board = _create_board(tmp_path / "a.yaml", tmp_path, "STM32F4A")
    assert board.layout.data == name
    assert board.region(board.layout.code).sectors == (0x4000,) * 64


def test_excessive_number_of_sectors_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_VARIANT.format(name="STM32F4A", ram="ram", size="1"))
    board = _create_board(tmp_path / "a.yaml", tmp_path, "STM32F4A")
    assert board.region(board.layout.code).sectors == ()


def test_chip_name_with_line_break_is_refused(tmp_path: Path) -> None:
    name = '"STM32F4\\nmemory: []"'
    (tmp_path / "a.yaml").write_text(_VARIANT.format(name=name, ram="ram", size="1"))
    with pytest.raises(ConfigError, match="is not a valid name for a chip"):
        _create_board(tmp_path / "a.yaml", tmp_path, "STM32F4\nmemory: []")
    (tmp_path / "a.yaml").write_text(_VARIANT.format(name='"STM32F4: #x"', ram="ram", size="1"))
    assert _create_board(tmp_path / "a.yaml", tmp_path, "STM32F4: #x").title.startswith(
        "STM32F4: #x, described by a.yaml"
    )
    assert boards.load(str(tmp_path / "board")).name == "board"


def test_file_may_have_any_printable_name(tmp_path: Path) -> None:
    source = _pdsc(tmp_path, _FLASH + _RAM).rename(tmp_path / 'it\'s: "odd" #1.pdsc')
    assert _create_board(source, tmp_path).title == 'STM32F4XX, described by it\'s: "odd" #1.pdsc'
