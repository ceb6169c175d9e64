# SPDX-License-Identifier: Apache-2.0
"""The commands ``project.*``, and what they print."""

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import JsonChoice, OptionalModelChoice
from utvm.cli.output import OUT, check_json, write_json
from utvm.errors import ConfigError, ExitCode
from utvm.selection import BOARD, BoardSelection, ReportChoice, SuiteChoice

if TYPE_CHECKING:
    from utvm.project import Project

_PAGE = "docs/projects.md"
_DIRECTORY = "the project's folder"


@task(
    example="project.create --model my.tflite --board stm32f746 --platform cmake --output app",
    page=_PAGE,
    help={
        "board": BOARD,
        "input": "input to store in the application, as for model.run (default: seeded random values)",
        "list_": "list the platforms, their options and what a build needs",
        "platform": "one that --list shows, or the path of a folder with a platform.yaml",
        "option": "settings of the platform: NAME=VALUE, separated by ;",
        "output": "folder to write; must be empty or not exist",
    },
)
def create(
    _: Context,
    asked: OptionalModelChoice,
    json: JsonChoice,
    *,
    board: str = "",
    input: str = "",  # noqa: A002  the option's name
    platform: str = "",
    option: str = "",
    output: str = "",
    list_: bool = False,
) -> None:
    """Create an application for another build system that runs a model once and reports on the console."""
    from utvm import boards, project
    from utvm.cli.model_inputs import note_input, read_inputs
    from utvm.cli.model_library import load_named
    from utvm.firmware import compile_for

    if list_:
        _list_platforms(json)
        return
    project.load_platform(platform)
    if not output:
        raise ConfigError("no folder is named", "--output FOLDER: it does not exist yet")
    check_json(json)
    chip, model = boards.load_chip(board), load_named(asked)
    library = compile_for(boards.load("host"), model)
    inputs = read_inputs(library, input)
    made = project.create(
        platform,
        chip,
        model,
        Path(output),
        inputs=inputs,
        expected=project.run_on_host(library, inputs),
        options=_options(option),
    )
    note_input(library, input)
    OUT.print(f"{made.directory}: made for {platform} and {chip.full_name}; its README.md says more")
    OUT.print(f"next: ./inv project.run {shlex.quote(str(output))}")
    write_json(json, {"directory": str(made.directory), **made.facts.model_dump(mode="json")})


@task(example="project.build app", page=_PAGE, positional=["directory"], help={"directory": _DIRECTORY})
def build(_: Context, directory: str, json: JsonChoice) -> None:
    """Build a project with its platform's own commands; they run as your user."""
    from utvm import project
    from utvm.cli.model_run import print_use

    check_json(json)
    image = project.Project(directory).build()
    OUT.print(f"built: {image.elf}")
    if image.board.memory:
        print_use(image.board, image)
    sizes = {"flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes} if image.board.memory else {}
    write_json(json, {"elf": str(image.elf), "board": image.board.full_name, **sizes})


@task(
    example="project.run app",
    page=_PAGE,
    positional=["directory"],
    help={"directory": _DIRECTORY},
)
def run(_: Context, directory: str, where: BoardSelection, reports: ReportChoice) -> ExitCode:
    """Build a project, run it on a board and write a report, as hil does."""
    from utvm import project
    from utvm.hil import suites

    made = project.Project(directory)
    if not reports.report_dir:
        reports = ReportChoice(str(made.directory / "build" / "reports"))
    suite = SuiteChoice(suite=str(made.directory / "hil" / "test_project.py"))
    return suites.run(_its_own(made, where), reports, suites=suite)


def _list_platforms(json: JsonChoice) -> None:
    from rich.table import Table

    from utvm import project

    check_json(json)
    known = {name: project.load_platform(name)[1] for name in project.platforms()}
    if write_json(json, {"platforms": {name: each.model_dump(mode="json") for name, each in known.items()}}):
        return
    table = Table("platform", "what it is", "--option", "a build needs", box=None)
    for name, each in known.items():
        table.add_row(name, each.says, ", ".join(each.options), ", ".join(each.needs))
    OUT.print(table)


def _its_own(made: "Project", where: BoardSelection) -> BoardSelection:
    return where if where.board else dataclasses.replace(where, board=made.facts.board)


def _options(text: str) -> dict[str, str]:
    options = {}
    for item in filter(None, text.split(";")):
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"--option {item!r} cannot be read", "the form is NAME=VALUE")
        options[name.strip()] = value.strip()
    return options
