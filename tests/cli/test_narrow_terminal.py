# SPDX-License-Identifier: Apache-2.0
"""Every command with a table prints all of it within 80 columns."""

import io
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import onnx
import pytest

from hil_tests.programs import handwritten
from tests.cli.running import inv
from tests.pages.samples import nightly_report_of, run_that_failed, run_that_passed
from utvm import boards
from utvm.firmware import build
from utvm.hil.display import Display
from utvm.hil.nightly.display import NightlyDisplay
from utvm.paths import PACKAGE, ROOT

pytestmark = pytest.mark.slow

_DIGITS = ROOT / "models" / "digits"
_INT8 = _DIGITS / "digits_int8.tflite"
_SAMPLES = _DIGITS / "samples.npz"

_EMULATED = ("--virtual", "--board")  # These take long: nightly.

# Commands for each module that prints a table.
_TABLES = {
    "board_list": [("board.list",)],
    "board_show": [("board.show", "stm32f746"), ("board.detect",)],
    "env": [("cache.prune", "--dry-run")],
    "firmware": [("firmware.size", _INT8, "--board", "stm32f746")],
    "model_eval": [
        ("model.compare", "LONG", "--boards", "host", "--output", "OUT/c.svg"),
        ("model.eval", "LONG", "--board", "host", "--samples", _SAMPLES, "--labels"),
    ],
    "model_library": [
        ("model.report", "LONG", "--output", "OUT"),
        ("model.report", _INT8, "--board", "pynq-z1", "--set", "accelerator=all", "--output", "OUT"),
    ],
    "model_profile": [
        ("model.profile", "LONG", "--board", "host", "--output", "OUT"),
        ("model.profile", _INT8, *_EMULATED, "pynq-z1:driver=qemu", "--set", "accelerator=all", "--output", "OUT"),
    ],
    "model_quantize": [("model.quantize", "LONG", "--samples", _SAMPLES, "--output", "OUT/q.onnx")],
    # The second run measures another candidate.
    "model_tune": [("model.tune", "LONG", *_EMULATED, "mps2-an500", "--trials", "1", "--log", "OUT/log")],
    "project": [("project.create",)],
    "root_doctor": [("doctor",)],
    "vm": [("vm.status",)],
}
# Tested below, and in tests/history/test_changes.py; tests/environment/test_advisories.py has another table of env.
_ELSEWHERE = {"display", "history"}


def test_every_module_with_a_table_is_tested() -> None:
    modules = {
        path.stem
        for path in PACKAGE.rglob("*.py")
        if re.search(r"from rich.table|OUT.table\(", path.read_text()) and path.stem not in ("terminal", "output")
    }
    assert modules == {*_TABLES, *_ELSEWHERE}


def _long_names(folder: Path) -> Path:
    """Write the digits model with layer names that are longer than a column."""
    model = onnx.load(_DIGITS / "digits.onnx")
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{'a_block_of_a_network_' * 4}{name}" if name.endswith("_out") else name for name in names]
    onnx.save(model, folder / "digits.onnx")
    return folder / "digits.onnx"


def _without_numbers(line: str) -> str:
    """Return a line without its numbers: on a process, they differ from run to run."""
    return re.sub(r"[\d,.]+", "#", line)


def _letters(text: str) -> Counter[str]:
    return Counter(re.sub(r"[\W\d_]", "", text))


def _check(narrow: str, wide: str) -> None:
    # The terminal itself wraps text outside of tables.
    words = {_without_numbers(line) for line in wide.splitlines()}
    long = [line for line in narrow.splitlines() if len(line) > 80 and _without_numbers(line) not in words]
    assert not long, "\n".join(long)
    assert _letters(narrow) == _letters(wide), narrow


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=pytest.mark.nightly if "--virtual" in words else (), id=f"{maker}-{number}")
        for maker, several in _TABLES.items()
        for number, words in enumerate(several)
    ],
)
def test_table_is_complete_at_80_columns(words: tuple[object, ...], tmp_path: Path) -> None:
    model = _long_names(tmp_path) if "LONG" in words else _INT8
    command = [str(word).replace("OUT", str(tmp_path)).replace("LONG", str(model)) for word in words]
    wide, narrow = (inv(*command, COLUMNS=columns) for columns in ("400", "80"))
    assert wide.returncode == narrow.returncode in (0, 3), narrow.stderr
    assert "\n" in narrow.stdout
    _check(narrow.stdout, wide.stdout)


def test_board_is_one_line_without_a_terminal() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = f"{ROOT}/inv board.list | grep nrf5340dk"
    completed = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
    (line,) = completed.stdout.splitlines()
    assert "Nordic nRF5340 DK" in line and line.split()[-1] == "utvm"


class _Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_run_tables_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = run_that_failed(build(boards.load("stm32f746"), [handwritten("twice", "  return 0;")]))
    night = nightly_report_of((failed, None), (run_that_passed(), None))
    monkeypatch.setenv("TERM", "dumb")

    def display(columns: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", columns)
        run, nightly = _Terminal(), _Terminal()
        Display(run).close(failed, None)
        NightlyDisplay(nightly).close(night, Path("reports"))
        return [run.getvalue(), nightly.getvalue()]

    for narrow, wide in zip(display("80"), display("400"), strict=True):
        _check(narrow, wide)
