# SPDX-License-Identifier: Apache-2.0
"""docs/porting.md agrees with the keys, functions, sizes and error messages."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from utvm import boards
from utvm.base.storage.config import Record
from utvm.boards import Board
from utvm.boards.parts import Lack
from utvm.errors import ConfigError
from utvm.hil import project
from utvm.paths import ROOT
from utvm.runtime import INCLUDE
from utvm.toolchain.compiler import DIRECTORY, Cpu

_GUIDE = (ROOT / "docs" / "porting.md").read_text(encoding="utf-8")
# Text between backticks, without the code blocks.
_QUOTED = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", _GUIDE, flags=re.DOTALL))
_NAME = "netduinoplus2"
_FOLDER = ROOT / "utvm" / "boards" / _NAME


def _own(folder: Path, **changes: Any) -> Path:
    target = folder / _NAME
    shutil.copytree(_FOLDER, target)
    content = yaml.safe_load((target / "board.yaml").read_text()) | changes
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return target


def _records(annotation: Any) -> Iterator[type[Record]]:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        yield annotation
    for part in get_args(annotation):
        yield from _records(part)


def _keys(record: type[Record]) -> Iterator[str]:
    """Yield the keys of a record and of the records in it."""
    for name, field in record.model_fields.items():
        if not field.exclude or name == "settings":
            yield field.alias or name
            for inner in _records(field.annotation):
                yield from _keys(inner)


@pytest.mark.parametrize("key", sorted({*_keys(Board), *_keys(Cpu)}))
def test_every_key_is_explained(key: str) -> None:
    assert any(key in re.findall(r"\w+", text) for text in _QUOTED), f"docs/porting.md does not say what {key} is"


def test_every_function_of_a_port_is_explained() -> None:
    functions = set(re.findall(r"\butvm_port_\w+", (INCLUDE / "utvm.h").read_text(encoding="utf-8")))
    assert len(functions) >= 10
    assert functions <= set(re.findall(r"^\| `(utvm_port_\w+)` \|", _GUIDE, re.MULTILINE))


def test_every_missing_capability_is_explained() -> None:
    for lack in get_args(Lack):
        assert f"`{lack}`" in " ".join(_GUIDE.split())


def test_suites_of_the_guide_exist() -> None:
    named = {name for words in re.findall(r"--suite ([\w,]+)", _GUIDE) for name in words.split(",")}
    assert named >= {"memory", "counter", "rpc"}
    assert named <= set(project.suite_names())


def test_board_needs_the_stated_lines_and_no_python() -> None:
    toolchain = (DIRECTORY / "arm-none-eabi.yaml").read_text(encoding="utf-8")
    row = re.search(r"^  cortex-m4-fpv4-sp:\n(?:    .*\n)+", toolchain, re.MULTILINE)
    assert row
    lines = len((_FOLDER / "board.yaml").read_text().splitlines())
    sentence = (
        f"takes {lines} lines of `board.yaml`, {len(row[0].splitlines())} of `toolchains/arm-none-eabi.yaml`, "
        "and no Python"
    )
    assert sentence in " ".join(_GUIDE.split())
    assert {path.name for path in _FOLDER.iterdir()} == {"board.yaml"}
    for folder in ("utvm", "hil_tests"):
        for path in (ROOT / folder).rglob("*.py"):
            assert _NAME not in path.read_text(encoding="utf-8"), path


_RAM = {"name": "ram", "address": 0x2000_0000, "size": "64K", "kind": "ram"}
_FLASH = {"name": "flash", "address": 0x0800_0000, "size": "1M", "kind": "flash"}
_LAYOUT = {"code": "flash", "data": "sram", "stack": "sram-qemu", "stack_size": "8K"}
_ONE = {"code": "flash", "data": "sram", "stack": "sram", "stack_size": "8K"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a"}, "name is 'a', the folder"),
        ({"cpu": "cortex-m5"}, "cpus has no row 'cortex-m5'"),
        (
            {"memory": [{**_FLASH, "sectors": ["16K"] * 3 + ["64K"] + ["128K"] * 7}]},
            "sectors of flash add up to 1032192 bytes, not 1048576",
        ),
        (
            {"layout": _LAYOUT, "cpu": "cortex-m0"},
            "layout.stack: an overflow must leave memory, but something lies below ",
        ),
        ({"layout": _ONE}, "layout.stack: an overflow must leave memory, but data lies in its region too"),
        ({"port": {"name": "no_such"}}, "port: there is no port "),
        ({"counter_hz": 200_000_000}, "counter_hz: instructions of 1.6 ticks cannot be counted"),
        ({"interrupts": 20}, "console: irq 37 is out of range; there are 20 lines"),
        (
            {
                "physical": {
                    "identity": {"register_name": "ID", "address": 0, "mask": 1, "value": 1},
                    "probes": [{"kind": "st-link", "vendor": 1, "product": 2}],
                    "select_serial": "adapter serial {serial}",
                }
            },
            "openocd.cfg: is missing",
        ),
    ],
)
def test_messages_of_the_guide_are_printed(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert message in _GUIDE
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        boards.load(str(_own(tmp_path, **changes)))
    assert caught.value.hint


@pytest.mark.slow
def test_board_without_a_port_behaves_as_described(tmp_path: Path) -> None:
    """The first image: no set-up, and a counter that does not advance is noticed."""
    folder = _own(tmp_path, cycle_counter="architecture", port={"name": "plain"}, counter_hz=125000000)

    def run(suites: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "utvm", "hil", "--board", str(folder), "--suite", suites],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    passing = run("health,memory")
    assert passing.returncode == 0, passing.stdout + passing.stderr
    failing = run("debug,counter")
    assert set(re.findall(r"failed hil_tests/\w+.py::(\w+)", failing.stdout)) == {
        "test_reset_run_starts_the_firmware",
        "test_count_of_a_loop_equals_its_single_steps",
    }
    for message in ("the console did not print b'is up\\r\\n' within 10 s", "assert 0 == (1000 * 4)"):
        assert message in _GUIDE
        assert message in failing.stdout
