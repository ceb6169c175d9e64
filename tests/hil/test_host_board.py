# SPDX-License-Identifier: Apache-2.0
"""The suites on the board that is a process: no emulator, no debug port."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.hil.running import Runner
from utvm.paths import ROOT


def _hil(reports: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [ROOT / ".venv" / "bin" / "python", "-m", "pytest", "-p", "utvm.hil.plugin", f"--rootdir={ROOT}"]
    options = ["--override-ini=addopts=", "-pno:cacheprovider", f"--report-dir={reports}", "--board=host"]
    return subprocess.run(
        [*command, *options, *words], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.slow
def test_missing_debug_port_is_named(tmp_path: Path) -> None:
    completed = _hil(tmp_path, str(ROOT / "hil_tests" / "test_flash.py"), str(ROOT / "hil_tests" / "test_rpc.py"))
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "PASSED on a PROCESS host" in completed.stdout
    report = json.loads((tmp_path / "latest" / "report.json").read_text())
    assert report["board"] == {
        "id": "host",
        "name": "host",
        "settings": {},
        "kind": "process",
        "probe": "",
        "serial": "",
    }
    for test in report["tests"]:
        skipped = test["id"].startswith("flash::")
        assert test["outcome"] == ("skipped" if skipped else "passed"), test
        assert ("not on this board: it has no debug port" in test["message"]) == skipped


@pytest.mark.nightly
def test_all_suites_pass(tmp_path: Path) -> None:
    completed = _hil(tmp_path, str(ROOT / "hil_tests"))
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((tmp_path / "latest" / "report.json").read_text())
    assert {test["outcome"] for test in report["tests"]} == {"passed", "skipped"}
    assert all(
        "not on this board" in test["message"] or "depend on what the caches hold" in test["message"]
        for test in report["tests"]
        if test["outcome"] == "skipped"
    )
    assert [(model["name"], model["accuracy"]) for model in report["models"]][:4] == [
        ("cifar10_cnn", None),
        ("cifar10_cnn_graph", None),
        ("digits", 0.9875),
        ("digits_int8", 0.9875),
    ]


@pytest.mark.slow
def test_process_is_neither_virtual_nor_physical() -> None:
    completed = subprocess.run(
        [ROOT / "inv", "hil", "--board", "host", "--virtual"], capture_output=True, text=True, timeout=120, check=False
    )
    assert completed.returncode == 2
    assert "host is a process" in completed.stderr


_SIGNALLED = """
import signal
import threading
import numpy as np
import psutil
from hil_tests.programs import handwritten

def _send_signal(program):
    while program.cpu_times().user < 0.1:
        pass
    program.send_signal(signal.SIGSEGV)

def test_gets_a_signal(session, firmware):
    body = "  volatile int32_t go = 1;\\n  while (go) {\\n    y[0] = x[0];\\n  }\\n  return 0;"
    running = session(firmware([handwritten("endless", body)]))
    (program,) = psutil.Process().children()
    threading.Thread(target=_send_signal, args=(program,)).start()
    running.run("endless", [np.zeros(4, np.int32)])
"""


@pytest.mark.slow
def test_foreign_signal_is_infrastructure(run_suite: Runner) -> None:
    completed = run_suite(_SIGNALLED, options=("--board=host",), fake=False)
    assert completed.exit_code == 3, completed.stdout + completed.stderr
    assert completed.outcomes == {"test_gets_a_signal": "infrastructure"}, completed.messages
