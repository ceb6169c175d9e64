# SPDX-License-Identifier: Apache-2.0
"""docs/boards.md agrees with the boards' files and the measurements, and names its figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.boards_page import MEASUREMENTS, PAGE, page
from utvm import boards
from utvm.errors import ConfigError


def _changed_measurements(folder: Path, **changes: Any) -> Path:
    content = json.loads(MEASUREMENTS.read_text())
    path = folder / "boards.json"
    path.write_text(json.dumps({**content, **changes}))
    return path


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(MEASUREMENTS), "run ./inv docs.site --pages"


def test_every_board_has_a_section_and_a_row() -> None:
    lines = page(MEASUREMENTS).splitlines()
    for name in boards.names():
        assert f"## {name}" in lines
        # A row with default settings; other settings have further rows.
        assert any(line.startswith(f"| `{boards.load(name).full_name}` |") for line in lines)


def test_section_agrees_with_the_board_file() -> None:
    section = page(MEASUREMENTS).split("## stm32f746")[1].split("\n## ")[0]
    for expected in (
        "ST Nucleo-F746ZG (STM32F746ZG, Cortex-M7, 216 MHz)",
        "`-mcpu=cortex-m7",
        "| console | USART3, 921,600 baud |",
        "216,000,000 counts per second",
        "| physical | driven by OpenOCD, through st-link 0483:374b, st-link 0483:3752 |",
        "| physical board lacks | pins |",
        "a software model of ours",
        "| dtcm | `0x20000000` | 64 KiB | ram |",
        "| flash-itcm | `0x00200000` | 1,024 KiB | flash, flash on another bus |",
        "| LEDs | LD1 green `PB0`, LD2 blue `PB7`, LD3 red `PB14` |",
        "A5 `PF10`; D15 `PB8`",
    ):
        assert expected in section
    emulated = page(MEASUREMENTS).split("## mps2-an500")[1].split("\n## ")[0]
    assert "| virtual | emulated by QEMU (`qemu-system-arm -M mps2-an500`)" in emulated
    assert "| physical |" not in emulated
    (row,) = (line for line in emulated.splitlines() if line.startswith("| virtual board lacks |"))
    assert {"flash", "OpenOCD", "reset cause", "watchpoints"} <= set(row.split("|")[2].strip().split(", "))


def test_unmeasured_board_is_listed_as_such(tmp_path: Path) -> None:
    text = page(_changed_measurements(tmp_path, boards={}))
    assert text.count("not measured yet") == len(boards.names())


def test_figure_keeps_its_name(tmp_path: Path) -> None:
    figures = {"instructions": 1234567, "flash_bytes": 1, "ram_bytes": 2}
    model = {"name": "tiny", "executor": "e", "figures": figures}
    board = {
        "date": "2026-01-02",
        "kind": "virtual",
        "passed": 7,
        "skipped": 1,
        "suites_s": 61.4,
        "memory_write_kib_s": 1234.5,
        "models": [model],
        "tools": {"gcc": "12"},
    }
    path = _changed_measurements(tmp_path, boards={"stm32f746": board}, means={"suites": "seconds of the computer's"})
    text = page(path)
    assert "| tiny | `stm32f746` | e | 1,234,567 | 1 B | 2 B |" in text
    assert "| model | board | executor | instructions per sample | flash | RAM |" in text
    assert "| `stm32f746` | VIRTUAL | none | 7 | 1 | 61 s | 1,234 KiB/s |" in text
    assert "On 2026-01-02, on a computer" in text
    later = _changed_measurements(
        tmp_path, boards={"stm32f746": board, "host": {**board, "date": "2026-02-03", "models": []}}
    )
    assert "Between 2026-01-02 and 2026-02-03, on a computer" in page(later)
    assert "- **suites**: seconds of the computer's" in text
    for name in ("ms", "cycles"):
        wrong = {**board, "models": [{**model, "figures": {name: 1}}]}
        with pytest.raises(ConfigError, match=f"a virtual board has no figure '{name}'"):
            page(_changed_measurements(tmp_path, boards={"stm32f746": wrong}))
