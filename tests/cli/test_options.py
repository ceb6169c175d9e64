# SPDX-License-Identifier: Apache-2.0
"""Options: written once as a field of a record; and Invoke's own program, which hands over to ``./inv``."""

import argparse
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import invoke
import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from tests.portions import by_day
from utvm import selection
from utvm.cli import make_command
from utvm.errors import ConfigError
from utvm.paths import ROOT
from utvm.selection import BoardFolders, BoardSelection, option

# In a process of its own: the modules here were imported without the new field.
_NEW_FIELD = """
import dataclasses, pathlib, sys
from utvm import selection

@dataclasses.dataclass(frozen=True)
class BoardSelection(selection.BoardSelection):
    colour: str = selection.option("", "colour of the board")

selection.BoardSelection = BoardSelection

from utvm.cli import root_hil

class Remote:
    has_usb = chooses_board = False
    def run(self, command):
        print("remote:", *command.argv({path: path.name for path in command.paths}, '/utvm'))
        return 0

root_hil.remote_location = lambda kind, choice, say: Remote()
from utvm.hil import nightly
job, = nightly.load(pathlib.Path(sys.argv[1]))
print("nightly:", *selection.words(job.choice))
import pytest

class Reads:
    def pytest_collection_finish(self, session):
        print("pytest:", selection.build_record(selection.BoardSelection, vars(session.config.option)).colour)

words = ["-putvm.hil.plugin", "--collect-only", "--board=host", "--colour=blue", sys.argv[2]]
pytest.main(words, plugins=[Reads()])
from utvm.__main__ import main
sys.argv = ["inv", "hil", "--board=host", "--colour=red", "--in=docker", "--report-dir", sys.argv[2]]
main()
"""


@pytest.mark.slow
def test_new_field_becomes_an_option_everywhere(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    boards = tmp_path / "list.yaml"
    boards.write_text("boards:\n  - {board: host, colour: green}\n")
    completed = subprocess.run(
        [sys.executable, "-c", _NEW_FIELD, boards, tmp_path / "reports"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    lines = completed.stdout.splitlines()
    assert "nightly: --board=host --colour=green" in lines
    assert "remote: ./inv hil --board=host --colour=red --report-dir=reports" in lines
    assert "pytest: blue" in lines


@dataclasses.dataclass(frozen=True)
class _Choice:
    name: str = option("", "a name")
    often: int | None = option(None, "how often")
    wait: float = option(0.0, "how long", bare=60.0)
    loud: bool = option(False, "whether to")


@pytest.mark.parametrize(
    "choice",
    [
        _Choice(),
        _Choice(name="two words", loud=True),
        _Choice(often=0, wait=60.0),
        BoardSelection("stm32f746", "virtual", "A1"),
        BoardFolders("/one:/two"),
    ],
)
def test_command_line_has_all_fields_of_the_record(choice: object) -> None:
    # pytest parses its options with argparse.
    parser = argparse.ArgumentParser()
    selection.add_to_pytest(parser.add_argument, type(choice))
    assert selection.build_record(type(choice), vars(parser.parse_args(selection.words(choice)))) == choice


def test_option_without_its_value_has_another_default() -> None:
    assert selection.build_record(_Choice, {"wait": True}).wait == 60.0
    assert selection.build_record(_Choice, {"wait": "2.5"}).wait == 2.5
    assert selection.build_record(_Choice, {"wait": None}).wait == 0.0


def test_invalid_numbers_and_combinations_are_refused() -> None:
    with pytest.raises(ConfigError, match="--often 'twice' is not a number"):
        selection.build_record(_Choice, {"often": "twice"})
    with pytest.raises(ConfigError, match="--physical and --virtual exclude each other"):
        selection.build_record(BoardSelection, {"physical": True, "virtual": True})


def test_folder_is_translated_for_another_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert selection.parts(BoardSelection("./mine:memory=ddr")) == (("--board=", tmp_path / "mine", ":memory=ddr"),)
    assert selection.parts(BoardFolders("one:two")) == (("--board-path=", tmp_path / "one", ":", tmp_path / "two"),)


def _plain_invoke(tmp_path: Path, *, inside: bool) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of Invoke's own program: inside .venv, or with no other package."""
    if inside:
        return [str(Path(sys.executable).parent / "invoke")], dict(os.environ)
    package = Path(invoke.__file__).parent
    for path in (package, *package.parent.glob("invoke-*.dist-info")):
        (tmp_path / path.name).symlink_to(path)
    return [sys.executable, "-S", "-m", "invoke"], {**os.environ, "PYTHONPATH": str(tmp_path)}


@pytest.mark.slow
@pytest.mark.parametrize("inside", by_day([True, False], True), ids=["inside .venv", "outside"])
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["board.list"], 0, "stm32f746"),
        (["hil", "--nonsense"], 2, "--nonsense"),
        (["no-such-command"], 2, "no-such-command"),
    ],
)
def test_plain_invoke_hands_over_to_inv(
    tmp_path: Path, inside: bool, words: list[str], code: int, message: str
) -> None:
    command, environment = _plain_invoke(tmp_path, inside=inside)
    completed = subprocess.run(
        [*command, *words], cwd=ROOT / "docs", env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert completed.returncode == code, completed.stdout + completed.stderr
    assert message in completed.stdout + completed.stderr


def test_shared_option_field_breaks_one_command_only() -> None:
    description = {"help": "Has records.", "example": "hil", "runs": "root_hil:run_suites"}
    clashing = make_command("clashing", options={"model": "CompileChoice", "where": "BoardSelection"}, **description)
    sound = make_command("sound", options={"where": "BoardSelection"}, **description)
    with pytest.raises(Exit) as caught:
        clashing(Context())
    assert "model: CompileChoice and where: BoardSelection both have the option --board" in str(caught.value.message)
    assert "clashing" in str(caught.value.message) and caught.value.code == 3
    assert "board" in [argument.name for argument in sound.get_arguments()]
