# SPDX-License-Identifier: Apache-2.0
"""Boards from descriptions of chips, in CMSIS packs and for probe-rs: they load, build and parse."""

import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.cli.running import inv
from utvm import boards, firmware
from utvm.boards import described
from utvm.boards.described import families
from utvm.boards.described.chip import ChipMemory
from utvm.compiler import Library
from utvm.drivers import drivers_for
from utvm.errors import ConfigError

# Regions and core of the STM32F407VG: its data sheet (DS8626, figure 18, section 2). Interrupts: RM0090, table 62.
PDSC = """<?xml version="1.0"?>
<package schemaVersion="1.7.2"><devices>
 <family Dfamily="STM32F4 Series" Dvendor="STMicroelectronics:13">
  <processor Dcore="Cortex-M4" Dfpu="SP_FPU" Dmpu="MPU" Dendian="Little-endian"/>
  <subFamily DsubFamily="STM32F407">
   <processor Dclock="168000000"/>
   <debug svd="SVD\\STM32F407.svd"/>
   <device Dname="STM32F407VG">
    <memory id="IROM1" start="0x08000000" size="0x00100000" startup="1" default="1"/>
    <memory id="IRAM1" start="0x20000000" size="0x00020000" init="0" default="1"/>
    <memory id="IRAM2" start="0x10000000" size="0x00010000" init="0" default="0"/>
   </device>
   <device Dname="STM32F407-odd">
    <processor Dcore="Cortex-R5" Dfpu="0"/>
   </device>
   <device Dname="STM32F407-bare"/>
  </subFamily>
 </family></devices></package>
"""
SVD = b"<device><interrupt><name>WWDG</name><value>0</value></interrupt>"
SVD += b"<interrupt><name>FPU</name><value>81</value></interrupt></device>"
_TARGETS = Path(__file__).parent / "targets.yaml"


def _region(name: str, start: int, size: int, *, sector: int = 0, first: bool = False) -> dict[str, object]:
    kind = "flash" if sector else "ram"
    return {"name": name, "start": start, "size": size, "kind": kind, "sector": sector, "first": first}


def _parse(script: Path | str, *commands: str) -> None:
    """Have the real OpenOCD read a script and exit before it opens a probe."""
    words = [word for command in commands for word in ("-c", command)]
    subprocess.run(["openocd", *words, "-f", script, "-c", "shutdown"], check=True, capture_output=True, timeout=60)


@pytest.fixture
def pdsc(tmp_path: Path) -> Path:
    (tmp_path / "SVD").mkdir()
    (tmp_path / "SVD" / "STM32F407.svd").write_bytes(SVD)
    (tmp_path / "some.pdsc").write_text(PDSC)
    return tmp_path / "some.pdsc"


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    shutil.copy(_TARGETS, tmp_path / "some.yaml")
    return tmp_path / "some.yaml"


@pytest.mark.slow
def test_new_board_loads_builds_and_parses(pdsc: Path, tmp_path: Path, doubler: Library) -> None:
    folder = tmp_path / "mine"
    completed = inv("board.new", "--chip", "stm32f407vg", "--from", str(pdsc), "--output", str(folder))
    assert completed.returncode == 0, completed.stderr
    assert "# check: this identifies the core, not the chip" in completed.stdout
    board = boards.load(str(folder))
    assert (board.cpu, board.interrupts, board.line) == ("cortex-m4-fpv4-sp", 82, None)
    assert [(region.address, region.end, region.kind) for region in board.memory] == [
        (0x08000000, 0x08100000, "flash"),
        (0x10000000, 0x10010000, "ram"),
        (0x20000000, 0x20002000, "ram"),
        (0x20002000, 0x20020000, "ram"),
    ]
    assert (board.layout.code, board.layout.stack) == ("irom1", "iram1-stack")
    assert board.physical
    assert board.physical.identity.value == 0xC240
    image = firmware.build(board, [doubler])
    assert image.region_use()["irom1"] > 1000
    assert firmware.build(board, [doubler], "rpc").pipe == "rtt"
    _parse(board.openocd_config)


def test_pack_contains_description_and_registers(pdsc: Path, tmp_path: Path) -> None:
    pack = tmp_path / "some.pack"
    with zipfile.ZipFile(pack, "w") as archive:
        archive.write(pdsc, "Vendor.Some.pdsc")
        archive.writestr("SVD/STM32F407.svd", SVD)
    assert described.find(pack, "STM32F407VG").interrupts == 82
    assert described.names(pack) == described.names(pdsc)


def test_missing_data_of_probe_rs_is_marked(targets: Path, tmp_path: Path) -> None:
    described.write(described.find(targets, "nrf51822_XXAA"), tmp_path / "n51", "cmsis-dap")
    text = (tmp_path / "n51" / "board.yaml").read_text()
    assert [line.split(":")[0] for line in text.splitlines() if "# check" in line] == ["cpu", "interrupts", "  # check"]
    board = boards.load(str(tmp_path / "n51"))
    assert (board.cpu, board.clock_hz, board.interrupts, board.layout.stack_size) == ("cortex-m0", 16000000, 32, 4096)
    assert board.region("flash1").sectors == (8192,) * 32
    _parse(board.openocd_config)


@pytest.mark.parametrize(
    ("cpu", "core"),
    [
        ("<name>CM4</name><fpuPresent>true</fpuPresent>", "cortex-m4-fpv4-sp"),
        ("<name>CM4</name><fpuPresent>0</fpuPresent>", "cortex-m4"),
        ("<name>CM7</name><fpuPresent>1</fpuPresent><fpuDP> true </fpuDP>", "cortex-m7-fpv5-d16"),
        ("<name>CM0PLUS</name><fpuPresent>false</fpuPresent>", "cortex-m0plus"),
        ("<name>SC300</name>", None),
    ],
)
def test_registers_show_core_and_interrupts(targets: Path, tmp_path: Path, cpu: str, core: str | None) -> None:
    (tmp_path / "some.svd").write_bytes(SVD.replace(b"<device>", f"<device><cpu>{cpu}</cpu>".encode()))
    chip = described.find(targets, "nRF51822_xxAA")
    refined = described.refine(chip, tmp_path / "some.svd")
    assert (refined.cpu, refined.sure, refined.interrupts) == (core or chip.cpu, core is not None, 82)
    sure = dataclasses.replace(chip, sure=True)
    assert described.refine(sure, tmp_path / "some.svd").cpu == chip.cpu


def test_an_svd_file_gives_the_peripherals(targets: Path, tmp_path: Path) -> None:
    registers = """<device><name>CHIP</name><size>32</size><resetValue>0</resetValue><peripherals>
      <peripheral><name>TIM2</name><groupName>TIM</groupName><baseAddress>0x40000000</baseAddress>
       <addressBlock><offset>0</offset><size>0x400</size></addressBlock>
       <interrupt><name>TIM2</name><value>28</value></interrupt>
       <registers>
        <register><name>CR</name><addressOffset>0</addressOffset></register>
        <register><name>SR</name><addressOffset>4</addressOffset><access>read-only</access>
         <resetValue>0x1F</resetValue></register>
        <cluster><name>C</name><addressOffset>0x10</addressOffset><dim>2</dim><dimIncrement>8</dimIncrement>
         <register><name>A</name><addressOffset>4</addressOffset><access>write-only</access></register></cluster>
       </registers></peripheral>
      <peripheral derivedFrom="TIM2"><name>TIM3</name><baseAddress>0x40000400</baseAddress>
       <interrupt><name>TIM3</name><value>29</value></interrupt></peripheral>
     </peripherals></device>"""
    (tmp_path / "some.svd").write_text(registers)
    refined = described.refine(described.find(targets, "nRF51822_xxAA"), tmp_path / "some.svd")
    board = described.write(refined, tmp_path / "mine", "cmsis-dap")
    text = "CHIP\nTIM2 40000000 400 TIM 28 0 4=1f:r 14:w 1c:w\nTIM3 40000400 400 TIM 29 @TIM2\n"
    assert board.chip_map.read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [("<a/>", "is not a description of a chip's registers"), ("<", "is not valid XML"), ("", "is empty")],
)
def test_invalid_svd_file_is_refused(targets: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "some.svd").write_text(text)
    completed = inv("board.new", "--chip", "nRF51822_xxAA", "--from", targets, "--svd", tmp_path / "some.svd")
    assert completed.returncode == 2
    assert message in completed.stderr


@pytest.mark.parametrize(
    ("name", "chip", "message"),
    [
        ("some.pdsc", "STM32F999", "describes no chip 'STM32F999'"),
        ("some.pdsc", "", "--chip is missing"),
        ("some.pdsc", "STM32F407-odd", "there is no row for Cortex-R5"),
        ("some.pdsc", "STM32F407-bare", "has too little memory for a board"),
        ("some.yaml", "RV1", "there is no row for riscv"),
        ("some.yaml", "XYZ1", "OpenOCD's target script for it is unknown"),
        ("some.zip", "A", "is not a description of chips"),
        ("none.pdsc", "A", "cannot be read"),
        ("none.yaml", "A", "cannot be read"),
        ("bad.pdsc", "A", "is not valid XML"),
        ("entity.pdsc", "A", "defines XML entities"),
        ("bad.pack", "A", "is not a CMSIS pack"),
        ("bad.yaml", "A", "is not a target file of probe-rs"),
    ],
)
def test_unusable_description_is_refused(
    pdsc: Path, targets: Path, tmp_path: Path, name: str, chip: str, message: str
) -> None:
    for file, text in {
        "bad.pdsc": "<",
        "entity.pdsc": '<!DOCTYPE x [<!ENTITY a "b">]><x/>',
        "bad.pack": "PK",
        "bad.yaml": "a: 1",
    }.items():
        (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError, match=message):
        described.write(described.find(tmp_path / name, chip), tmp_path / "out", "st-link")
    assert not (tmp_path / "out").exists()


def _corrupt(content: bytes, choice: random.Random) -> bytes:
    """Change, remove or insert some bytes, or cut off the end."""
    result = bytearray(content)
    for _ in range(choice.randrange(1, 5)):
        at, size = choice.randrange(len(result)), choice.randrange(1, 40)
        words = (b"", result[at : at + size], b".inf", b"null", b"-1", b"0xffffffff")
        result[at : at + 1] = choice.randbytes(1) if choice.random() < 0.7 else choice.choice(words)
    return bytes(result[: choice.randrange(1, len(result))] if choice.random() < 0.05 else result)


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("name", "chip"), [("some.pdsc", "STM32F407VG"), ("some.pack", "STM32F407VG"),
                                            ("some.yaml", "nRF51822_xxAA")])  # fmt: skip
def test_any_description_gives_a_board_or_one_error(
    pdsc: Path, targets: Path, tmp_path: Path, name: str, chip: str, count: int
) -> None:
    with zipfile.ZipFile(tmp_path / "some.pack", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(pdsc, "Vendor.Some.pdsc")
        archive.writestr("SVD/STM32F407.svd", SVD)
    content, choice, refused = (tmp_path / name).read_bytes(), random.Random(7), 0
    for number in range(count):
        (tmp_path / name).write_bytes(_corrupt(content, choice))
        try:
            described.write(described.find(tmp_path / name, chip), tmp_path / f"made{number}", "st-link")
        except ConfigError:
            refused += 1
    assert refused > count // 10


def test_deeply_nested_devices_are_refused(tmp_path: Path) -> None:
    inside = "<device>" * 5000 + "</device>" * 5000
    (tmp_path / "some.pdsc").write_text(f"<package><devices><family>{inside}</family></devices></package>")
    with pytest.raises(ConfigError, match="describes no chip"):
        described.find(tmp_path / "some.pdsc", "A")


def test_invalid_folder_or_probe_is_refused(pdsc: Path, tmp_path: Path) -> None:
    chip = described.find(pdsc, "STM32F407VG")
    for folder, probe, message in (
        (tmp_path / "Mine!", "st-link", "its name is the board's"),
        (tmp_path / "SVD".lower(), "wires", "--probe wires: is unknown"),
        (tmp_path, "st-link", "its name is the board's|already exists"),
    ):
        with pytest.raises(ConfigError, match=message):
            described.write(chip, folder, probe)


def test_image_has_the_flash_configuration_of_kinetis(targets: Path, tmp_path: Path, doubler: Library) -> None:
    """Sixteen bytes at 0x400 lock a Kinetis, unless FSEC at 0x40C is 0xFE (K64P144M120SF5RM, 29.3.1)."""
    flash = ChipMemory("flash", 0, 0x40000, "flash")
    ram = ChipMemory("ram", 0x1FFFF000, 0x8000, "ram")
    chip = dataclasses.replace(described.find(targets, "nrf51822_XXAA"), name="MKL46Z256", memory=(flash, ram))
    described.write(chip, tmp_path / "kl", "cmsis-dap")
    image = firmware.build(boards.load(str(tmp_path / "kl")), [doubler])
    with image.elf.open("rb") as stream:
        elf = ELFFile(stream)
        vectors, text = elf.get_section_by_name(".vectors"), elf.get_section_by_name(".text")
        assert vectors.data()[0x400:] == b"\xff" * 12 + b"\xfe\xff\xff\xff"
        assert (vectors["sh_addr"], text["sh_addr"]) == (0, 0x410)


def test_image_that_a_boot_rom_rejects_runs_from_ram(targets: Path, tmp_path: Path, doubler: Library) -> None:
    flash = ChipMemory("xip", 0x10000000, 0x200000, "flash")
    ram = ChipMemory("ram", 0x20000000, 0x40000, "ram")
    chip = dataclasses.replace(described.find(targets, "nrf51822_XXAA"), name="RP2040", memory=(flash, ram))
    described.write(chip, tmp_path / "pico", "cmsis-dap")
    board = boards.load(str(tmp_path / "pico"))
    assert board.start.by == "entry"
    use = firmware.build(board, [doubler]).region_use()
    assert use["ram-code"] > 1000
    assert "xip" not in use
    assert [(region.address, region.size) for region in board.memory if region.kind == "ram"] == [
        (0x20000000, 0x2000),
        (0x20002000, 0x1F000),
        (0x20021000, 0x1F000),
    ]


def test_nearest_chip_name_is_listed_first(targets: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        described.find(targets, "xnRF51822_xxAAx")
    assert str(caught.value.hint).startswith("it describes nRF51822_xxAA, ")


@pytest.mark.slow
def test_openocd_reads_every_family_script_with_every_probe() -> None:
    pairs = {(row.script, probe) for row in families() if row.script for probe in row.probes}
    assert len({probe for _, probe in pairs}) == len(described.PROBES)
    for script, name in sorted(pairs):
        probe = described.PROBES[name]
        interface = f"source [find interface/{probe.interface}]"
        _parse(f"target/{script}", interface, f"transport select {probe.transport}")


def test_script_selecting_swd_takes_no_other_probe(targets: Path, tmp_path: Path) -> None:
    chip = dataclasses.replace(described.find(targets, "nRF51822_xxAA"), name="ATSAML11E16A")
    with pytest.raises(ConfigError, match=r"atsaml1x\.cfg takes no st-link") as caught:
        described.write(chip, tmp_path / "l11", "st-link")
    assert "--probe cmsis-dap or jlink" in caught.value.hint
    _parse(described.write(chip, tmp_path / "l11", "jlink").openocd_config)


def test_broken_folder_hides_no_other_board(pdsc: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    described.write(described.find(pdsc, "STM32F407VG"), folder / "whole", "jlink")
    (folder / "broken").mkdir()
    (folder / "broken" / "board.yaml").write_text("name: broken\n")
    completed = inv("board.list", "--board-path", str(folder))
    assert completed.returncode == 0, completed.stderr
    assert "whole" in completed.stdout
    assert "stm32f746" in completed.stdout
    assert "broken: " in completed.stdout


# Data of pyOCD 0.46 for its target stm32f429xg, and chips without a known core.
_PYOCD = {
    "stm32f429xg": {
        "part": "STM32F429xG",
        "memory": [
            _region("flash", 0x08000000, 0x10000, sector=0x4000, first=True),
            _region("flash_1", 0x08010000, 0x10000, sector=0x10000),
            _region("flash_2", 0x08020000, 0xE0000, sector=0x20000),
            _region("ram", 0x20000000, 0x40000),
        ],
        "registers": SVD.decode(),
    },
    "lpc845": {
        "part": "LPC845",
        "memory": [_region("flash", 0, 0x10000, sector=0x400, first=True), _region("ram", 0x10000000, 0x4000)],
        "registers": "",
    },
    "hc32f460xe": {
        "part": "HC32F460xE",
        "memory": [_region("flash", 0, 0x80000, sector=0x2000, first=True), _region("ram", 0x1FFF8000, 0x2F000)],
        "registers": "",
    },
}


def _install_pyocd(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str = "") -> None:
    """Put a pyocd on PATH whose Python prints these targets."""
    folder.mkdir()
    (folder / "targets.json").write_text(json.dumps(_PYOCD))
    program = f"import json, sys; targets = json.load(open({str(folder / 'targets.json')!r})); names = sys.argv[5:]\n"
    program += "print(json.dumps([targets[name] for name in names] if names else sorted(targets)))\n"
    for name, text in (("answer", answer or program), ("pyocd", "")):
        python = sys.executable if name == "answer" else f"{sys.executable} {folder / 'answer'}"
        (folder / name).write_text(f"#!{python}\n{text}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_pyocd_flash_is_one_region_where_sectors_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install_pyocd(tmp_path / "bin", monkeypatch)
    assert described.names(described.PYOCD) == ("hc32f460xe", "lpc845", "stm32f429xg")
    described.write(described.find(described.PYOCD, "STM32F429xG"), tmp_path / "f429", "cmsis-dap")
    board = boards.load(str(tmp_path / "f429"))
    assert (board.cpu, board.interrupts) == ("cortex-m4-fpv4-sp", 82)  # the family's core, the SVD's lines
    flash = board.region("flash")
    assert (flash.size, flash.sectors) == (1024 * 1024, (0x4000,) * 4 + (0x10000,) + (0x20000,) * 7)


def test_unnamed_core_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install_pyocd(tmp_path / "bin", monkeypatch)
    described.write(described.find(described.PYOCD, "lpc845"), tmp_path / "l845", "jlink")
    board = boards.load(str(tmp_path / "l845"))
    assert board.cpu == "cortex-m0"
    assert board.physical
    assert (board.physical.identity.mask, board.physical.identity.value) == (0xFF000000, 0x41000000)
    _parse(board.openocd_config)


def test_chip_without_an_openocd_script_uses_pyocd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doubler: Library
) -> None:
    _install_pyocd(tmp_path / "bin", monkeypatch)
    described.write(described.find(described.PYOCD, "HC32F460xE"), tmp_path / "h460", "cmsis-dap")
    assert not (tmp_path / "h460" / "openocd.cfg").exists()
    board = boards.load(str(tmp_path / "h460"))
    assert board.physical
    assert board.physical.pyocd
    assert (board.physical.driver, board.physical.pyocd.target) == ("pyocd", "hc32f460xe")
    assert [driver.name for driver in drivers_for(board)] == ["pyocd"]
    assert firmware.build(board, [doubler]).region_use()["flash"] > 1000


def test_command_chooses_between_openocd_and_pyocd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install_pyocd(tmp_path / "bin", monkeypatch)
    described.write(described.find(described.PYOCD, "lpc845"), tmp_path / "l845", "cmsis-dap")
    assert [driver.name for driver in drivers_for(boards.load(str(tmp_path / "l845")))] == ["usb", "pyocd"]
    assert [driver.name for driver in drivers_for(boards.load(f"{tmp_path / 'l845'}:driver=pyocd"))] == ["pyocd"]


@pytest.mark.parametrize("answer", ["raise ImportError('no pyocd')", "print('no JSON')"])
def test_broken_pyocd_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    _install_pyocd(tmp_path / "bin", monkeypatch, answer)
    with pytest.raises(ConfigError, match="cannot list its targets"):
        described.names(described.PYOCD)


def test_missing_pyocd_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ConfigError, match="pyOCD is not installed") as caught:
        described.names(described.PYOCD)
    assert "pipx install pyocd" in caught.value.hint
