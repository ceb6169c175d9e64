# SPDX-License-Identifier: Apache-2.0
"""Images for RAM: the addresses of sections, their size, and errors about lack of memory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hil_tests.programs import handwritten
from utvm import boards, firmware
from utvm.boards import Board
from utvm.compiler import Library
from utvm.errors import ConfigError, DoesNotFitError
from utvm.paths import ROOT


def _constants(name: str, *kilobytes: int) -> Library:
    """Return a program with constants of these sizes in KiB."""
    tables = "".join(f"const uint8_t {name}_{n}[{size * 1024}] = {{1}};\n" for n, size in enumerate(kilobytes))
    total = " + ".join(f"{name}_{number}[x[0]]" for number in range(len(kilobytes)))
    return handwritten(
        name, f"  y[0] = {total};\n  return 0;", f'#pragma GCC diagnostic ignored "-Wmissing-prototypes"\n{tables}'
    )


def _addresses(image: firmware.Firmware) -> dict[str, int]:
    """Return the addresses of an image's sections, from binutils."""
    completed = subprocess.run(["arm-none-eabi-size", "-A", image.elf], capture_output=True, text=True, check=True)
    return {name: int(address) for name, address in re.findall(r"^(\.\S+)\s+\d+\s+([1-9]\d*)$", completed.stdout, re.M)}


def test_code_lies_in_fast_memory_above_the_stack(board: Board, doubler: Library) -> None:
    addresses = _addresses(firmware.build(board, [doubler], in_ram=True))
    itcm, dtcm = board.region("itcm"), board.region("dtcm")
    assert itcm.address < addresses[".text"] < itcm.end
    assert addresses[".stack"] == dtcm.address
    # ARM DDI 0403E, B3.2.5: 16 + 98 vectors take 456 bytes; the next power of two is 512.
    assert addresses[".vectors"] % 512 == 0
    assert all(address > 0 for address in addresses.values())


@pytest.mark.slow
def test_large_constants_fill_every_memory(board: Board) -> None:
    """288 KiB of constants and 20 KiB of arena: larger than any memory of the chip, and than two adjacent ones."""
    library = _constants("tables", 120, 50, 40, 40, 30, 8)
    image = firmware.build(board, [handwritten("other", "  return 0;", arena_bytes=20_000), library], in_ram=True)
    use = image.region_use()
    for name, used in use.items():
        assert 0 < used <= board.region(name).size
    assert set(use) == {"itcm", "dtcm", "sram1", "sram2"}
    assert sum(use.values()) == sum(section.size for section in image.sections) == image.ram_bytes
    assert image.flash_bytes == 0


@pytest.mark.slow
def test_object_may_span_adjacent_regions(board: Board) -> None:
    image = firmware.build(board, [handwritten("large", "  return 0;", arena_bytes=250 * 1024)], in_ram=True)
    arena = next(section for section in image.sections if section.name == ".arena")
    assert set(image.parts(arena.address, arena.size)) == {"sram1", "sram2"}
    # The DTCM is adjacent to SRAM1, but on another bus.
    with pytest.raises(DoesNotFitError, match=r"section \.arena"):
        firmware.build(board, [handwritten("larger", "  return 0;", arena_bytes=257 * 1024)], in_ram=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "section", "need", "region"),
    [
        (handwritten("hungry", "  return 0;", arena_bytes=400_000), ".arena", 400_032, "sram1+sram2"),
        (_constants("heavy", 300), ".rodata.heavy_0", 300 * 1024, "sram1+sram2"),
        (
            handwritten("bloated", "  static volatile uint8_t s[300000];\n  s[0] = 1;\n  return s[0];"),
            ".bss",
            300_000,
            "sram1+sram2",
        ),
        # There is room for some of them only.
        (_constants("many", *[60] * 6), r".rodata.many_\d", 60 * 1024, "dtcm"),
    ],
)
def test_error_names_section_and_free_space(
    board: Board, library: Library, section: str, need: int, region: str
) -> None:
    with pytest.raises(DoesNotFitError) as caught:
        firmware.build(board, [library], in_ram=True)
    match = re.fullmatch(
        r"section (\S+) does not fit into RAM: it needs (\d+) bytes and the most that is left in one piece is "
        r"(\d+) \((\S+)\); stm32f746 has 344064 bytes of RAM, the whole image needs (\d+)",
        caught.value.message,
    )
    assert match, caught.value.message
    assert re.fullmatch(section, match[1])
    assert need <= int(match[2]) < need + 2048
    assert int(match[3]) < int(match[2])
    assert match[4] == region
    assert "region flash has 1048576 bytes" in caught.value.hint


def _board_with(tmp_path: Path, board: Board, memory: list[dict[str, Any]]) -> Board:
    target = tmp_path / board.name
    target.mkdir()
    for path in board.directory.iterdir():
        if path.is_file():
            (target / path.name).write_text(path.read_text())
    content = yaml.safe_load((target / "board.yaml").read_text())
    (target / "board.yaml").write_text(yaml.safe_dump(content | {"memory": memory}))
    return boards.load(str(target))


@pytest.mark.slow
def test_code_is_only_placed_where_it_can_run(tmp_path: Path, board: Board, doubler: Library) -> None:
    memory = yaml.safe_load((board.directory / "board.yaml").read_text())["memory"]
    for region in memory:
        if region["kind"] == "ram":
            region["executable"] = region["name"] in ("sram1", "sram2")
    image = firmware.build(_board_with(tmp_path, board, memory), [doubler], in_ram=True)
    assert image.region_of(image.symbols["utvm_reset"]) == "sram1"
    assert image.region_of(image.symbols["utvm_arena"]) != "sram1"
    for region in memory:
        region["executable"] = False
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    with pytest.raises(DoesNotFitError, match=r"section \.text .*no code can run in any of it"):
        firmware.build(_board_with(nowhere, board, memory), [doubler], in_ram=True)


@pytest.mark.slow
def test_image_is_the_same_in_another_folder(board: Board, tmp_path: Path) -> None:
    program = (
        "import json; from tests.firmware.test_ram_images import _constants; from utvm import boards, firmware\n"
        "image = firmware.build(boards.load('stm32f746'), [_constants('c', 30, 20, 10)], in_ram=True)\n"
        "print(json.dumps([image.digest, image.symbols['c_1']]))\n"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    ).stdout
    image = firmware.build(board, [_constants("c", 30, 20, 10)], in_ram=True)
    assert json.loads(output) == [image.digest, image.symbols["c_1"]]


def test_standing_alone_image_cannot_be_in_ram(board: Board, doubler: Library) -> None:
    with pytest.raises(ConfigError, match="cannot be in RAM alone"):
        firmware.build(board, [doubler], "standing_alone", in_ram=True)


@pytest.mark.slow
def test_rpc_image_has_its_data_in_the_layouts_region(board: Board, doubler: Library) -> None:
    """DMA fetches the console's bytes, and does not reach every memory of the chip."""
    image = firmware.build(board, [doubler], "rpc", in_ram=True)
    places = {section.name: image.region_of(section.address) for section in image.sections}
    assert image.flash_bytes == 0
    assert {places[name] for name in (".bss", ".arena")} == {board.layout.data}
    start, end = image.symbols["_utvm_heap_start"], image.symbols["_utvm_heap_end"]
    assert end == board.region("sram2").end
    assert end - start > 100_000
    assert all(start >= s.address + s.size or s.address >= end for s in image.sections)
