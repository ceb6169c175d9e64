# SPDX-License-Identifier: Apache-2.0
"""A run on a terminal that gets ^C, or is closed."""

import contextlib
import json
import os
import pty
import re
import sys
import time
from pathlib import Path

import pytest

from tests.hil.running import ROOT
from tests.signals import reset_signals

_SUITE = (
    "import pathlib, time\ndef test_a(board):\n    pass\n"
    "def test_b(board):\n    pathlib.Path('sleeping').touch()\n    time.sleep(600)\n"
)
_CTRL_C = b"\x03"


def _start(folder: Path) -> tuple[int, int]:
    """Start a run in a terminal of its own; return its process and our end when a test runs."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_suite.py").write_text(_SUITE)
    words = [
        *(sys.executable, "-m", "pytest", "-pno:cacheprovider", "-putvm.hil.plugin", "-ptests.hil.fake_board"),
        *(f"--report-dir={folder / 'build' / 'reports'}", "--board=stm32f746", "--virtual", "."),
    ]
    variables = {"FAKE_LOG": str(folder / "log"), "PYTHONPATH": str(ROOT), "COLUMNS": "200", "TERM": "xterm"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        reset_signals()
        os.execve(sys.executable, words, {**os.environ, **variables})
    os.set_blocking(terminal, False)
    while not (folder / "sleeping").exists():
        _read(terminal)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        time.sleep(0.02)
    return pid, terminal


def _read(terminal: int) -> bytes:
    # BlockingIOError: nothing to read; OSError: the other end is closed.
    with contextlib.suppress(OSError):
        return os.read(terminal, 1 << 16)
    return b""


def _verdict(folder: Path) -> str:
    report = json.loads((folder / "build" / "reports" / "latest" / "report.json").read_text())
    return str(report["verdict"])


@pytest.mark.slow
def test_verdict_has_its_own_line(tmp_path: Path) -> None:
    pid, terminal = _start(tmp_path)
    os.write(terminal, _CTRL_C)
    time.sleep(0.1)
    os.write(terminal, _CTRL_C)
    output, ended = b"", 0
    while not ended:
        output += _read(terminal)
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    output += _read(terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 3
    # The terminal's echo of the second ^C may come last.
    _, _, last = output.decode().rstrip().removesuffix("^C").rstrip().rpartition("\n")
    # The text after the last clearing of the line, without colours.
    line = re.sub(r"\x1b\[[0-9;]*m", "", last.rpartition("\r\x1b[2K")[2])
    assert line.startswith("NO VERDICT (interrupted)"), last
    assert _verdict(tmp_path) == "interrupted"


@pytest.mark.slow
def test_closed_terminal_does_not_prevent_the_report(tmp_path: Path) -> None:
    pid, terminal = _start(tmp_path)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert _verdict(tmp_path) == "interrupted"
    assert (tmp_path / "log").read_text().split() == ["attached", "released"]
