# SPDX-License-Identifier: Apache-2.0
"""Images for another core are refused, and a core that has stopped is reported as such. Images have a few bytes."""

import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.portions import by_day
from utvm import boards
from utvm.drivers import choose
from utvm.errors import BoardError, ConfigError
from utvm.selection import BoardSelection
from utvm.session import StandaloneRunner
from utvm.session.application import read_elf, read_image
from utvm.session.fault import ARCHITECTURES

# A vector table, and behind it the reset handler and the HardFault handler of an M-profile core.
_SOURCE = """\
.syntax unified
.thumb
.section .isr_vector,"a"
.word {stack}, start, 0, hard
.text
.global start
.type start,%function
.thumb_func
start: {start}
.type hard,%function
.thumb_func
hard: {hard}
.bss
.space {reserved}
"""
_SCRIPT = """\
ENTRY(start) SECTIONS {{
  . = {rom}; .isr_vector : {{ KEEP(*(.isr_vector)) }} .text : {{ *(.text) }}
  . = {ram}; .bss : {{ *(.bss) }} }}
"""
_MEMORY = {
    "stm32f746": ("0x08000000", "0x20010000"),
    "mps2-an500": ("0x00000000", "0x20000000"),
    "lpc": ("0x1a000000", "0x10000000"),
}
_Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> _Build:
    """Return a function that assembles and links an image."""

    def build_image(
        start: str = "b start",
        hard: str = "b hard",
        board: str = "stm32f746",
        options: tuple[str, ...] = (),
        reserved: int = 4,
    ) -> Path:
        rom, ram = _MEMORY[board]
        source = _SOURCE.format(stack=int(ram, 16) + 0x4000, start=start, hard=hard, reserved=reserved)
        (tmp_path / "app.s").write_text(source)
        (tmp_path / "app.ld").write_text(_SCRIPT.format(rom=rom, ram=ram))
        arguments = ("-mcpu=cortex-m7", "-mthumb", "-nostdlib", "-Tapp.ld", "-oapp.elf", *options, "app.s")
        subprocess.run(["arm-none-eabi-gcc", *arguments], cwd=tmp_path, check=True)
        return tmp_path / "app.elf"

    return build_image


def _riscv_image(folder: Path, bits: int, address: int) -> Path:
    abi = {32: "ilp32", 64: "lp64"}[bits]
    (folder / "app.s").write_text(".globl _start\n_start: j _start\n")
    arguments = (f"-march=rv{bits}imac", f"-mabi={abi}", "-nostdlib", "-nostartfiles", f"-Wl,-Ttext={address:#x}")
    subprocess.run(["riscv64-unknown-elf-gcc", *arguments, "-oapp.elf", "app.s"], cwd=folder, check=True)
    return folder / "app.elf"


def test_image_for_riscv_is_refused_by_a_cortex_m7(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_elf(boards.load("stm32f746"), _riscv_image(tmp_path, 32, 0x08000000))
    assert "is for RISCV with 32 bits, little-endian, and stm32f746 has ARM with 32 bits" in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("bits", "fits"), [(32, True), (64, False)])
def test_elf_class_is_compared(tmp_path: Path, bits: int, fits: bool) -> None:
    board = boards.load("riscv-spike")
    elf = _riscv_image(tmp_path, bits, next(region.address for region in board.memory))
    if fits:
        read_elf(board, elf)
        return
    with pytest.raises(ConfigError, match=r"is for RISCV with 64 bits, little-endian, and .* has RISCV"):
        read_elf(board, elf)


def test_big_endian_image_is_refused(build: _Build) -> None:
    with pytest.raises(ConfigError, match="is for ARM with 32 bits, big-endian"):
        read_elf(boards.load("stm32f746"), build(options=("-mbig-endian",)))


def test_image_for_another_address_is_refused(build: _Build) -> None:
    with pytest.raises(ConfigError, match="at 0x10000000, is not in the memory of stm32f746: it was linked"):
        read_elf(boards.load("stm32f746"), build(board="lpc"))


def test_data_for_ram_among_peripherals_are_accepted(build: _Build, tmp_path: Path) -> None:
    """RIOT copies .backup.data into the backup SRAM of the STM32F7 (RM0385, 5.1.3)."""
    build()
    script = (tmp_path / "app.ld").read_text().rstrip().removesuffix("}")
    section = ".backup 0x40024000 : AT(0x08001000) { LONG(1) } }"
    (tmp_path / "app.ld").write_text(script + section)
    arguments = ("-mcpu=cortex-m7", "-mthumb", "-nostdlib", "-Tapp.ld", "-oapp.elf", "app.s")
    subprocess.run(["arm-none-eabi-gcc", *arguments], cwd=tmp_path, check=True)
    assert (0x08001000, b"\1\0\0\0") in read_elf(boards.load("stm32f746"), tmp_path / "app.elf").segments


def test_image_too_large_for_flash_is_refused(build: _Build) -> None:
    elf = build(f"nop\n.space {(1 << 20) + 1000}")
    with pytest.raises(ConfigError, match=r"is 1,020 bytes too large for flash of stm32f746"):
        read_elf(boards.load("stm32f746"), elf)


def test_image_too_large_for_ram_is_refused(build: _Build) -> None:
    # RM0385, 2.2.2: SRAM1 and SRAM2 are adjacent and end at 0x2004FFFF.
    elf = build(reserved=0x20050000 - 0x20010000 + 8)
    with pytest.raises(ConfigError, match=r"is 8 bytes too large for \w+ of stm32f746"):
        read_elf(boards.load("stm32f746"), elf)


def _objcopy(elf: Path, name: str, *options: str) -> Path:
    path = elf.with_name(name)
    subprocess.run(["arm-none-eabi-objcopy", *options, elf, path], check=True)
    return path


def _uf2(folder: Path, data: bytes, family: int) -> Path:
    """Write a UF2 file for the start of flash, by the format's description: blocks of 512 bytes for 256 of data."""
    parts = [data[start : start + 256].ljust(256, b"\xff") for start in range(0, len(data), 256)]
    path = folder / "app.uf2"
    with path.open("wb") as file:
        for number, part in enumerate(parts):
            address = 0x08000000 + 256 * number
            header = struct.pack("<8I", 0x0A324655, 0x9E5D5157, 0x2000, address, 256, number, len(parts), family)
            file.write(header + part.ljust(476, b"\0") + struct.pack("<I", 0x0AB16F30))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("form", ["stripped", "no sections", "hex", "bin", "uf2"])
def test_other_formats_of_an_image_are_flashed(build: _Build, form: str, tmp_path: Path) -> None:
    elf = build(".space 1000\nb .")
    options: tuple[str, ...] = ()
    if form == "stripped":
        file = _objcopy(elf, "app", "--strip-all")
    elif form == "no sections":
        # e_shoff, e_shnum and e_shstrndx of the header (ELF specification, figure 4-3), as sstrip leaves them.
        data = bytearray(elf.read_bytes())
        data[32:36], data[48:52] = bytes(4), bytes(4)
        file = tmp_path / "app"
        file.write_bytes(data)
    elif form == "hex":
        file = _objcopy(elf, "app.hex", "-Oihex")
    else:
        file = _objcopy(elf, "app.bin", "-Obinary")
        options = ("--address", "0x08000000") if form == "bin" else ()
    if form == "uf2":
        file = _uf2(tmp_path, file.read_bytes(), 0x53B80F00)
    completed = inv("firmware.flash", file, "--board", "stm32f746", "--virtual", *options)
    assert completed.returncode == 0, completed.stderr
    # Its entry is behind the vector table; it executes zeros, which do nothing, up to the branch.
    assert "flashed and verified" in completed.stdout and "it runs, at 0x080003f8" in completed.stdout
    assert re.search(r"^flash: 1,\d\d\d of 1,048,576 bytes", completed.stdout, re.MULTILINE)


def _write_damaged(elf: Path, form: str) -> Path:
    folder = elf.parent
    if form in ("checksum", "cut", "twice", "no record"):
        path = _objcopy(elf, "app.hex", "-Oihex")
        lines = path.read_text().splitlines()
        variants = {
            "checksum": [*lines[:1], f"{lines[1][:-2]}{int(lines[1][-2:], 16) ^ 1:02X}", *lines[2:]],
            "cut": lines[:-1],
            "twice": [*lines[:2], *lines[1:]],
            "no record": [lines[0], "hello", *lines[1:]],
        }
        path.write_text("\n".join(variants[form]))
        return path
    path = folder / "app.o" if form == "object" else folder / "app.bin"
    if form in ("object", "archive"):
        subprocess.run(["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-c", "-oapp.o", "app.s"], cwd=folder, check=True)
    if form == "archive":
        subprocess.run(["arm-none-eabi-ar", "rc", "app.a", "app.o"], cwd=folder, check=True)
        return folder / "app.a"
    if form in ("plain", "large", "outside"):
        path.write_bytes(bytes((1 << 20) + 131_209 if form == "large" else 8))
    if form == "family":
        return _uf2(folder, b"x", 0xADA52840)
    if form in ("blocks", "block"):
        path = _uf2(folder, bytes(1000), 0x53B80F00)
        data = path.read_bytes()
        path.write_bytes(data[:-512] if form == "blocks" else data[:-1] + b"x")
    if form == "zip":
        path.write_bytes(b"PK\x03\x04")
    return path


@pytest.mark.parametrize(
    ("form", "message", "address"),
    [
        ("checksum", "line 2 has a wrong checksum", None),
        ("cut", "ends without an Intel HEX end-of-file record", None),
        ("twice", "has two values for address 0x08000000", None),
        ("no record", "line 2 is not a record of Intel HEX", None),
        ("object", "app.o: is an object file, not linked", None),
        ("archive", "app.a: is an archive of object files, not an image", None),
        ("zip", "is a ZIP archive, not an image", None),
        ("plain", "a .bin file does not contain its address", None),
        ("large", "app.bin: is 131,209 bytes too large for flash of stm32f746", 0x08000000),
        ("outside", "8 bytes at 0x00800000, is not in the memory of stm32f746", 0x800000),
        ("object", "--address is for a .bin file", 0x08000000),
        ("family", "is for nRF52840, with cortex-m4, and stm32f746 has cortex-m7", None),
        ("blocks", "ends after 3 blocks of 4", None),
        ("block", "is damaged at byte 1536", None),
    ],
)
def test_incomplete_or_unsuitable_image_is_refused(build: _Build, form: str, message: str, address: int | None) -> None:
    with pytest.raises(ConfigError) as caught:
        read_image(boards.load("stm32f746"), _write_damaged(build(), form), address)
    assert message in caught.value.message


def test_malformed_address_is_refused(build: _Build) -> None:
    completed = inv("firmware.flash", _write_damaged(build(), "plain"), "--board", "stm32f746", "--address=flash")
    assert completed.returncode == 2
    assert "--address flash is not an address" in completed.stderr


@pytest.mark.parametrize(
    ("core", "board", "message"),
    [
        ("-mcpu=cortex-m33", "stm32f746", "is for Armv8-M, and stm32f746 has a cortex-m7"),
        ("-mcpu=cortex-a9", "stm32f746", "is for Arm's A profile, and stm32f746 has a cortex-m7"),
        ("-mcpu=cortex-m4", "stm32vldiscovery", "is for Armv7E-M, and stm32vldiscovery has a cortex-m3"),
        ("-mcpu=cortex-m4", "pynq-z1", "is for Armv7E-M, and pynq-z1:memory=ocm has a cortex-a9"),
        ("-mcpu=cortex-m0plus", "stm32f746", ""),
        ("-mcpu=cortex-m4", "stm32f746", ""),
    ],
)
def test_image_for_another_arm_core_is_refused(build: _Build, core: str, board: str, message: str) -> None:
    elf = build(options=(core,))
    if not message:
        read_elf(boards.load(board), elf)
        return
    with pytest.raises(ConfigError) as caught:
        read_elf(boards.load(board), elf)
    assert message in caught.value.message


def test_process_accepts_no_image(build: _Build) -> None:
    completed = inv("firmware.flash", build(), "--board", "host")
    assert completed.returncode == 2
    assert "host has no debug port" in completed.stderr


_RUNNING = ("b start", "wfi; b start")
_FAULTED = {
    "udf": ("udf #0", "b hard", ("took a HardFault at ", "(start): UNDEFINSTR", "it is at ", "(hard)")),
    "bad address": (
        "ldr r0, =0xfffffff0; ldr r0, [r0]",
        "b hard",
        ("took a HardFault at ", "(start+", "it is at ", "(hard)"),
    ),
}
_HALTED = {
    "lockup": ("udf #0", "udf #1", ("it has locked up at ", "(start): UNDEFINSTR", "it is at 0xfffffffe")),
    "breakpoint": ("bkpt #1", "b hard", ("the core has halted at ", "(start)")),
}


@pytest.mark.slow
@pytest.mark.parametrize("start", _RUNNING)
@pytest.mark.parametrize("board", ["stm32f746", "mps2-an500"])
def test_running_core_is_reported(build: _Build, board: str, start: str) -> None:
    completed = inv("firmware.flash", build(start, board=board), "--board", board, "--virtual")
    assert completed.returncode == 0, completed.stderr
    assert "it runs, at 0x" in completed.stdout
    assert "(start" in completed.stdout


@pytest.mark.slow
@pytest.mark.parametrize("monitor", [(), ("--monitor", "1")])
@pytest.mark.parametrize("board", by_day(["stm32f746", "mps2-an500"], "stm32f746"))
@pytest.mark.parametrize("case", _FAULTED)
def test_core_in_a_fault_is_reported(build: _Build, board: str, case: str, monitor: tuple[str, ...]) -> None:
    start, hard, messages = _FAULTED[case]
    completed = inv("firmware.flash", build(start, hard, board), "--board", board, "--virtual", *monitor)
    assert completed.returncode == 3, completed.stderr
    assert all(message in completed.stderr for message in messages), completed.stderr
    assert "it runs" not in completed.stdout


@pytest.mark.slow
@pytest.mark.parametrize("case", _HALTED)
def test_halted_core_is_reported(build: _Build, case: str) -> None:
    start, hard, messages = _HALTED[case]
    completed = inv("firmware.flash", build(start, hard), "--board", "stm32f746", "--virtual", "--monitor", "1")
    assert completed.returncode == 3, completed.stderr
    assert all(message in completed.stderr for message in messages), completed.stderr


@pytest.mark.slow
def test_core_that_locks_up_ends_qemu(build: _Build) -> None:
    completed = inv("firmware.flash", build("udf #0", "udf #1", "mps2-an500"), "--board", "mps2-an500")
    assert completed.returncode == 3
    assert re.search(r"locked up at 0x000000[0-9a-f]{2}: can't escalate 3 to HardFault", completed.stderr), (
        completed.stderr
    )
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("board", ["stm32f746", "mps2-an500"])
def test_program_without_a_report_is_examined(build: _Build, tmp_path: Path, board: str) -> None:
    description = boards.load(board)
    with choose(description, BoardSelection(kind="virtual")).open(tmp_path / "logs", lambda _: None) as connection:
        image = read_elf(description, build(board=board))
        with pytest.raises(BoardError, match=r"no report within 1 s; the core runs, at 0x\w+ \(start\)") as caught:
            StandaloneRunner(connection, image, timeout=1.0).reset()
        assert "speed" not in str(caught.value)
        image = read_elf(description, build("udf #0", board=board))
        with pytest.raises(BoardError, match=r"took a HardFault at 0x\w+ \(start\): UNDEFINSTR"):
            StandaloneRunner(connection, image, timeout=60.0).reset()


class _Registers:
    """A halted core with given registers, whose memory reads as 0."""

    def __init__(self, **values: int) -> None:
        self._values = values

    def register(self, name: str) -> int:
        return self._values.get(name, 0)

    def word(self, _: int) -> int:
        return 0


# Privileged Architecture, 3.1.6: MPP, bits 12 and 11, has the mode before a trap until mret; MIE is bit 3.
_IN_TRAP, _AFTER_MRET, _INTERRUPTS_ON = 0x1800, 0x80, 0x1808


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"mcause": 2, "mepc": 0x80000000, "mstatus": _IN_TRAP}, "illegal instruction"),
        ({"mcause": 1, "mepc": 0, "mstatus": _IN_TRAP}, "instruction access fault"),
        ({"mcause": 2, "mepc": 0x80000000, "mstatus": _AFTER_MRET}, None),
        ({"mcause": 2, "mepc": 0x80000000, "mstatus": _INTERRUPTS_ON}, None),
        ({"mcause": 11, "mepc": 0x80000000, "mstatus": _IN_TRAP}, None),
        ({"mcause": 0x80000007, "mepc": 0x80000000, "mstatus": _IN_TRAP}, None),
        ({"mstatus": _IN_TRAP}, None),
    ],
)
def test_riscv_trap_is_distinguished_from_a_running_program(values: dict[str, int], name: str | None) -> None:
    fault = ARCHITECTURES["riscv"].current_fault(_Registers(**values))
    assert (fault and fault[0].name) == name


@pytest.mark.parametrize(
    ("mode", "name"), [(0x13, None), (0x17, "prefetch or data abort"), (0x1B, "undefined instruction")]
)
def test_mode_of_cortex_a_names_the_fault(mode: int, name: str | None) -> None:
    """ARM DDI 0406C, table B1-1."""
    fault = ARCHITECTURES["cortex_a"].current_fault(_Registers(cpsr=0x60000000 | mode))
    assert (fault and fault[0].name) == name
