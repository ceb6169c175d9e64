# SPDX-License-Identifier: Apache-2.0
"""Damaged ELF, Intel HEX and UF2 files are read or refused, and nothing outside of the memory is loaded."""

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utvm import boards
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.session.application import read_elf, read_image

_BOARD = boards.load("stm32f746")
_SOURCE = "int given = 5; volatile int seen; void start(void) { seen = given; for (;;) {} }"
_SCRIPT = """\
MEMORY { rom (rx) : ORIGIN = 0x08000000, LENGTH = 64K  ram (rw) : ORIGIN = 0x20010000, LENGTH = 64K }
ENTRY(start)
SECTIONS { .text : { *(.text*) } > rom .data : { *(.data*) } > ram AT > rom .bss : { *(.bss*) } > ram }
"""


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An undamaged image, built by the board's own compiler."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "app.c").write_text(_SOURCE)
    (folder / "app.ld").write_text(_SCRIPT)
    arguments = ("-mcpu=cortex-m7", "-mthumb", "-nostdlib", "-Tapp.ld", "-oapp.elf", "app.c")
    subprocess.run(["arm-none-eabi-gcc", *arguments], cwd=folder, check=True)
    return (folder / "app.elf").read_bytes()


def _with_damage(content: bytes, choices: st.DataObject) -> bytes:
    # Half of the damage is in the file's header and its tables of segments and sections.
    tables = st.integers(0, min(200, len(content) - 1)) | st.integers(max(0, len(content) - 500), len(content) - 1)
    changes = st.lists(st.tuples(tables | st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8)
    data = bytearray(content)
    for position, value in choices.draw(changes):
        data[position] = value
    return bytes(data[: choices.draw(st.just(len(data)) | st.integers(0, len(data)))])


def _read(read: Callable[[boards.Board, Path], Firmware], path: Path) -> Firmware | None:
    """Read an image that may be damaged. An error must name the file, and a result must lie in the memory."""
    try:
        image = read(_BOARD, path)
    except ConfigError as error:
        assert str(path) in str(error)
        return None
    for start, data in image.segments:
        assert sum(image.parts(start, len(data)).values()) == len(data)
    return image


def _read_damaged_elf(content: bytes, folder: Path, choices: st.DataObject) -> None:
    path = folder / "damaged.elf"
    path.write_bytes(_with_damage(content, choices))
    if image := _read(read_elf, path):
        assert set(image.entry_registers) == {"pc"}


_CHOICES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@_CHOICES
@given(st.data())
def test_damaged_image_is_read_or_refused(elf: bytes, tmp_path: Path, choices: st.DataObject) -> None:
    _read_damaged_elf(elf, tmp_path, choices)


@_CHOICES
@given(st.data())
@pytest.mark.parametrize("form", ["ihex", "uf2"])
def test_damaged_hex_or_uf2_is_read_or_refused(form: str, tmp_path: Path, choices: st.DataObject) -> None:
    """Two records, or two blocks, for the start of flash, as the formats' descriptions define them."""
    content = b":020000040800F2\n:0400000001020304F2\n:00000001FF\n"
    if form == "uf2":
        headers = [struct.pack("<8I", 0x0A324655, 0x9E5D5157, 0, 0x08000000, 256, number, 2, 0) for number in range(2)]
        content = b"".join(header + bytes(476) + struct.pack("<I", 0x0AB16F30) for header in headers)
    path = tmp_path / "damaged"
    path.write_bytes(_with_damage(content, choices))
    _read(read_image, path)


@pytest.mark.nightly
@settings(_CHOICES, max_examples=5_000)
@given(st.data())
def test_many_damaged_images_are_read_or_refused(elf: bytes, tmp_path: Path, choices: st.DataObject) -> None:
    _read_damaged_elf(elf, tmp_path, choices)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, 0, "not an ELF file"),
        # In the first segment (ELF specification, "Program Header"): its address in memory, its size in the file.
        (52 + 15, 0x70, "its .text, 24 bytes at 0x70000000, is not in the memory of stm32f746"),
        (52 + 19, 0x70, "ends after"),
    ],
    ids=["magic", "address", "size"],
)
def test_damage_is_named(elf: bytes, tmp_path: Path, position: int, value: int, message: str) -> None:
    data = bytearray(elf)
    data[position] = value
    (tmp_path / "app.elf").write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        read_elf(_BOARD, tmp_path / "app.elf")
    assert message in str(caught.value)
