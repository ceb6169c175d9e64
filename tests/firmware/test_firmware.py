# SPDX-License-Identifier: Apache-2.0
"""Firmware: the content and size of an image, and errors about lack of memory."""

import dataclasses
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from hil_tests.programs import handwritten
from utvm import firmware
from utvm.boards import Board
from utvm.compiler import Library
from utvm.errors import ConfigError, DoesNotFitError, ToolchainError
from utvm.paths import ROOT
from utvm.runtime import Pipe


def test_sizes_equal_those_of_binutils(board: Board, doubler: Library) -> None:
    image = firmware.build(board, [doubler])
    output = subprocess.run(["arm-none-eabi-size", "-A", image.elf], capture_output=True, text=True, check=True).stdout
    golden = {name: int(size) for name, size in re.findall(r"^(\.\S+)\s+(\d+)\s+[1-9]\d*$", output, re.M)}
    assert {section.name: section.size for section in image.sections} == {
        name: size for name, size in golden.items() if size
    }
    # GCC 14's libgcc has unwind tables, .ARM.exidx, which are in flash like all read-only data.
    in_flash = (".vectors", ".text", ".rodata", ".ARM.exidx", ".data")
    assert image.flash_bytes == sum(golden.get(name, 0) for name in in_flash)


def test_vector_table_is_first(board: Board, doubler: Library) -> None:
    image = firmware.build(board, [doubler])
    address, contents = image.segments[0]
    stack, reset = struct.unpack_from("<II", contents)
    assert address == board.region("flash").address
    assert stack == board.region("dtcm").address + board.layout.stack_size
    assert reset == image.symbols["utvm_reset"] | 1
    # ARM DDI 0403E, B1.5.3: sixteen system entries, then one for each interrupt.
    table = next(section for section in image.sections if section.name == ".vectors")
    assert table.size == 4 * (16 + board.interrupts)


@pytest.fixture(params=["elsewhere", "in the checkout"])
def other_cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "elsewhere":
        yield tmp_path / "other cache"
    else:
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
            yield Path(folder)


@pytest.mark.slow
def test_image_is_the_same_in_another_folder(board: Board, doubler: Library, tmp_path: Path, other_cache: Path) -> None:
    program = (
        "import sys; from hil_tests.programs import handwritten; from utvm import boards, firmware\n"
        "library = handwritten('doubler', '  for (int i = 0; i < 4; i++) { y[i] = 2 * x[i]; }\\n  return 0;')\n"
        "print(firmware.build(boards.load('stm32f746'), [library]).digest)\n"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(other_cache), "PYTHONPATH": str(ROOT)}
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == firmware.build(board, [doubler]).digest


def test_number_of_interrupts_changes_the_image(board: Board, doubler: Library) -> None:
    fewer = board.model_copy(update={"interrupts": 10})
    table = next(s for s in firmware.build(fewer, [doubler]).sections if s.name == ".vectors")
    assert table.size == 4 * (16 + 10)


@pytest.mark.slow
def test_only_console_rpc_uses_the_interrupt(board: Board, doubler: Library) -> None:
    uses_interrupt = {}
    for pipe in get_args(Pipe)[:3]:
        image = firmware.build(board, [doubler], "rpc", pipe=pipe)
        uses_interrupt[pipe] = "utvm_port_interrupt" in image.symbols
        assert ("utvm_rtt" in image.symbols) == (pipe == "rtt")
    assert uses_interrupt == {"console": True, "rtt": False, "semihosting": False}


def test_unsupported_transport_is_refused(board: Board, doubler: Library) -> None:
    with pytest.raises(ConfigError, match="stm32f746 has no transport 'stdio'") as caught:
        firmware.build(board, [doubler], "rpc", pipe="stdio")
    assert "console, rtt, semihosting" in caught.value.hint


def test_image_has_no_paths_of_this_machine(board: Board, doubler: Library) -> None:
    image = firmware.build(board, [doubler]).elf.read_bytes()
    assert str(ROOT).encode() + b"/" not in image
    assert str(Path.home()).encode() + b"/" not in image


def test_code_addresses_have_source_lines(board: Board, doubler: Library) -> None:
    image = firmware.build(board, [doubler])
    assert re.search(r"doubler_run at .*doubler\.c:\d+", image.source_line(image.symbols["doubler_run"]))
    assert image.source_line(0x2000_0000) == ""


@pytest.mark.parametrize(
    ("library", "message"),
    [
        (
            handwritten("hungry", "  return 0;", arena_bytes=400_000),
            r"section \.arena .*region sram1 .* 245760 bytes.*\d+ too many",
        ),
        (
            handwritten("heavy", "  static const float w[300000] = {1.0f};\n  y[0] = (int32_t)w[x[0]];\n  return 0;"),
            r"section \.rodata .*region flash .* 1048576 bytes",
        ),
        (
            handwritten("bloated", "  static volatile uint8_t s[300000];\n  s[0] = 1;\n  return s[0];"),
            r"section \.bss .*region sram1",
        ),
    ],
)
def test_error_names_section_region_and_sizes(board: Board, library: Library, message: str) -> None:
    with pytest.raises(DoesNotFitError, match=message):
        firmware.build(board, [library])


def test_error_of_the_compiler_is_quoted(board: Board) -> None:
    with pytest.raises(ToolchainError, match="undeclared"):
        firmware.build(board, [handwritten("wrong", "  return nonsense;")])


def test_models_share_an_image_and_an_arena(board: Board, doubler: Library) -> None:
    other = handwritten("halver", "  y[0] = x[0] / 2; return 0;", arena_bytes=4096)
    image = firmware.build(board, [doubler, other])
    assert [image.program_index(name) for name in ("doubler", "halver")] == [0, 1]
    arena = next(section for section in image.sections if section.name == ".arena")
    assert arena.size == 16 + 16 + 4096  # input, output and further working memory


def test_unknown_and_repeated_models_are_refused(board: Board, doubler: Library) -> None:
    with pytest.raises(ConfigError, match="no model 'tripler'"):
        firmware.build(board, [doubler]).program_index("tripler")
    with pytest.raises(ConfigError, match="different names"):
        firmware.build(board, [doubler, dataclasses.replace(doubler)])
    with pytest.raises(ConfigError, match="different names"):
        firmware.build(board, [])
