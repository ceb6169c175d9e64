# SPDX-License-Identifier: Apache-2.0
"""``model.profile``: the cost of each operator on a board."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm.compiler import Target, compile_model, load
from utvm.compiler.library import Call
from utvm.paths import ROOT
from utvm.session.profile import floor_of

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"


def _profile(tmp_path: Path, *words: object) -> dict[str, object]:
    completed = inv("model.profile", "--model", MODEL, "--output", tmp_path, *words)
    assert completed.returncode == 0, completed.stderr
    folder = tmp_path / "digits_int8-profile"
    page = (folder / "profile.html").read_text()
    assert '<td class="name">conv1</td>' in page
    assert re.search(r"^ 0 +conv1 +\S+", completed.stdout, re.MULTILINE)
    content: dict[str, object] = json.loads((folder / "profile.json").read_text())
    folded = (folder / "profile.folded").read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in folded) == content["total"]
    assert re.match(r"digits_int8;\w+;0 conv1 \d+$", folded[0])
    return content


@pytest.mark.parametrize("executor", ["aot", pytest.param("graph", marks=pytest.mark.slow)])
def test_steps_of_a_process_are_timed(tmp_path: Path, executor: str) -> None:
    content = _profile(tmp_path, "--board", "host", "--set", f"executor={executor}")
    assert content["unit"] == "ns"
    library = compile_model(load(MODEL))
    steps = content["steps"]
    assert isinstance(steps, list)
    assert [f"digits_int8_{step['function']}" for step in steps] == list(library.operators)
    # A step may be shorter than the resolution of the computer's clock.
    assert content["total"] == sum(step["count"] for step in steps) > 0
    # The largest step needs at least the lower bound of all plans.
    assert max(step["live_bytes"] for step in steps) >= library.lower_bound_bytes


@pytest.mark.slow
def test_steps_of_a_virtual_board_add_up_to_the_run(tmp_path: Path) -> None:
    completed = inv("model.run", "--model", MODEL, "--board", "stm32f746", "--virtual", "--json", tmp_path / "run.json")
    assert completed.returncode == 0, completed.stderr
    alone = json.loads((tmp_path / "run.json").read_text())["instructions"]
    content = _profile(tmp_path, "--board", "stm32f746", "--virtual")
    assert content["unit"] == "instructions"
    assert isinstance(content["total"], int)
    assert 0.995 * alone < content["total"] <= alone


def test_missing_model_is_an_error() -> None:
    completed = inv("model.profile", "--board", "host")
    assert completed.returncode == 2
    assert "needs MODEL" in completed.stderr


def _write_profile(path: Path, counts: dict[str, int], unit: str = "instructions") -> Path:
    """Write a profile with the layers' names and counts, and ten multiply-accumulates for each."""
    steps = [
        {"number": number, "function": "f", "kind": "k", "macs": 10, "count": count, "live_bytes": 0, "makes": [name]}
        for number, (name, count) in enumerate(counts.items())
    ]
    profile = {"model": "m", "executor": "aot", "board": "b", "unit": unit, "steps": steps, "arena_bytes": 0}
    path.write_text(json.dumps(profile))
    return path


def test_two_profiles_are_compared_layer_by_layer(tmp_path: Path) -> None:
    long = "a_block_of_a_network_" * 5
    before = _write_profile(tmp_path / "before", {"one": 100, long: 1_000_000, "gone": 7})
    after = _write_profile(tmp_path / "after", {"one": 50, long: 2_500_000, "new": 9})
    words = ("model.profile", "--diff", before, after, "--json=" + str(tmp_path / "json"))
    completed = inv(*words, cwd=tmp_path, COLUMNS="80")
    assert completed.returncode == 0, completed.stderr
    assert re.search(r"^ one +100 +50 +0\.500 +10\.00 +5\.00 *$", completed.stdout, re.MULTILINE)
    assert "2.500" in completed.stdout
    table = completed.stdout[completed.stdout.index("makes") :]
    assert max(map(len, table.splitlines())) <= 80
    assert re.findall("<h2>(.*)</h2>", (tmp_path / "build" / "profiles.html").read_text()) == ["before", "after"]
    # A name that is longer than its column is wrapped.
    assert re.sub(r"[^a-z]", "", table).count("ablockofanetwork") == 5
    assert json.loads((tmp_path / "json").read_text()) == {
        "unit": "instructions",
        "total": [1_000_107, 2_500_059],
        "layers": [
            {"makes": "one", "counts": [100, 50]},
            {"makes": long, "counts": [1_000_000, 2_500_000]},
            {"makes": "gone", "counts": [7, None]},
            {"makes": "new", "counts": [None, 9]},
        ],
    }


def test_incompatible_profiles_are_refused(tmp_path: Path) -> None:
    profile = _write_profile(tmp_path / "one", {"one": 1})
    (tmp_path / "no").write_text('{"model": "m"}')
    others = {
        tmp_path / "no": "is not a profile",
        tmp_path / "nowhere": "there is no such file",
        _write_profile(tmp_path / "ns", {"one": 1}, "ns"): "counts instructions and",
        _write_profile(tmp_path / "other", {"other": 1}): "no layer in common",
    }
    for other, message in others.items():
        completed = inv("model.profile", "--diff", profile, other)
        assert completed.returncode == 2 and message in completed.stderr, completed.stderr


@pytest.mark.parametrize(
    ("kind", "kernel", "row", "floor"),
    [
        ("conv2d_int8", "DSP extension: two products in an instruction", "arm-none-eabi/cortex-m7-fpv5-sp", 0.5),
        ("conv2d_int8", "MVE: 16 products in an instruction", "arm-none-eabi/cortex-m55", 1 / 16),
        ("conv2d_int8", "plain C: two pixels in a word", "arm-none-eabi/cortex-m3", 0.5),
        ("conv2d_int8", "plain C: two pixels in a word", "arm-none-eabi/cortex-m0", 1),
        ("fused_conv2d", "", "arm-none-eabi/cortex-m4-fpv4-sp", 2),
        ("fused_conv2d", "loops as they were tuned", "arm-none-eabi/cortex-m4-fpv4-sp", 2),
        # Without an FPU or without a known kernel, there is no floor.
        ("fused_conv2d", "", "arm-none-eabi/cortex-m3", None),
        ("conv2d_int8", "", "arm-none-eabi/cortex-m7-fpv5-sp", None),
    ],
)
def test_floor_of_a_step(kind: str, kernel: str, row: str, floor: float | None) -> None:
    call = Call("f", kind, 10, (), (), kernel)
    assert floor_of(call, Target("", (), row)) == floor


@pytest.mark.slow
def test_profile_has_instructions_per_mac_and_floor(tmp_path: Path) -> None:
    for model in ("digits.onnx", "digits_int8.tflite"):
        model_of = ROOT / "models" / "digits" / model
        completed = inv("model.profile", model_of, "--board", "mps2-an500", "--output", tmp_path, "--json")
        steps = [step for step in json.loads(completed.stdout)["steps"] if step["macs"]]
        # From the network's geometry, with padding.
        assert [step["macs"] for step in steps] == [8 * 8 * 16 * 9, 4 * 4 * 32 * 16 * 9, 128 * 10]
        assert all(step["count"] / step["macs"] > step["floor"] > 0 for step in steps)
