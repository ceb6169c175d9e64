# SPDX-License-Identifier: Apache-2.0
"""docs/porting.md's two short ways, walked through: its own commands, in the order in which they stand there."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.boards.test_described import PDSC, SVD
from utvm.paths import ROOT

_GUIDE = (ROOT / "docs" / "porting.md").read_text(encoding="utf-8")


def _walk(section: str, home: Path) -> str:
    """Run a section's first block of commands by somebody with that home; return what it printed."""
    part = _GUIDE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", part, re.DOTALL)
    assert block
    done = subprocess.run(
        ["bash", "-euxc", block[1]],
        cwd=ROOT,
        env=os.environ | {"HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.nightly
def test_from_a_description_of_the_chip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "Keil.STM32F4xx_DFP.pack", "w") as pack:
        pack.writestr("Keil.STM32F4xx_DFP.pdsc", PDSC)
        pack.writestr("SVD/STM32F407.svd", SVD)
    printed = _walk("From a description of the chip", tmp_path)
    assert "STM32F407VG, described by Keil.STM32F4xx_DFP.pack" in printed
    assert "flash" in printed


@pytest.mark.nightly
def test_near_a_board_that_is_there(tmp_path: Path) -> None:
    printed = _walk("Near a board that is there", tmp_path)
    assert "PASSED on a VIRTUAL an386" in printed
