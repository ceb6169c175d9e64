# SPDX-License-Identifier: Apache-2.0
"""How far long work is: what is left by counting and by the last time, and a line where there is no terminal."""

import json
import time
from pathlib import Path

import pytest

from utvm.cli import progress
from utvm.cli.progress import Advance, telling, working


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_left_follows_from_what_a_step_counts() -> None:
    clock = _Clock()
    advance = Advance({}, clock)
    advance.begin("samples: 0 of 40")
    clock.now = 6.0
    assert advance.told() == "samples: 0 of 40: 6 s"
    advance.begin("samples: 10 of 40")
    clock.now = 10.0
    assert advance.told() == "samples: 10 of 40: 10 s, about 30 s left"


def test_what_is_left_follows_from_the_last_time() -> None:
    clock = _Clock()
    advance = Advance({"fetching": 5.0, "the disk": 100.0, "the box": 40.0}, clock)
    advance.begin("fetching")
    clock.now = 2.0
    assert advance.told() == "fetching: 2 s, about 2 min left"  # 3 and 100 and 40
    advance.begin("the disk")
    clock.now = 112.0  # It takes longer than the last time.
    assert advance.told() == "the disk: 2 min"
    advance.begin("what is new")
    assert advance.told() == "what is new: 0 s"
    advance.end()
    assert advance.taken == {"fetching": 2.0, "the disk": 110.0, "what is new": 0.0}


def test_without_a_terminal_a_line_comes_and_the_next_time_it_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "_LOOK", 0.01)
    monkeypatch.setattr(progress, "_SHORT", 0.0)

    def told() -> list[str]:
        said = ""
        with working("a test", "thinking"):
            while "thinking" not in said:
                time.sleep(0.01)
                said += capsys.readouterr().err
        return said.splitlines()

    assert told()[0] == "thinking: 0 s"
    kept = tmp_path / "utvm" / "durations.json"
    assert set(json.loads(kept.read_text())["a test"]) == {"thinking"}
    kept.write_text('{"a test": {"thinking": 60}}')
    assert told()[0] == "thinking: 0 s, about 60 s left"


def test_a_step_that_found_its_result_ready_is_not_remembered_as_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "_SHORT", -1.0)
    file = tmp_path / "utvm" / "durations.json"
    file.parent.mkdir()
    file.write_text('{"making": {"a layer": 300.0, "a step of old": 9.0}}')
    with working("making", "a layer"):
        pass
    assert json.loads(file.read_text()) == {"making": {"a layer": 300.0}}


def test_each_step_is_printed_and_none_while_somebody_else_has_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("_LOOK", "_SHORT", "_NOW_AND_THEN"):
        monkeypatch.setattr(progress, name, 0.01)
    with telling("a test") as say:
        say("thinking")
        time.sleep(0.2)
        said = capsys.readouterr()
        assert said.out == "thinking\n"
        assert said.err.startswith("thinking: 0 s")
        say("")
        time.sleep(0.05)
        capsys.readouterr()
        time.sleep(0.2)
        assert capsys.readouterr() == ("", "")


def test_a_broken_memory_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "utvm").mkdir()
    (tmp_path / "utvm" / "durations.json").write_text("[1]")
    with working("a test", "thinking"):
        pass
