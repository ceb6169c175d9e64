# SPDX-License-Identifier: Apache-2.0
"""The main command: from the committed model to the verdict, and the remains of an interrupted run."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from utvm.hil.schemas import REPORT
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


def _latest(reports: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((reports / "latest" / "report.json").read_text())
    return content


def _hil(reports: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "inv", "hil", "--board", "stm32f746", "--virtual", "--report-dir", reports, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=2700,
    )


def test_main_command_gives_a_repeatable_verdict(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    first = _hil(reports)
    assert first.returncode == 0, first.stdout[-3000:] + first.stderr
    lines = [line for line in first.stdout.splitlines() if line.strip()]
    assert "VIRTUAL" in lines[0]
    assert re.match(r"PASSED on a VIRTUAL stm32f746: \d+ passed, \d+ skipped; exit code 0", lines[-1])
    report = _latest(reports)
    skipped = [test for test in report["tests"] if test["outcome"] == "skipped"]
    assert [test["id"] for test in skipped if "accelerator" not in test["message"]] == []
    jsonschema.validate(report, json.loads(REPORT.read_text()))
    models = report["models"]
    cifar10, digits = models[:2], models[2:]
    assert [model["name"] for model in cifar10] == ["cifar10_cnn", "cifar10_cnn_graph"]
    assert [model["name"] for model in digits] == ["digits", "digits_int8", "digits_int8_graph"]
    for model in digits:
        assert model["samples"] >= 200
        assert model["accuracy"] >= 0.97
    assert _hil(reports, "--suite", "cifar10", "-k", "graph").returncode == 0
    # The same model, outputs, instruction count and sizes.
    assert _latest(reports)["models"] == cifar10[1:]
    assert _latest(reports)["environment"] == report["environment"]


def _descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


_MOMENTS = [(number, delay) for number in (signal.SIGINT, signal.SIGTERM) for delay in (0.2, 0.5, 1.0, 1.5, 3.0, 6.0)]


@pytest.mark.parametrize(
    ("number", "delay"),
    # An early and a late one each day: the fault campaign has a thousand such moments.
    [pytest.param(*case, marks=() if i in (1, 10) else pytest.mark.nightly) for i, case in enumerate(_MOMENTS)],
)
def test_stop_at_any_moment_leaves_nothing(delay: float, number: signal.Signals, tmp_path: Path) -> None:
    # A separate folder: another run on this machine may be writing a report in the default one.
    reports = tmp_path / "reports"
    with subprocess.Popen(
        [ROOT / "inv", "hil", "--board", "stm32f746", "--virtual", "--report-dir", reports],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        time.sleep(delay)
        started = _descendants(run)
        # As a terminal does: the whole foreground group gets Ctrl-C.
        os.killpg(run.pid, number)
        output, _ = run.communicate(timeout=60)
    # Before Python has started, nothing can catch the signal: then the process ends by it, without running utvm's code.
    before_start = run.returncode == -number and "interrupted" not in output and str(ROOT) not in output
    assert before_start or (run.returncode == 3 and "Traceback" not in output), output
    _, alive = psutil.wait_procs(started, timeout=5)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    for folder in reports.glob("*"):
        assert not folder.name.startswith(".")
        assert {"report.json", "junit.xml", "index.html"} <= {path.name for path in folder.iterdir()}
    after = subprocess.run(
        [ROOT / "inv", "firmware.size", "--model", str(Path("models/digits/digits.onnx")), "--board", "stm32f746"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert after.returncode == 0, after.stderr
