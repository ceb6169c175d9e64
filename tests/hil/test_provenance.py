"""What a run was made with: the same on an unchanged machine, another when anything of it changed."""

import re
import shutil
from pathlib import Path

import pytest

from utvm import boards
from utvm.errors import ProvisionError
from utvm.hil import provenance


def test_two_looks_at_one_machine_agree() -> None:
    board = boards.load("stm32f746")
    first = provenance.describe(board)
    assert provenance.describe(board) == first
    assert re.fullmatch("[0-9a-f]{64}", first.digest)
    assert set(first.tools) == {"python", "tvm", "openocd", "gcc", "unicorn", "utvm"}
    assert re.match(r"\d+\.\d+", first.tools["openocd"])
    assert "arm-none-eabi" in first.tools["gcc"]


def test_another_lock_is_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = boards.load("stm32f746")
    before = provenance.describe(board).digest
    other = tmp_path / "python.lock"
    other.write_bytes(provenance._PYTHON_LOCK.read_bytes() + b"\n# one more line\n")
    monkeypatch.setattr(provenance, "_PYTHON_LOCK", other)
    assert provenance.describe(board).digest != before


def test_a_machine_without_openocd_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "openocd" else which(name))
    with pytest.raises(ProvisionError) as caught:
        provenance.describe(boards.load("stm32f746"))
    assert "apt-get install openocd" in caught.value.hint
