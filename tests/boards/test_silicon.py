# SPDX-License-Identifier: Apache-2.0
"""Parts of a board tested on hardware: in its file, on its page and in docs/bring-up.md."""

import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

from benchmarks import boards_page
from utvm import boards
from utvm.boards.parts import SiliconPart
from utvm.errors import ConfigError
from utvm.hil import project
from utvm.paths import ROOT

_GUIDE = (ROOT / "docs" / "bring-up.md").read_text(encoding="utf-8")


def rows_of_the_guide() -> list[tuple[str, str, str]]:
    """Return the parts, with the suites and the most likely cause of a failure."""
    return re.findall(r"^\| `(\w+)` \| ([\w,]+) \| .* \| (.*) \|$", _GUIDE, re.MULTILINE)


_ROWS = {part: suites for part, suites, _ in rows_of_the_guide()}


def _board_with(tmp_path: Path, silicon: str) -> str:
    folder = tmp_path / "stm32f746"
    shutil.copytree(boards.load("stm32f746").directory, folder)
    file = folder / "board.yaml"
    text, times = re.subn(r"^silicon: .*$", f"silicon: {silicon}", file.read_text(), flags=re.MULTILINE)
    assert times == 1
    file.write_text(text)
    return str(folder)


def test_checklist_has_every_part_and_suite() -> None:
    assert list(_ROWS) == list(get_args(SiliconPart))
    assert sorted(name for row in _ROWS.values() for name in row.split(",")) == sorted(project.suite_names())


def test_file_of_every_chip_has_the_key() -> None:
    for name in boards.project_names():
        board = boards.load(name)
        has_key = "silicon:" in (board.directory / "board.yaml").read_text()
        assert has_key == bool(board.memory)


def test_untested_parts_are_listed() -> None:
    section = boards_page.page(boards_page.MEASUREMENTS).split("## stm32f746")[1].split("\n## ")[0]
    (row,) = (line for line in section.splitlines() if "not tested on hardware" in line)
    for part in get_args(SiliconPart):
        assert part in row


def test_tested_part_is_shown_with_its_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = boards.load(_board_with(tmp_path, "{flash: revision Z}"))
    load = boards.load
    monkeypatch.setattr(boards, "load", lambda name: board if name == "stm32f746" else load(name))
    page = boards_page.page(boards_page.MEASUREMENTS)
    section = page.split("## stm32f746")[1].split("\n## ")[0]
    assert "| flash: tested on hardware | revision Z |" in section
    (row,) = (line for line in section.splitlines() if "not tested on hardware" in line)
    assert "flash" not in row
    assert "| `stm32f746` | VIRTUAL | flash |" in page
    assert "No board has been tested" not in page


@pytest.mark.parametrize(("silicon", "key"), [("{wings: Z}", "silicon"), ("{flash: ''}", "silicon.flash")])
def test_invalid_part_or_text_is_refused(silicon: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=key):
        boards.load(_board_with(tmp_path, silicon))
