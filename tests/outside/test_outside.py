# SPDX-License-Identifier: Apache-2.0
"""Images of other projects run unchanged on virtual boards: those of the folder UTVM_OUTSIDE (docs/outside.md)."""

import os
from pathlib import Path

import pytest

from tests.cli.running import inv

pytestmark = pytest.mark.nightly
FOLDER = Path(os.environ.get("UTVM_OUTSIDE", ""))
LIST = FOLDER / "images.txt"
ROWS = [line.split(maxsplit=2) for line in LIST.read_text().splitlines()] if LIST.is_file() else []


@pytest.mark.skipif(not ROWS, reason="UTVM_OUTSIDE names no folder with images.txt")
@pytest.mark.parametrize(("board", "image", "line"), ROWS, ids=[row[1] for row in ROWS])
def test_image_prints_its_line(board: str, image: str, line: str) -> None:
    done = inv("firmware.flash", FOLDER / image, "--board", board, "--virtual", "--monitor=10")
    assert done.returncode == 0, done.stderr
    assert line in done.stdout
