# SPDX-License-Identifier: Apache-2.0
"""``model.package`` and ``model.report``: what is known of a model without a board."""

import json
import re
import tarfile
from pathlib import Path

import pytest
from running import inv

from utvm.paths import ROOT

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"


@pytest.mark.slow
def test_a_package_is_written_for_a_board_s_cpu(tmp_path: Path) -> None:
    archive = tmp_path / "digits.tar"
    done = inv("model.package", "--model", MODEL, "--board", "stm32f746", "--output", archive)
    assert done.returncode == 0, done.stderr
    assert f"wrote {archive}" in done.stdout
    with tarfile.open(archive) as tar:
        facts = tar.extractfile("./metadata.json")
        assert facts
        assert json.load(facts)["utvm"]["target"] == {
            "core": "cortex-m7",
            "extensions": ["dsp"],
            "row": "arm-none-eabi/cortex-m7-fpv5-sp",
        }


@pytest.mark.slow
def test_a_report_shows_operators_memory_and_the_plan(tmp_path: Path) -> None:
    options = ("--memory", "fast=512,slow", "--pin", "image=slow", "--executor", "graph", "--output", tmp_path)
    done = inv("model.report", "--model", MODEL, *options)
    assert done.returncode == 0, done.stderr
    assert "conv2d" in done.stdout
    assert re.search(r"^fast: \d+ bytes", done.stdout, re.MULTILINE)
    page = tmp_path / "digits_int8-report" / "compile.html"
    assert f"report: {page}" in done.stdout
    assert "<svg" in page.read_text()
    content = json.loads((page.parent / "compile.json").read_text())
    assert content["executor"] == "graph"
    assert [arena["region"] for arena in content["arenas"]] == ["fast", "slow"]
    assert content["arenas"][0]["size_bytes"] <= 512
    (image,) = [block for block in content["blocks"] if block["tensor"] == "image"]
    assert image["region"] == "slow"


# cppcheck takes a minute over the runtime; what it finds is held, also in CI, by tests/compiler/test_misra.py.
@pytest.mark.nightly
def test_a_report_counts_misra_findings_and_says_why_they_stay(tmp_path: Path) -> None:
    done = inv("model.report", "--model", MODEL, "--misra", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    rules = json.loads((tmp_path / "digits_int8-report" / "compile.json").read_text())["misra"]
    by_number = {each["rule"]: each for each in rules}
    assert by_number["8.14"]["library"] > 0 and by_number["11.4"]["runtime"] > 0
    assert all(len(each["reason"]) > 20 for each in rules)
    assert by_number["8.14"]["reason"][:40] in (tmp_path / "digits_int8-report" / "compile.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", MODEL, "--executor", "vm"], "no executor 'vm'"),
        (["--model", MODEL, "--memory", "fast=lots"], "'fast=lots' is no memory region"),
        (["--model", MODEL, "--pin", "image"], "TENSOR=REGION"),
        (["--model", MODEL, "--memory", "fast=64K", "--pin", "image=slow"], "slow"),
        (["--model", MODEL, "--memory", "fast=64K", "--pin", "picture=fast"], "picture"),
        (["--model", MODEL, "--memory", "fast=100"], "fast has 100 bytes"),
        (["--model", MODEL, "--output", "/proc/nowhere/x"], "/proc/nowhere"),
        ([], "no model is named"),
    ],
)
@pytest.mark.parametrize("command", ["model.report", pytest.param("model.package", marks=pytest.mark.slow)])
def test_wrong_usage_is_one_message_and_exit_code_2(command: str, options: list[object], said: str) -> None:
    done = inv(command, *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
