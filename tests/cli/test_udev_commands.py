# SPDX-License-Identifier: Apache-2.0
"""``board.install-udev``, and ``doctor`` with probes that this user may not open."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.probe.fake_usb import plug_in, use
from utvm import boards
from utvm.cli.root_doctor import examine
from utvm.probe import udev


def test_rules_have_the_probe_of_another_board(tmp_path: Path) -> None:
    folder = tmp_path / "boards" / "mine"
    shutil.copytree(boards.load("stm32f746").directory, folder)
    text = (folder / "board.yaml").read_text().replace("name: stm32f746", "name: mine")
    (folder / "board.yaml").write_text(text.replace("product: 0x3752", "product: 0x3799"))
    completed = inv("board.install-udev", "--board-path", folder.parent, "--output", tmp_path)
    assert completed.returncode == 0, completed.stderr
    rules = (tmp_path / udev.NAME).read_text()
    assert '# mine\nATTRS{idVendor}=="0483", ATTRS{idProduct}=="3799"' in rules
    sharing = "mine, nrf52840dk, nrf5340dk, nucleo-h743zi, nucleo-l4r5zi, nucleo-l552ze-q, stm32f407, stm32f746"
    assert f'# {sharing}\nATTRS{{idVendor}}=="0483", ATTRS{{idProduct}}=="374b"' in rules


def test_output_minus_prints_rules_and_steps() -> None:
    completed = inv("board.install-udev", "--output", "-")
    assert completed.returncode == 0
    assert 'ATTRS{idVendor}=="0483"' in completed.stdout
    assert f"install -m 644 {udev.NAME} /etc/udev/rules.d/{udev.NAME}" in completed.stdout


def test_missing_folder_is_named() -> None:
    completed = inv("board.install-udev", "--output", "/none")
    assert completed.returncode == 2
    assert "/none" in completed.stderr


@pytest.mark.parametrize("allowed", [False, True])
def test_doctor_reports_a_probe_without_permission(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, allowed: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    use(tmp_path, monkeypatch.setattr)
    plug_in(tmp_path, "4.2", "066BFF303430")
    monkeypatch.setattr(os, "access", lambda path, mode: allowed)
    examine()
    # The last column is narrowed by long package names, and wraps.
    rows = " ".join(capsys.readouterr().out.partition("st-link at 1-4.2")[2].split())
    assert rows.startswith("may be used") is allowed
    assert ("you may not open it" in rows) is not allowed
