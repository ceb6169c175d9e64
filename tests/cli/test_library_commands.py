# SPDX-License-Identifier: Apache-2.0
"""``model.package`` and ``model.report``: information about a model without a board."""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.running import inv
from utvm.paths import ROOT

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"


@pytest.mark.slow
def test_package_is_for_the_cpu_of_a_board(tmp_path: Path) -> None:
    archive = tmp_path / "digits.tar"
    completed = inv("model.package", "--model", MODEL, "--board", "stm32f746", "--output", archive, "--json")
    assert completed.returncode == 0, completed.stderr
    assert f"wrote {archive}" in completed.stderr
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    results = {"archive": str(archive), "bytes": archive.stat().st_size, "sha256": digest}
    assert json.loads(completed.stdout) == results
    with tarfile.open(archive) as tar:
        metadata = tar.extractfile("./metadata.json")
        assert metadata
        content = json.load(metadata)["utvm"]
        assert content["target"] == {
            "core": "cortex-m7",
            "extensions": ["dsp", "dual", "fpu"],
            "row": "arm-none-eabi/cortex-m7-fpv5-sp",
        }
        assert content["calls"][0]["kernel"] == "DSP extension: two products in an instruction, weights in RAM"


_LACKS = """
import sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("_pytest", "pytest", "unicorn", "usb", "libusb_package"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Lacking())
from utvm.__main__ import main
main()
"""


@pytest.mark.slow
def test_models_are_compiled_without_what_boards_and_suites_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LACKS, "model.package", MODEL, "--output", tmp_path / "digits.tar"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert completed.returncode == 0 and (tmp_path / "digits.tar").exists(), completed.stderr
    command[3:] = ["hil", "--board", "host"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert completed.returncode == 3 and completed.stderr.endswith("pip install 'utvm[boards]'\n"), completed.stderr


@pytest.mark.slow
def test_report_shows_operators_and_memory_plan(tmp_path: Path) -> None:
    settings = ("--set", "memory=fast=512,slow", "--set", "pin=image=slow", "--set", "executor=graph")
    completed = inv("model.report", "--model", MODEL, *settings, "--output", tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "conv2d" in completed.stdout
    assert re.search(r"^fast: \d+ bytes", completed.stdout, re.MULTILINE)
    page = tmp_path / "digits_int8-report" / "compile.html"
    assert f"report: {page}" in completed.stdout
    assert "<svg" in page.read_text()
    content = json.loads((page.parent / "compile.json").read_text())
    assert content["executor"] == "graph"
    assert content["calls"][0]["kernel"] == "plain C: two pixels in a word"
    assert "plain C: two pixels in a word" in completed.stdout and "two pixels in a word" in page.read_text()
    assert [arena["region"] for arena in content["arenas"]] == ["fast", "slow"]
    assert content["arenas"][0]["size_bytes"] <= 512
    (image,) = [block for block in content["blocks"] if block["tensor"] == "image"]
    assert image["region"] == "slow"


# cppcheck takes a minute for the runtime; tests/compiler/test_misra.py checks its findings, also in CI.
@pytest.mark.nightly
def test_report_counts_and_explains_misra_findings(tmp_path: Path) -> None:
    completed = inv("model.report", "--model", MODEL, "--misra", "--output", tmp_path)
    assert completed.returncode == 0, completed.stderr
    rules = json.loads((tmp_path / "digits_int8-report" / "compile.json").read_text())["misra"]
    by_number = {rule["rule"]: rule for rule in rules}
    assert by_number["8.14"]["library"] > 0 and by_number["11.4"]["runtime"] > 0
    assert all(len(rule["reason"]) > 20 for rule in rules)
    assert by_number["8.14"]["reason"][:40] in (tmp_path / "digits_int8-report" / "compile.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", MODEL, "--set", "executor=vm"], "executor cannot be 'vm'\n  hint: it is one of aot, graph"),
        (["--model", MODEL, "--set", "memory=fast=lots"], "'fast=lots' is not a memory region"),
        (["--model", MODEL, "--set", "pin=image"], "TENSOR=REGION"),
        (
            ["--model", MODEL, "--set", "colour=red"],
            "the unknown key 'colour'\n  hint: the keys are shape, signature, tuned",
        ),
        (["--model", MODEL, "--set", "colour=3"], "no input that --set can fix: colour"),
        (["--model", MODEL, "--set", "in-ram=yes"], "has the unknown key 'in-ram'"),
        (["--model", MODEL, "--set", "tuned"], "--set 'tuned' is not KEY=VALUE"),
        (["--model", MODEL, "--set", "executor=aot", "--set", "executor=graph"], "--set executor is given twice"),
        (["--model", MODEL, "--set", "unchecked-indices=on"], "it is one of yes, no"),
        (["--model", MODEL, "--set", "memory=fast=64K", "--set", "pin=image=slow"], "slow"),
        (["--model", MODEL, "--set", "memory=fast=64K", "--set", "pin=picture=fast"], "picture"),
        (["--model", MODEL, "--set", "memory=fast=100"], "fast has 100 bytes"),
        (["--model", MODEL, "--output", "/proc/nowhere/x"], "/proc/nowhere"),
        ([], "needs MODEL"),
    ],
)
@pytest.mark.parametrize("command", ["model.report", pytest.param("model.package", marks=pytest.mark.slow)])
def test_usage_error_is_one_message_and_exit_code_2(command: str, options: list[object], message: str) -> None:
    completed = inv(command, *options)
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
def test_memory_regions_change_no_output() -> None:
    run = ["model.run", MODEL, "--board", "host", "--json"]
    regions = ("--set", "memory=fast=256,slow", "--set", "pin=image=fast")
    plain, in_regions = (inv(*run, *options) for options in ((), regions))
    assert (plain.returncode, in_regions.returncode) == (0, 0), in_regions.stderr
    assert json.loads(plain.stdout)["outputs_sha256"] == json.loads(in_regions.stdout)["outputs_sha256"]
    wrong = inv(*run, "--set", "memory=fast=64K", "--set", "pin=picture=fast")
    assert (wrong.returncode, "picture" in wrong.stderr) == (2, True)


@pytest.mark.nightly
def test_boards_report_the_needs_of_a_model(tmp_path: Path) -> None:
    weights = np.ones((512, 1024), np.float32)  # 2 MiB: more than one board's flash, less than another's
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1024])],
        [numpy_helper.from_array(weights, "w")],
    )
    large = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), large)
    completed = inv("board.list", "--fits", large)
    assert completed.returncode == 0, completed.stderr
    _, _, table = completed.stdout.partition("board ")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()[1:]}
    assert "host" not in rows
    assert rows["stm32f746"][0] == "no"
    assert "2097152" in " ".join(rows["stm32f746"])
    assert rows["mps2-an500"][0] == "yes"
    assert int(rows["mps2-an500"][1].replace(",", "")) > weights.nbytes
