# SPDX-License-Identifier: Apache-2.0
"""``board.install-udev`` and what ``doctor`` says of probes that may not be opened."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.probe.fake_usb import plug_in, use
from utvm import boards
from utvm.cli.root_doctor import examine
from utvm.probe import udev


def test_a_foreign_board_s_probe_is_in_the_rules(tmp_path: Path) -> None:
    mine = tmp_path / "boards" / "mine"
    shutil.copytree(boards.load("stm32f746").directory, mine)
    text = (mine / "board.yaml").read_text().replace("name: stm32f746", "name: mine")
    (mine / "board.yaml").write_text(text.replace("product: 0x3752", "product: 0x3799"))
    done = inv("board.install-udev", "--board-path", mine.parent, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    rules = (tmp_path / udev.NAME).read_text()
    assert '# mine\nATTRS{idVendor}=="0483", ATTRS{idProduct}=="3799"' in rules
    sharing = "mine, nrf52840dk, nrf5340dk, nucleo-h743zi, nucleo-l4r5zi, nucleo-l552ze-q, stm32f407, stm32f746"
    assert f'# {sharing}\nATTRS{{idVendor}}=="0483", ATTRS{{idProduct}}=="374b"' in rules


def test_the_output_minus_prints_the_rules_and_the_steps() -> None:
    done = inv("board.install-udev", "--output", "-")
    assert done.returncode == 0
    assert 'ATTRS{idVendor}=="0483"' in done.stdout
    assert f"install -m 644 {udev.NAME} /etc/udev/rules.d/{udev.NAME}" in done.stdout


def test_a_missing_folder_is_named() -> None:
    done = inv("board.install-udev", "--output", "/none")
    assert done.returncode == 2
    assert "/none" in done.stderr


@pytest.mark.parametrize("allowed", [False, True])
def test_doctor_tells_of_a_probe_that_may_not_be_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, allowed: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    use(tmp_path, monkeypatch.setattr)
    plug_in(tmp_path, "4.2", "066BFF303430")
    monkeypatch.setattr(os, "access", lambda path, mode: allowed)
    examine()
    # The last column is as wide as the longest name of a package lets it be; its words go on below.
    rows = " ".join(capsys.readouterr().out.partition("st-link at 1-4.2")[2].split())
    assert rows.startswith("may be used") is allowed
    assert ("you may not open it" in rows) is not allowed
