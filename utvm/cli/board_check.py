# SPDX-License-Identifier: Apache-2.0
"""``board.new`` and ``board.check``: a new board, from its chip's description to the steps of docs/bring-up.md."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from utvm import boards
from utvm.base.storage.config import read_yaml
from utvm.boards import described, parts
from utvm.cli.output import OUT
from utvm.cli.root_hil import run_suites
from utvm.errors import ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.hil import plugin, schemas
from utvm.selection import BoardKind, BoardSelection, PlaceChoice, ReportChoice, SuiteChoice


@dataclass(frozen=True)
class PartStep:
    """A part of a board, its suites, and the likely cause if they fail."""

    part: parts.SiliconPart
    suites: str
    look_at: str


# A test compares the table in docs/bring-up.md with this.
STEPS = tuple(PartStep(**row) for row in read_yaml(Path(__file__).with_suffix(".yaml"))[0]["steps"])


def check_board(where: BoardSelection, reports: ReportChoice) -> ExitCode:
    """Run the suites of each part in order up to the first failure, and print the parts that passed.

    Later steps run on the first step's board. Returns the exit code of the last run.
    """
    board = boards.load(where.board)
    if guesses := guesses_in(board.directory):
        OUT.print("not checked yet:", *guesses, sep="\n  ")
    results: dict[parts.SiliconPart, Mapping[str, Any]] = {}
    code, kind = ExitCode.PASSED, "virtual"
    for number, step in enumerate(STEPS, 1):
        OUT.print(f"\npart {number} of {len(STEPS)}, {step.part}: {step.suites}")
        try:
            code, content = _run(where, step, reports)
        except UtvmError:
            # For example, an unplugged probe; report the parts checked before.
            if results:
                _print_passed_parts(board.title, kind, results)
            raise
        if {test["outcome"] for test in content["tests"]} == {"skipped"}:
            OUT.print(f"{step.part}: not available on this board")
            code = ExitCode.PASSED
            continue
        if code is not ExitCode.PASSED:
            _print_failure(number, code, content)
            break
        kind = content["board"]["kind"]
        serial = content["board"]["serial"] if kind == "physical" else where.serial
        where = replace(where, kind="auto" if kind == "process" else cast(BoardKind, kind), serial=serial)
        results[step.part] = content
    _print_passed_parts(board.title, kind, results)
    return code


def _run(where: BoardSelection, step: PartStep, reports: ReportChoice) -> tuple[ExitCode, Mapping[str, Any]]:
    latest = plugin.report_root(reports) / "latest"
    before = latest.resolve()
    code = run_suites(where, SuiteChoice(step.suites), reports, PlaceChoice())
    if latest.resolve() == before:
        raise ProvisionError(f"the run of {step.suites} left no report", "its output is above")
    return code, schemas.read_report(latest / "report.json")


def _print_failure(number: int, code: ExitCode, content: Mapping[str, Any]) -> None:
    step = STEPS[number - 1]
    if content["verdict"] == "interrupted":
        OUT.print(f"\n{step.part}: {content['trouble']}; ./inv board.check begins with part 1 again")
        return
    OUT.print(f"\n{step.part}: failed: {content['trouble'] or schemas.first_trouble(content)}")
    if code is ExitCode.FAILED or number == 1:
        OUT.print(f"  look at: {step.look_at}")
    if left := ", ".join(step.part for step in STEPS[number:]):
        OUT.print(f"  not run, because they would fail for the same reason: {left}")


def _print_passed_parts(title: str, kind: str, results: Mapping[parts.SiliconPart, Mapping[str, Any]]) -> None:
    """Print the parts that passed; for a physical board, as lines for its ``board.yaml``."""
    if kind != "physical":
        names = ", ".join(results) or "none"
        OUT.print(f"\npassed on a {kind.upper()} board: {names}. Not run on a chip: `silicon` does not change")
        return
    OUT.print("\nfor board.yaml, with the chip's revision letter:\n")
    OUT.print("silicon:" if results else "silicon: {}")
    for part, content in results.items():
        OUT.print(f'  {part}: "{title}, {content["started"][:10]}, run {content["run_id"]}"')


def new_board(chip: str, from_: str, svd: str, probe: str, output: str) -> None:
    """Write a board's folder from a description of its chip, load it, and print the lines to check.

    Args:
        from_: the file that describes the chip, or ``pyocd``.
        svd: its register file, or empty.
        output: the folder; by default the chip's name.
    """
    if not from_:
        raise ConfigError(
            "--from is missing",
            "a CMSIS pack (.pack, .pdsc), a target file of probe-rs (.yaml), or pyocd for its built-in targets",
        )
    chip_files = described.find(Path(from_), chip)
    if svd:
        chip_files = described.refine(chip_files, Path(svd))
    folder = Path(output or re.sub(r"[^a-z0-9]+", "-", chip_files.name.lower()).strip("-")).resolve()
    board = described.write(chip_files, folder, probe)
    OUT.print(f"{folder}: {board.title}")
    for guess in guesses_in(folder):
        OUT.print(f"  {guess}")
    argument = shlex.quote(str(folder))
    OUT.print(f"try it: ./inv firmware.size --model models/digits/digits_int8.tflite --board {argument}")
    OUT.print(f"then plug the board in: ./inv board.check --board {argument} --physical (docs/bring-up.md)")


def guesses_in(folder: Path) -> list[str]:
    """Return the lines of a board's file that are marked to be checked."""
    text = (folder / "board.yaml").read_text(encoding="utf-8")
    return [f"line {number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if "# check" in line]
