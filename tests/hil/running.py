# SPDX-License-Identifier: Apache-2.0
"""Runs a suite with the plugin in a process of its own, and returns all results."""

import functools
import json
import os
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.copies import start_copy
from tests.signals import reset_signals

ROOT = Path(__file__).parents[2]
_USB_BUS = Path(__file__).parent / "usb_bus"


@dataclass(frozen=True)
class FinishedRun:
    """A completed run."""

    exit_code: int
    stdout: str
    stderr: str
    reports: Path
    connection_log: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def directory(self) -> Path:
        return self.reports / "latest"

    @property
    def report(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / "report.json").read_text(encoding="utf-8"))
        return content

    @property
    def outcomes(self) -> dict[str, str]:
        return {test["id"].rpartition("::")[2]: test["outcome"] for test in self.report["tests"]}

    @property
    def messages(self) -> dict[str, str]:
        return {test["id"].rpartition("::")[2]: test["message"] for test in self.report["tests"]}

    @property
    def junit(self) -> ET.Element:
        suite = ET.parse(self.directory / "junit.xml").getroot().find("testsuite")
        assert suite is not None
        return suite


Runner = Callable[..., FinishedRun]


def _run_pytest(words: list[str]) -> None:
    reset_signals()
    sys.argv = ["pytest", *words]
    sys.exit(pytest.console_main())


def _start_pytest(words: list[str]) -> None:
    reset_signals()
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])


@pytest.fixture(scope="module")
def run_suite(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Return a function that runs a suite, given as text, on the fake board, the virtual board, or one on a fake USB
    bus.

    With ``own_python`` the process is a new Python, not a copy.
    """

    def run(
        suite: str,
        *,
        options: Sequence[str] = ("--board=stm32f746", "--virtual"),
        attach: str = "ok",
        interrupt_with: signal.Signals | None = None,
        and_again: float | None = None,
        files: dict[str, str] | None = None,
        block_reports: bool = False,
        fake: bool = True,
        usb: Path | None = None,
        own_python: bool = False,
    ) -> FinishedRun:
        directory = tmp_path_factory.mktemp("run")
        (directory / "pytest.ini").write_text("[pytest]\n")
        for name, text in {"test_suite.py": suite, **(files or {})}.items():
            (directory / name).write_text(text)
        reports, log = directory / "build" / "reports", directory / "connection.log"
        if block_reports:
            reports.parent.mkdir()
            reports.write_text("a file where the directory should be")
        words = [
            *("-pno:cacheprovider", "-putvm.hil.plugin", *(["-ptests.hil.fake_board"] if fake else [])),
            *(f"--report-dir={reports}", *options, "."),
        ]
        environment = (
            os.environ
            | ({"FAKE_USB": str(usb)} if usb else {})
            | {"PYTHONPATH": f"{_USB_BUS}:{ROOT}" if usb else str(ROOT)}
            | {"FAKE_RELEASE": "0" if and_again is None else str(2 * and_again)}
            | {"FAKE_ATTACH": attach, "FAKE_LOG": str(log), "COLUMNS": "200"}
        )
        out, err = directory / "out", directory / "err"
        start = _start_pytest if usb or own_python else _run_pytest
        process = start_copy(functools.partial(start, words), directory, environment, out, err)
        assert process.pid
        try:
            if interrupt_with is not None:
                deadline = time.monotonic() + 120
                while not (directory / "sleeping").exists():
                    assert time.monotonic() < deadline, "the suite did not get to its sleep"
                    time.sleep(0.02)
                os.kill(process.pid, interrupt_with)
                if and_again is not None:
                    time.sleep(and_again)
                    # It may have ended already.
                    if process.is_alive():
                        os.kill(process.pid, interrupt_with)
            process.join(300)
        finally:
            process.kill()
            process.join()
        events = tuple(log.read_text().split()) if log.exists() else ()
        return FinishedRun(process.exitcode or 0, out.read_text(), err.read_text(), reports, events)

    return run
