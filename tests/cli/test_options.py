# SPDX-License-Identifier: Apache-2.0
"""Options: written once as a field, and then everywhere; and ``invoke`` itself, which hands over to ``./inv``."""

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
from utvm import options
from utvm.cli import task
from utvm.cli.choices import CompileChoice
from utvm.errors import ConfigError
from utvm.options import option
from utvm.paths import ROOT
from utvm.selection import BoardFolders, BoardSelection

# In a process of its own: what has been imported already knows the field that there is not.
_ONE_MORE_FIELD = """
import dataclasses, pathlib, sys
from utvm import options, selection

@dataclasses.dataclass(frozen=True)
class BoardSelection(selection.BoardSelection):
    colour: str = options.option("", "colour of the board")

selection.BoardSelection = BoardSelection

from utvm.cli import root_hil

class Told:
    has_usb = chooses_board = False
    def run(self, command):
        print("errand:", *command.argv({path: path.name for path in command.paths}, '/utvm'))
        return 0

root_hil.remote_location = lambda kind, choice, say: Told()
from utvm.hil import nightly
turn, = nightly.load(pathlib.Path(sys.argv[1]))
print("nightly:", *options.words(turn.choice))
import pytest

class Reads:
    def pytest_collection_finish(self, session):
        print("pytest:", options.build_record(selection.BoardSelection, vars(session.config.option)).colour)

words = ["-putvm.hil.plugin", "--collect-only", "--board=host", "--colour=blue", sys.argv[2]]
pytest.main(words, plugins=[Reads()])
from utvm.__main__ import main
sys.argv = ["inv", "hil", "--board=host", "--colour=red", "--in=docker", "--report-dir", sys.argv[2]]
main()
"""


def test_new_field_becomes_an_option_everywhere(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    listed = tmp_path / "list.yaml"
    listed.write_text("boards:\n  - {board: host, colour: green}\n")
    done = subprocess.run(
        [sys.executable, "-c", _ONE_MORE_FIELD, listed, tmp_path / "reports"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "nightly: --board=host --colour=green" in lines
    assert "errand: ./inv hil --board=host --colour=red --report-dir=reports" in lines
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
def test_a_command_line_says_what_the_record_has(choice: object) -> None:
    # pytest reads its options with it.
    parser = argparse.ArgumentParser()
    options.add_to_pytest(parser.add_argument, type(choice))
    assert options.build_record(type(choice), vars(parser.parse_args(options.words(choice)))) == choice


def test_a_value_that_may_be_left_out_has_another_meaning_then() -> None:
    assert options.build_record(_Choice, {"wait": True}).wait == 60.0
    assert options.build_record(_Choice, {"wait": "2.5"}).wait == 2.5
    assert options.build_record(_Choice, {"wait": None}).wait == 0.0


def test_what_is_no_number_and_what_excludes_another_is_refused() -> None:
    with pytest.raises(ConfigError, match="--often 'twice' is not a number"):
        options.build_record(_Choice, {"often": "twice"})
    with pytest.raises(ConfigError, match="--physical and --virtual exclude each other"):
        options.build_record(BoardSelection, {"physical": True, "virtual": True})


def test_folder_is_translated_for_another_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert options.parts(BoardSelection("./mine:memory=ddr")) == (("--board=", tmp_path / "mine", ":memory=ddr"),)
    assert options.parts(BoardFolders("one:two")) == (("--board-path=", tmp_path / "one", ":", tmp_path / "two"),)


def _plain_invoke(tmp_path: Path, *, inside: bool) -> tuple[list[str], dict[str, str]]:
    """Return how Invoke's own program is called: with .venv's packages, or with Invoke as the only one."""
    if inside:
        return [str(Path(sys.executable).parent / "invoke")], dict(os.environ)
    package = Path(invoke.__file__).parent
    for each in (package, *package.parent.glob("invoke-*.dist-info")):
        (tmp_path / each.name).symlink_to(each)
    return [sys.executable, "-S", "-m", "invoke"], {**os.environ, "PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize("inside", by_day([True, False], True), ids=["inside .venv", "outside"])
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["board.list"], 0, "stm32f746"),
        (["hil", "--nonsense"], 2, "--nonsense"),
        (["no-such-command"], 2, "no-such-command"),
    ],
)
def test_plain_invoke_hands_over_to_inv(tmp_path: Path, inside: bool, words: list[str], code: int, said: str) -> None:
    command, environment = _plain_invoke(tmp_path, inside=inside)
    done = subprocess.run(
        [*command, *words], cwd=ROOT / "docs", env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr


@task(example="clashing", page="none")
def clashing(_: Context, model: CompileChoice, where: BoardSelection) -> None:
    """Has --board in both records."""


@task(example="sound", page="none")
def sound(_: Context, where: BoardSelection) -> None:
    """Has --board once."""


def test_shared_option_field_breaks_one_command_only() -> None:
    with pytest.raises(Exit) as caught:
        clashing(Context())  # type: ignore[call-arg]
    assert "model: CompileChoice and where: BoardSelection both have the option --board" in str(caught.value.message)
    assert "clashing" in str(caught.value.message) and caught.value.code == 3
    sound(Context())  # type: ignore[call-arg]
