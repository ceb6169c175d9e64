# SPDX-License-Identifier: Apache-2.0
"""``model.profile``: what each operator takes on a board."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm.compiler import compile_model, load
from utvm.paths import ROOT

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"


def _profile(tmp_path: Path, *words: object) -> dict[str, object]:
    done = inv("model.profile", "--model", MODEL, "--output", tmp_path, *words)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "digits_int8-profile"
    page = (folder / "profile.html").read_text()
    assert ">0 conv1<" in page or "<title>0 conv1: " in page
    assert re.search(r"^ 0 +conv1 +\S+", done.stdout, re.MULTILINE)
    content: dict[str, object] = json.loads((folder / "profile.json").read_text())
    folded = (folder / "profile.folded").read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in folded) == content["total"]
    assert re.match(r"digits_int8;\w+;0 conv1 \d+$", folded[0])
    return content


def _check_estimate(tmp_path: Path, content: dict[str, object]) -> None:
    """It stands apart from the counts, is none, and is of every step."""
    assert "estimate" not in json.dumps(content)
    estimate = json.loads((tmp_path / "digits_int8-profile" / "estimate.json").read_text())
    assert estimate["core"] == "cortex-m7"
    assert "wait states" in estimate["leaves_out"]
    counted = content["steps"]
    assert isinstance(counted, list)
    assert [step["instructions"] for step in estimate["steps"]] == [step["count"] for step in counted]
    for step in estimate["steps"]:
        # A Cortex-M7 begins two instructions in a cycle at most, and none of these takes three on its own.
        assert 0.5 <= step["cycles_per_instruction"] < 3
        exact = step["instructions"] * step["cycles_per_instruction"]
        assert step["estimated_cycles"] == pytest.approx(exact, rel=0.001)
    loops = {step["operator"]: step["loop_in"] for step in estimate["steps"]}
    assert loops["conv2d_int81"] == "dot_columns"
    assert estimate["instructions_without_estimate"] == 0
    assert estimate["estimated_cycles"] == sum(step["estimated_cycles"] for step in estimate["steps"])


@pytest.mark.parametrize(
    ("board", "words", "path", "code"),
    [
        ("microbit", "cycles of cortex-m0 cannot be estimated", None, 2),
        ("host", "cycles of x86-64 cannot be estimated", None, 2),
        ("stm32f746", "llvm-mca is not installed\n  hint: apt-get install llvm", "/nowhere", 3),
    ],
)
def test_an_estimate_that_cannot_be_is_refused(board: str, words: str, path: str | None, code: int) -> None:
    environment = {} if path is None else {"PATH": path}
    done = inv("model.profile", MODEL, "--board", board, "--estimate", **environment)
    assert done.returncode == code
    assert words in done.stderr


@pytest.mark.parametrize("executor", ["aot", pytest.param("graph", marks=pytest.mark.slow)])
def test_steps_of_a_process_are_timed(tmp_path: Path, executor: str) -> None:
    content = _profile(tmp_path, "--board", "host", "--executor", executor)
    assert content["unit"] == "ns"
    library = compile_model(load(MODEL))
    steps = content["steps"]
    assert isinstance(steps, list)
    assert [f"digits_int8_{step['function']}" for step in steps] == list(library.operators)
    # A step may be shorter than what the computer's clock can tell.
    assert content["total"] == sum(step["count"] for step in steps) > 0
    # The step that needs most fills what no plan can do without.
    assert max(step["live_bytes"] for step in steps) >= library.lower_bound_bytes


@pytest.mark.slow
def test_the_steps_of_a_virtual_board_add_up_to_its_run(tmp_path: Path) -> None:
    done = inv("model.run", "--model", MODEL, "--board", "stm32f746", "--virtual", "--json", tmp_path / "run.json")
    assert done.returncode == 0, done.stderr
    alone = json.loads((tmp_path / "run.json").read_text())["instructions"]
    content = _profile(tmp_path, "--board", "stm32f746", "--virtual", "--estimate")
    assert content["unit"] == "instructions"
    _check_estimate(tmp_path, content)
    assert isinstance(content["total"], int)
    assert 0.995 * alone < content["total"] <= alone


def test_a_model_must_be_named() -> None:
    done = inv("model.profile", "--board", "host")
    assert done.returncode == 2
    assert "needs MODEL" in done.stderr
