# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/project.yaml``."""

import dataclasses
import shlex
from pathlib import Path

from utvm import boards, firmware, project, selection
from utvm.cli import choices, compiling, model_inputs
from utvm.cli.output import OUT
from utvm.errors import ConfigError, ExitCode
from utvm.hil import suites


def create(
    request: choices.OptionalModelChoice,
    board: str,
    input: str,  # noqa: A002  the option's name
    platform: str,
    option: str,
    output: str,
) -> None:
    if not platform and not output:
        _list_platforms()
        return
    project.load_platform(platform)
    if not output:
        raise ConfigError("no folder is named", "give --output FOLDER, which must not exist yet")
    chip, model = boards.load_chip(board), compiling.load_model(request)
    library = firmware.compile_for(boards.load("host"), model)
    inputs = model_inputs.read_inputs(library, input)
    project_created = project.create(
        platform,
        chip,
        model,
        Path(output),
        inputs=inputs,
        expected=project.run_on_host(library, inputs),
        options=_options(option),
    )
    model_inputs.note_input(library, input)
    OUT.print(f"{project_created.directory}: created for {platform} and {chip.full_name}; see its README.md")
    OUT.print(f"next: ./inv project.run {shlex.quote(str(output))}")
    OUT.results({"directory": str(project_created.directory), **project_created.facts.model_dump(mode="json")})


def build(directory: str) -> None:
    image = project.Project(directory).build()
    OUT.print(f"built: {image.elf}")
    if image.board.memory:
        compiling.print_use(image)
    sizes = {"flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes} if image.board.memory else {}
    OUT.results({"elf": str(image.elf), "board": image.board.full_name, **sizes})


def run(directory: str, where: selection.BoardSelection, reports: selection.ReportChoice) -> ExitCode:
    project_read = project.Project(directory)
    if not reports.report_dir:
        reports = selection.ReportChoice(str(project_read.directory / "build" / "reports"))
    suite = selection.SuiteChoice(suite=str(project_read.directory / "hil" / "test_project.py"))
    where = where if where.board else dataclasses.replace(where, board=project_read.facts.board)
    return suites.run(where, reports, suites=suite)


def _list_platforms() -> None:
    known = {name: project.load_platform(name)[1] for name in project.platforms()}
    OUT.table(
        ("platform", "description", "--option", "a build needs"),
        rows=[(name, data.says, ", ".join(data.options), ", ".join(data.needs)) for name, data in known.items()],
    )
    OUT.results({"platforms": {name: data.model_dump(mode="json") for name, data in known.items()}})


def _options(text: str) -> dict[str, str]:
    options = {}
    for item in filter(None, text.split(";")):
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"--option {item!r} cannot be read", "the form is NAME=VALUE")
        options[name.strip()] = value.strip()
    return options
