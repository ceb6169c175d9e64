# SPDX-License-Identifier: Apache-2.0
"""Progress of long work: the estimated time left, and lines without a terminal."""

import io
import re
import time

import pytest

from utvm.cli import progress
from utvm.cli.progress import ProgressLine, print_steps, show
from utvm.hil.display import Display


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_left_follows_from_the_count() -> None:
    clock = _Clock()
    work = ProgressLine("samples: 0 of 40", clock)
    clock.now = 6.0
    assert work.text() == "samples: 0 of 40: 6 s"
    work.begin("samples: 10 of 40")
    clock.now = 10.0
    assert work.text() == "samples: 10 of 40: 10 s, about 30 s left"
    work.begin("the disk")
    clock.now = 122.0
    assert work.text() == "the disk: 2 min"


def test_each_step_is_a_line_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_UPDATE_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_SHORT_SECONDS", 0.0)
    printed = ""
    with show("thinking") as step:
        for word in ("thinking", "writing"):
            step(word)
            while word not in printed:
                time.sleep(0.01)
                printed += capsys.readouterr().err
    assert printed.splitlines() == ["thinking: 0 s", "writing: 0 s"]


def test_steps_are_printed_unless_the_terminal_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_UPDATE_SECONDS", "_SHORT_SECONDS", "_LINE_SECONDS"):
        monkeypatch.setattr(progress, name, 0.01)
    with print_steps() as say:
        say("thinking")
        time.sleep(0.2)
        captured = capsys.readouterr()
        assert captured.out == "thinking\n"
        assert captured.err.startswith("thinking: 0 s")
        say("")
        time.sleep(0.05)
        capsys.readouterr()
        time.sleep(0.2)
        assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_long_test_name_leaves_count_and_times_complete(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    screen = _Terminal()
    display = Display(screen)
    display.begin(123)
    display.running("hil_tests/test_int8.py::test_" + "every_layer_equals_the_reference_" * 5)
    display.end()
    lines = re.split("[\r\n]", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue()))
    assert any(re.search(r" 0/123 \d:\d\d:\d\d -:--:-- test", line) for line in lines)
    assert max(map(len, lines)) <= columns
