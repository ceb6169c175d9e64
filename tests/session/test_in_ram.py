# SPDX-License-Identifier: Apache-2.0
"""Host-driven sessions with images in RAM only, on the virtual boards of both makers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from hil_tests.programs import handwritten
from utvm import boards, firmware
from utvm.compiler import Library
from utvm.drivers import attach
from utvm.errors import BoardError
from utvm.session import DeviceFault, HostDriven

pytestmark = pytest.mark.slow

ONES = np.ones(4, np.int32)
_COUNTER = handwritten("counter", "  y[0] = ++calls;\n  return 0;", "static int32_t calls = 40;")
_TRAP = handwritten("trap", "  __builtin_trap();")


@pytest.mark.parametrize("name", ["stm32f746", "mps2-an500"])
def test_image_in_ram_starts_on_an_erased_board(tmp_path: Path, name: str, doubler: Library) -> None:
    """Flash is erased on one board, and the vector table is zero on the other: neither can start by itself."""
    board = boards.load(name)
    image = firmware.build(board, [doubler, _COUNTER], in_ram=True)
    with attach(board, "virtual", log_directory=tmp_path) as connection, HostDriven(connection, image) as session:
        assert session.run("doubler", [3 * ONES]).outputs[0].tolist() == [6] * 4
        # Variables have their initial values, they change, and a reset restores them.
        for first in (41, 41):
            assert [session.run("counter", [ONES]).outputs[0][0] for _ in range(2)] == [first, first + 1]
            session.reset()
        assert connection.gdb.read_register("xPSR") == connection.gdb.read_register("xpsr")


def test_erased_flash_stays_erased_and_locked(tmp_path: Path, doubler: Library) -> None:
    board = boards.load("stm32f746")
    flash = board.region("flash")
    image = firmware.build(board, [doubler, _TRAP], in_ram=True)
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        with HostDriven(connection, image) as session:
            session.run("doubler", [ONES])
            with pytest.raises(DeviceFault, match=r"trap_run at .*trap\.c:\d+"):
                session.run("trap", [ONES])
            session.reset()
            session.run("doubler", [ONES])
        assert connection.read_memory(flash.address, flash.size) == b"\xff" * flash.size
        # FLASH_CR: LOCK is set, no operation is selected (RM0385, 3.7.5).
        assert connection.read_memory(0x40023C10, 4) == bytes.fromhex("00000080")


def test_missing_memory_is_reported(tmp_path: Path, doubler: Library) -> None:
    """Between its first two memories, this board reads as zero and accepts every write."""
    folder = tmp_path / "mps2-an500"
    shutil.copytree(boards.load("mps2-an500").directory, folder)
    content = yaml.safe_load((folder / "board.yaml").read_text())
    content["memory"].append({"name": "wishful", "address": 0x1000_0000, "size": "64K", "kind": "ram"})
    (folder / "board.yaml").write_text(yaml.safe_dump(content))
    board = boards.load(str(folder))
    image = firmware.build(board, [doubler], in_ram=True)
    assert image.region_of(image.symbols["utvm_reset"]) == "wishful"
    with (
        attach(board, "virtual", log_directory=tmp_path) as connection,
        pytest.raises(BoardError, match=r"ram of mps2-an500 reads back wrong at 0x1000[0-9a-f]{4} "),
    ):
        HostDriven(connection, image).__enter__()
