# SPDX-License-Identifier: Apache-2.0
"""``model.profile``: what each operator takes on a board."""

import json
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
    assert "<svg" in (folder / "profile.html").read_text()
    content: dict[str, object] = json.loads((folder / "profile.json").read_text())
    folded = (folder / "profile.folded").read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in folded) == content["total"]
    return content


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
    content = _profile(tmp_path, "--board", "stm32f746", "--virtual")
    assert content["unit"] == "instructions"
    assert isinstance(content["total"], int)
    assert 0.995 * alone < content["total"] <= alone


def test_a_model_must_be_named() -> None:
    done = inv("model.profile", "--board", "host")
    assert done.returncode == 2
    assert "needs MODEL" in done.stderr
