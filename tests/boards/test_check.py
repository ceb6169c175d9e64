# SPDX-License-Identifier: Apache-2.0
"""``board.check``: part by part up to the first failure, with advice."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.boards.test_silicon import rows_of_the_guide
from tests.cli.running import inv
from utvm import boards
from utvm.cli import board_check
from utvm.errors import ExitCode, ProbeError, ProvisionError
from utvm.selection import BoardSelection, ReportChoice

_SAMPLE = Path(__file__).parents[1] / "hil" / "samples" / "report-5-virtual.json"


def test_guide_has_the_steps() -> None:
    assert [(step.part, step.suites, step.look_at) for step in board_check.STEPS] == [
        (part, suites, look_at) for part, suites, look_at in rows_of_the_guide()
    ]


@pytest.mark.slow
def test_wrong_identity_ends_the_check(tmp_path: Path) -> None:
    folder = tmp_path / "stm32f746"
    shutil.copytree(boards.load("stm32f746").directory, folder)
    text = (folder / "board.yaml").read_text()
    wrong = text.replace("mask: 0xFFF, value: 0x449}", "mask: 0xFFF, value: 0x448}  # check")
    assert wrong != text
    (folder / "board.yaml").write_text(wrong)
    completed = inv("board.check", "--board", folder, "--virtual", "--report-dir", tmp_path / "reports")
    assert completed.returncode == 3, completed.stderr
    output = re.sub(r"\s+", " ", completed.stdout)
    assert "not checked yet: line " in output
    assert (
        "probe: failed: the board at probe VIRTUAL-STM32F746-0001 is not stm32f746: DBGMCU_IDCODE reads 0x449" in output
    )
    assert "look at: `openocd.cfg` or `pyocd`, the mask or value of `identity`" in output
    assert "not run, because they would fail for the same reason: memory, flash" in output
    assert "part 2" not in output
    assert "passed on a VIRTUAL board: none. Not run on a chip" in output


def _run_id(number: int) -> str:
    return f"20270105T101500.000Z-000{number}"


def _fake_runs(root: Path, kinds: Mapping[str, str], requests: list[BoardSelection]) -> object:
    """Return a replacement for ``run_suites`` that writes the report of a physical board."""

    def run(request: BoardSelection, suites: object, reports: object, place: object) -> ExitCode:
        requests.append(request)
        content = json.loads(_SAMPLE.read_text())
        number = len(requests)
        outcome = kinds.get(str(number), "passed")
        if outcome == "gone":
            raise ProbeError("there is no probe")
        content["board"] |= {"kind": "physical", "serial": "0671FF"}
        content |= {"run_id": _run_id(number), "started": "2027-01-05T10:15:00Z", "trouble": ""}
        content |= {"models": [], "statistics": []}
        content["tests"] = [{**content["tests"][0], "outcome": outcome, "message": "says so"}]
        code = {"passed": 0, "failed": 1, "skipped": 2, "not run": 3}[outcome]
        verdict = ("passed", "failed", "error", "interrupted")[code]
        content |= {"verdict": verdict, "exit_code": code, "trouble": verdict if code == 3 else ""}
        (root / _run_id(number)).mkdir(parents=True)
        (root / _run_id(number) / "report.json").write_text(json.dumps(content))
        (root / "latest").unlink(missing_ok=True)
        (root / "latest").symlink_to(_run_id(number))
        return ExitCode(code)

    return run


def test_passed_parts_are_printed_for_the_board_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: list[BoardSelection] = []
    monkeypatch.setattr(board_check, "run_suites", _fake_runs(tmp_path, {"3": "skipped", "5": "failed"}, requests))
    code = board_check.check_board(BoardSelection("stm32f746"), ReportChoice(str(tmp_path)))
    assert code is ExitCode.FAILED
    output = capsys.readouterr().out
    assert "flash: not available on this board" in output
    assert re.search(r"clock: failed: \S+: says so\n  look at: clock set-up", output)
    block = output[output.index("silicon:") :]
    board = boards.load("stm32f746")
    assert block.splitlines() == [
        "silicon:",
        *(
            f'  {part}: "{board.title}, 2027-01-05, run {_run_id(number)}"'
            for part, number in (("probe", 1), ("memory", 2), ("debugging", 4))
        ),
    ]
    # All later runs are on the board that answered first.
    assert [(request.kind, request.serial) for request in requests] == [("auto", ""), *[("physical", "0671FF")] * 4]


def test_interruption_is_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(board_check, "run_suites", _fake_runs(tmp_path, {"2": "not run"}, []))
    code = board_check.check_board(BoardSelection("stm32f746"), ReportChoice(str(tmp_path)))
    assert code is ExitCode.INFRASTRUCTURE
    output = capsys.readouterr().out
    assert "memory: interrupted; ./inv board.check begins with part 1 again" in output
    assert "failed" not in output
    assert "  probe: " in output


def test_passed_parts_are_printed_after_a_lost_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(board_check, "run_suites", _fake_runs(tmp_path, {"3": "gone"}, []))
    with pytest.raises(ProbeError):
        board_check.check_board(BoardSelection("stm32f746"), ReportChoice(str(tmp_path)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[-3:]] == ["silicon", "  probe", "  memory"]


def test_run_without_a_report_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_check, "run_suites", lambda *_: ExitCode.INFRASTRUCTURE)
    with pytest.raises(ProvisionError, match="left no report"):
        board_check.check_board(BoardSelection("stm32f746"), ReportChoice(str(tmp_path)))
