# SPDX-License-Identifier: Apache-2.0
"""Boards in other folders: lookup by name, and messages about invalid folders and boards."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import inv
from utvm import boards
from utvm.boards import PATH_VARIABLE
from utvm.paths import ROOT

_MODEL = ROOT / "models" / "digits" / "digits.onnx"
_ORIGINAL = "netduinoplus2"


def _copy_board(parent: Path, name: str, **changes: Any) -> Path:
    """Copy a board of the project into another folder, under another name."""
    folder = parent / name
    shutil.copytree(boards.load(_ORIGINAL).directory, folder)
    content = yaml.safe_load((folder / "board.yaml").read_text()) | {"name": name} | changes
    (folder / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


@pytest.mark.slow
def test_option_is_common_to_all_commands() -> None:
    assert "--board-path=STRING" in inv("--help").stdout


@pytest.mark.slow
def test_boards_in_several_folders_are_found(tmp_path: Path) -> None:
    mine, hers = _copy_board(tmp_path / "a", "mine"), _copy_board(tmp_path / "b", "hers")
    path = f"{mine.parent}:{hers.parent}"
    # Wide enough for one line a board, with long paths of pytest's folders.
    listed = inv("board.list", "--board-path", path, COLUMNS="400").stdout
    for folder in (mine, hers):
        (line,) = [line for line in listed.splitlines() if line.split()[:1] == [folder.name]]
        assert str(folder) in line
    assert _ORIGINAL in listed
    assert f"folder     {hers}" in inv("board.show", "hers", "--board-path", path).stdout
    missing = inv("board.show", "his", "--board-path", path)
    assert missing.returncode == 2
    assert "there is no board 'his'" in missing.stderr
    assert "hers" in missing.stderr


@pytest.mark.slow
def test_variable_names_folders_without_the_option(tmp_path: Path) -> None:
    mine, hers = _copy_board(tmp_path / "a", "mine"), _copy_board(tmp_path / "b", "hers")
    environment = {PATH_VARIABLE: str(mine.parent)}
    assert inv("board.show", "mine", **environment).returncode == 0
    assert inv("board.show", "mine", "--board-path", hers.parent, **environment).returncode == 2
    assert inv("board.show", "hers", "--board-path", hers.parent, **environment).returncode == 0


def test_settings_follow_the_name(tmp_path: Path) -> None:
    settings = {"speed": {"slow": {"clock_hz": 1_000_000}, "fast": {"clock_hz": 2_000_000}}}
    mine = _copy_board(tmp_path, "mine", settings=settings)
    assert "speed=slow (also: fast)" in inv("board.show", "mine", "--board-path", mine.parent).stdout
    fast = inv("board.show", "mine:speed=fast", "--board-path", mine.parent)
    assert "2 MHz" in fast.stdout, fast.stderr


@pytest.mark.slow
def test_error_about_a_duplicate_name_has_both_paths(tmp_path: Path) -> None:
    again = _copy_board(tmp_path, _ORIGINAL)
    for command in (("board.list",), ("board.show", _ORIGINAL)):
        completed = inv(*command, "--board-path", tmp_path)
        assert completed.returncode == 2
        assert f"two boards '{_ORIGINAL}': {ROOT / 'utvm' / 'boards' / _ORIGINAL} and {again}" in completed.stderr
        assert "hint: rename one" in completed.stderr
    assert inv("board.show", "stm32f746", "--board-path", tmp_path).returncode == 0
    # The same folder named twice is one folder.
    mine = _copy_board(tmp_path / "a", "mine")
    assert inv("board.show", "mine", "--board-path", f"{mine.parent}:{mine.parent}/.").returncode == 0


@pytest.mark.slow
def test_other_paths_are_refused(tmp_path: Path) -> None:
    mine = _copy_board(tmp_path, "mine")
    for path, message in (
        (tmp_path / "nowhere", "nowhere: is not a folder"),
        (mine / "port.c", "port.c: is not a folder"),
        (mine, f"mine: is a board's own folder, not a folder of boards\n  hint: name its parent, {tmp_path}"),
    ):
        for completed in (inv("board.list", "--board-path", path), inv("board.list", **{PATH_VARIABLE: str(path)})):
            assert completed.returncode == 2
            assert message in completed.stderr
            assert "Traceback" not in completed.stderr


def _plugin(*options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "utvm.hil.plugin", "--override-ini=addopts=", *map(str, options)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_pytest_plugin_finds_boards(tmp_path: Path) -> None:
    mine = _copy_board(tmp_path, "mine")
    collect = ("--collect-only", "-q", "hil_tests/test_memory.py", "--board", "mine", "--board-path")
    completed = _plugin(*collect, mine.parent)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "sram-stack" in completed.stdout
    wrong = _plugin(*collect, tmp_path / "nowhere")
    assert wrong.returncode == 4
    assert "nowhere: is not a folder" in wrong.stderr


@pytest.mark.slow
def test_suites_run_on_a_board_from_elsewhere(tmp_path: Path) -> None:
    mine = _copy_board(tmp_path, "mine")
    completed = inv("hil", "--board", "mine", "--board-path", mine.parent, "--suite", "health")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "PASSED on a VIRTUAL mine: 1 passed" in completed.stdout
    # By default, reports are in the checkout.
    assert f"report: {ROOT / 'build' / 'reports'}/" in completed.stdout


_REGION = {"name": "sram", "address": 0x2000_2000, "size": "120K", "kind": "ram"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory": [_REGION, {**_REGION, "name": "more", "address": 0x2001_0000}]},
            "memory regions sram and more overlap",
        ),
        ({"memory": [{**_REGION, "size": 0}]}, "memory.0.size: Input should be greater than 0"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"memory": [{**_REGION, "colour": "red"}]}, "memory.0.colour: Extra inputs are not permitted"),
    ],
)
def test_error_about_a_board_has_key_and_hint(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    if message.startswith("memory regions"):
        changes = {**changes, "layout": {"code": "sram", "data": "sram", "stack": "more", "stack_size": "8K"}}
    folder = _copy_board(tmp_path, "mine", **changes)
    completed = inv("board.show", folder)
    assert completed.returncode == 2
    assert completed.stderr.startswith(f"error: {folder / 'board.yaml'}: {message}")
    assert "hint: docs/porting.md" in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
def test_missing_toolchain_is_named(tmp_path: Path) -> None:
    folder = _copy_board(tmp_path / "unknown", "mine", toolchain="no-such")
    unknown = inv("firmware.size", "--model", _MODEL, "--board", folder)
    assert unknown.returncode == 2
    assert "no-such.yaml: cannot be read" in unknown.stderr
    assert "hint: known toolchains: arm-none-eabi" in unknown.stderr
    folder = _copy_board(tmp_path / "other", "mine", cpu="z80")
    other = inv("firmware.size", "--model", _MODEL, "--board", folder)
    assert other.returncode == 2
    assert "cpus has no row 'z80'" in other.stderr
    assert re.search("hint: rows it has: .*cortex-m4-fpv4-sp", other.stderr)


@pytest.mark.slow
def test_missing_compiler_is_named_with_its_package(tmp_path: Path) -> None:
    missing = inv("firmware.size", "--model", _MODEL, "--board", _copy_board(tmp_path, "mine"), PATH=str(tmp_path))
    assert missing.returncode == 3
    assert "arm-none-eabi-gcc is not installed" in missing.stderr
    assert "hint: sudo apt-get install gcc-arm-none-eabi" in missing.stderr
