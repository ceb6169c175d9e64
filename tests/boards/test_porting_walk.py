# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/porting.md, for each of its three ways, in the order of the page."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.boards.test_described import PDSC, SVD
from utvm.paths import ROOT

_GUIDE = (ROOT / "docs" / "porting.md").read_text(encoding="utf-8")


def _walk(section: str, home: Path, end: str = "```\n\n", **environment: str) -> str:
    """Run a section's commands, in its first block or up to ``end``, with this home; return their output."""
    part = _GUIDE.split(f"\n## {section}\n")[1].split(end)[0] + "```"
    blocks = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    assert blocks
    completed = subprocess.run(
        ["bash", "-euxc", "".join(blocks)],
        cwd=ROOT,
        env=os.environ | {"HOME": str(home)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=3000,
    )
    assert completed.returncode == 0, completed.stdout
    return completed.stdout


@pytest.mark.nightly
def test_from_a_description_of_the_chip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "Keil.STM32F4xx_DFP.pack", "w") as pack:
        pack.writestr("Keil.STM32F4xx_DFP.pdsc", PDSC)
        pack.writestr("SVD/STM32F407.svd", SVD)
    printed = _walk("From a description of the chip", tmp_path)
    assert "STM32F407VG, described by Keil.STM32F4xx_DFP.pack" in printed
    assert "flash" in printed


@pytest.mark.nightly
def test_from_a_similar_board(tmp_path: Path) -> None:
    printed = _walk("From a similar board", tmp_path)
    assert "PASSED on a VIRTUAL an386" in printed


@pytest.mark.nightly
def test_from_nothing(tmp_path: Path) -> None:
    """``myboard`` is Emcraft's SmartFusion2 module: QEMU has it, the project does not."""
    printed = _walk("From nothing", tmp_path, "\n### 8. ", UTVM_BOARD_PATH=str(ROOT / "tests" / "boards"))
    assert printed.count("PASSED on a VIRTUAL myboard") > 6
    assert "utvm_port" not in printed
