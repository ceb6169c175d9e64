# SPDX-License-Identifier: Apache-2.0
"""Boards outside of the project, as data alone: folders with toolchain rows for their cores."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import inv
from utvm import boards
from utvm.errors import ConfigError
from utvm.paths import ROOT

_FOLDERS = Path(__file__).parent / "foreign"
_ROW = {"architecture": "riscv", "core": "e31", "flags": ["-march=rv32imac"]}


def _copy(parent: Path, name: str, **changes: Any) -> Path:
    """Copy a folder out of the checkout, with changes to its file."""
    folder = parent / name
    shutil.copytree(_FOLDERS / name, folder)
    content = yaml.safe_load((folder / "board.yaml").read_text()) | changes
    (folder / "board.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        # The second core does not start, and the guard is between regions of one memory.
        pytest.param(
            "sifive-u",
            {"no trap: division by zero", "no trap: code that is not Thumb", "no console"},
            marks=pytest.mark.nightly,
        ),
        ("vexpress-a9", {"no trap: division by zero", "no trap: code that is not Thumb"}),
    ],
)
def test_suites_pass_on_multicore_machines_from_data(tmp_path: Path, name: str, lacking: set[str]) -> None:
    folder = _copy(tmp_path, name)
    suites = ("--suite", "health,counter,faults,rpc", "-k", "not time_evaluator and not reference")
    completed = inv("hil", "--board", folder, "--report-dir", tmp_path / "reports", *suites)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    tests = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())["tests"]
    reasons = {test["message"] for test in tests if test["outcome"] == "skipped"}
    assert reasons == {f"not on this board: it has {lack}" for lack in lacking}
    assert sum(test["outcome"] == "passed" for test in tests) >= 11


def test_toolchain_row_of_a_folder_is_its_own(tmp_path: Path) -> None:
    own = boards.load(str(_copy(tmp_path, "sifive-u")))
    assert own.cpu_row.core == "rv32imac"
    with pytest.raises(ConfigError, match="no row 'rv32imac'") as caught:
        boards.load(str(_copy(tmp_path, "vexpress-a9", cpu="rv32imac")))
    assert "toolchain.yaml beside your board.yaml" in caught.value.hint


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"rv32imafc": _ROW}, r"toolchain\.yaml: cpus: .*riscv64-unknown-elf\.yaml has a row 'rv32imafc' too"),
        ({"rv32imac": _ROW | {"flag": "-O3"}}, r"toolchain\.yaml: cpus\.rv32imac\.flag: Extra inputs"),
        ({}, r"toolchain\.yaml: cpus: .*at least 1 item"),
    ],
)
def test_error_names_the_file_of_an_invalid_row(tmp_path: Path, rows: dict[str, Any], message: str) -> None:
    folder = _copy(tmp_path, "sifive-u")
    (folder / "toolchain.yaml").write_text(yaml.safe_dump({"cpus": rows}))
    with pytest.raises(ConfigError, match=message):
        boards.load(str(folder))


def test_unreadable_board_file_is_refused(tmp_path: Path) -> None:
    folder = _copy(tmp_path, "sifive-u")
    file = folder / "board.yaml"
    text = file.read_text()
    for content, message in (
        (f"{text}cpu: rv64imac\n", r"is not valid YAML: line \d+: 'cpu' occurs twice"),
        (f"{text}# {'x' * (1 << 20)}\n", "is larger than 1 MiB"),
    ):
        file.write_text(content)
        with pytest.raises(ConfigError, match=message):
            boards.load(str(folder))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match="is missing"):
        boards.load(str(loop))


def test_unknown_architecture_is_named(tmp_path: Path) -> None:
    folder = _copy(tmp_path, "sifive-u")
    (folder / "toolchain.yaml").write_text(yaml.safe_dump({"cpus": {"rv32imac": _ROW | {"architecture": "sparc"}}}))
    with pytest.raises(
        ConfigError, match=r"board\.yaml: cpu: row 'rv32imac' has the unknown architecture 'sparc'"
    ) as caught:
        boards.load(str(folder))
    assert caught.value.hint == "choose one of cortex_a, cortex_m, host, riscv"


@pytest.mark.slow
def test_missing_number_of_a_port_is_named(tmp_path: Path) -> None:
    port = {"name": "pl011", "numbers": {"ticks": 16, "cycles": 5}}
    wrong = _copy(tmp_path, "vexpress-a9", port=port)
    completed = inv("firmware.size", "--model", ROOT / "models" / "digits" / "digits.onnx", "--board", wrong)
    assert completed.returncode == 2
    assert f"{wrong / 'board.yaml'}: port: numbers has no uart" in completed.stderr


@pytest.mark.parametrize(
    ("name", "port", "message"),
    [
        ("sifive-u", None, "port: numbers has no clint: address of the core-local interruptor"),
        ("sifive-u", {"name": "plain", "numbers": {"clint": 0x2000000}}, "port: numbers has no tick"),
        ("vexpress-a9", {"name": "pl011", "numbers": {"uart": 0x10009000}}, "port: numbers has no ticks"),
    ],
)
def test_missing_number_of_a_core_is_named(
    tmp_path: Path, name: str, port: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        boards.load(str(_copy(tmp_path, name, port=port)))
