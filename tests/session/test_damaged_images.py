# SPDX-License-Identifier: Apache-2.0
"""Damaged ELF files of somebody else's build: read or refused, and nothing outside of the memory is loaded."""

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
def linked(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole one, by the board's own compiler."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "app.c").write_text(_SOURCE)
    (folder / "app.ld").write_text(_SCRIPT)
    words = ("-mcpu=cortex-m7", "-mthumb", "-nostdlib", "-Tapp.ld", "-oapp.elf", "app.c")
    subprocess.run(["arm-none-eabi-gcc", *words], cwd=folder, check=True)
    return (folder / "app.elf").read_bytes()


def _with_damage(whole: bytes, choose: st.DataObject) -> bytes:
    # Half of the damage is where the file says what is where: its header and the tables of segments and sections.
    tables = st.integers(0, min(200, len(whole) - 1)) | st.integers(max(0, len(whole) - 500), len(whole) - 1)
    places = st.lists(st.tuples(tables | st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=8)
    data = bytearray(whole)
    for place, value in choose.draw(places):
        data[place] = value
    return bytes(data[: choose.draw(st.just(len(data)) | st.integers(0, len(data)))])


def _read(read: Callable[[boards.Board, Path], Firmware], path: Path) -> Firmware | None:
    """Read an image that may be damaged: it lies in memory, or the message names its file."""
    try:
        image = read(_BOARD, path)
    except ConfigError as error:
        assert str(path) in str(error)
        return None
    for start, data in image.segments:
        assert sum(image.parts(start, len(data)).values()) == len(data)
    return image


def _read_damaged_elf(whole: bytes, folder: Path, choose: st.DataObject) -> None:
    path = folder / "damaged.elf"
    path.write_bytes(_with_damage(whole, choose))
    if image := _read(read_elf, path):
        assert set(image.entry_registers) == {"pc"}


_CHOICES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@_CHOICES
@given(st.data())
def test_a_damaged_image_is_read_or_refused(linked: bytes, tmp_path: Path, choose: st.DataObject) -> None:
    _read_damaged_elf(linked, tmp_path, choose)


@_CHOICES
@given(st.data())
@pytest.mark.parametrize("form", ["ihex", "uf2"])
def test_a_damaged_file_of_blocks_is_read_or_refused(form: str, tmp_path: Path, choose: st.DataObject) -> None:
    """Two records, or two blocks, for the start of flash: what their formats' descriptions say."""
    whole = b":020000040800F2\n:0400000001020304F2\n:00000001FF\n"
    if form == "uf2":
        heads = [struct.pack("<8I", 0x0A324655, 0x9E5D5157, 0, 0x08000000, 256, place, 2, 0) for place in range(2)]
        whole = b"".join(head + bytes(476) + struct.pack("<I", 0x0AB16F30) for head in heads)
    path = tmp_path / "damaged"
    path.write_bytes(_with_damage(whole, choose))
    _read(read_image, path)


@pytest.mark.nightly
@settings(_CHOICES, max_examples=5_000)
@given(st.data())
def test_many_damaged_images_are_read_or_refused(linked: bytes, tmp_path: Path, choose: st.DataObject) -> None:
    _read_damaged_elf(linked, tmp_path, choose)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, 0, "not an ELF file"),
        # Of the first segment (ELF specification, "Program Header"): its address in memory, its size in the file.
        (52 + 15, 0x70, "its .text, 24 bytes at 0x70000000, is not in the memory of stm32f746"),
        (52 + 19, 0x70, "ends after"),
    ],
    ids=["magic", "address", "size"],
)
def test_what_is_wrong_is_said(linked: bytes, tmp_path: Path, place: int, value: int, said: str) -> None:
    data = bytearray(linked)
    data[place] = value
    (tmp_path / "app.elf").write_bytes(data)
    with pytest.raises(ConfigError) as refused:
        read_elf(_BOARD, tmp_path / "app.elf")
    assert said in str(refused.value)
