# SPDX-License-Identifier: Apache-2.0
"""Progress of long work: the estimated time left, and lines without a terminal."""

import io
import itertools
import re
import sys
import time
import types

import pytest

from utvm.base.text import terminal
from utvm.base.text.terminal import ProgressLine
from utvm.cli import output
from utvm.cli.output import print_steps, show_progress
from utvm.hil.display import Display
from utvm.hil.results import CaseResult, Outcome


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


def test_log_has_a_line_at_least_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = _Clock()
    work = ProgressLine("samples: 0 of 600", clock)
    for second in range(600):
        clock.now = float(second)
        work.begin(f"samples: {second} of 600")
        work.show()
    counts = [int(line.split()[1]) for line in capsys.readouterr().err.splitlines()]
    assert len(counts) < 100
    assert max(after - before for before, after in itertools.pairwise([0, *counts, 599])) <= 10


@pytest.mark.parametrize("length", [2, 7, 13, 47])
def test_steps_leave_no_gap_of_over_ten_seconds(length: int, capsys: pytest.CaptureFixture[str]) -> None:
    clock = _Clock()
    work = ProgressLine("layer a", clock)
    lines = [0]
    for second in range(300):
        clock.now = float(second)
        work.begin("layer " + "abc"[second // length % 3])
        work.show()
        lines += [second] * bool(capsys.readouterr().err)
    assert len(lines) < 150
    assert max(after - before for before, after in itertools.pairwise([*lines, 299])) <= 10


def test_print_after_a_step_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen, clock = _Terminal(), _Clock()
    monkeypatch.setattr(sys, "stderr", screen)
    work = ProgressLine("samples: 0 of 6", clock)
    clock.now = 4.0
    work.show()
    assert "samples: 0 of 6: 4 s" in screen.getvalue()
    work.begin("")
    assert screen.getvalue().endswith("\x1b[2K")
    work.begin("samples: 3 of 6")
    assert work.text() == "samples: 3 of 6: 4 s, about 4 s left"


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_long_step_is_cut_and_its_count_stays(columns: int) -> None:
    clock = _Clock()
    work = ProgressLine("compiling a_network_with_a_name_" + "of_many_words_" * 9 + ": 3 of 18", clock)
    clock.now = 30.0
    text = work.text(columns)
    assert len(text) == columns and text.startswith("compi") and text.endswith("…3 of 18: 30 s, about 2 min left")


def test_notebook_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        update = shown.append

    def display(content: str, display_id: bool) -> type[Handle]:
        assert display_id
        shown.append(content)
        return Handle

    shell = types.SimpleNamespace(kernel=None)
    module = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    for name in ("_SHORT_SECONDS", "_BAR_SECONDS"):
        monkeypatch.setattr(terminal, name, -1.0)
    assert list(terminal.count("abc", "<digits>")) == ["a", "b", "c"]
    assert [text.partition(" &lt;digits&gt;: ")[0] for text in shown] == [
        f'<progress value="{number}" max="3"></progress>' for number in (1, 2, 3)
    ]
    assert shown[2].endswith("3 of 3: 0 s, about 0 s left")


def test_each_step_is_a_line_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_UPDATE_SECONDS", 0.01)
    monkeypatch.setattr(terminal, "_SHORT_SECONDS", 0.0)
    printed = ""
    with show_progress("thinking") as step:
        for word in ("thinking", "writing"):
            step(word)
            while word not in printed:
                time.sleep(0.01)
                printed += capsys.readouterr().err
    assert printed.splitlines() == ["thinking: 0 s", "writing: 0 s"]


def test_steps_are_printed_unless_the_terminal_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_UPDATE_SECONDS", 0.01)
    for name in ("_SHORT_SECONDS", "_LINE_SECONDS"):
        monkeypatch.setattr(terminal, name, 0.01)
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


def test_time_left_of_a_run_counts_all_tests_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    for name, value in {"COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("rich.console.monotonic", clock)
    screen = _Terminal()
    display = Display(screen)
    display.begin(200)
    for number in range(50):
        # The last forty are skipped in one second.
        clock.now = min(3.0 * number, 30.0)
        display.show_result(CaseResult(f"hil_tests/test_a.py::test_{number}", Outcome.PASSED, 1.0))
    clock.now = 40.0
    display.running("hil_tests/test_b.py::test_slow")
    display.end()
    assert " 50/200 0:00:40 0:02:00 test_b.py::test_slow" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())
