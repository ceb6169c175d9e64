# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/project.yaml``, and ``init``, which writes a small, complete project."""

import dataclasses
import os
import shlex
from pathlib import Path

from utvm import boards, firmware, project, selection
from utvm.base.storage.files import write_whole
from utvm.cli import choices, compiling
from utvm.cli.output import OUT
from utvm.errors import ConfigError, ExitCode
from utvm.hil import suites
from utvm.paths import COMMAND, DATA, INSTALLED, ROOT

# File of the project: its template.
_TEMPLATES = {
    "utvm.yaml": "utvm.yaml",
    "hil/test_models.py": "models_suite.txt",
    ".github/workflows/hil.yaml": "github.yaml",
    ".gitlab-ci.yml": "gitlab.yaml",
    ".devcontainer/devcontainer.json": "devcontainer.json",
    ".vscode/tasks.json": "tasks.json",
}
_STARTING = Path(__file__).parent / "starting"
_MODEL = DATA / "models" / "digits"


def write_project(directory: str) -> None:
    folder = Path(directory).resolve()
    if not folder.is_dir() and os.path.lexists(folder):
        raise ConfigError(f"{directory}: is a file", "give a folder that does not yet exist")
    files = {name: (_STARTING / source).read_bytes() for name, source in _TEMPLATES.items()}
    files["models/digits.onnx"] = (_MODEL / "digits.onnx").read_bytes()
    files["models/digits.npz"] = (_MODEL / "samples.npz").read_bytes()
    files[".gitignore"] = b"/build/\n__pycache__/\n"
    if existing := [name for name in files if (folder / name).exists()]:
        raise ConfigError(f"{folder}: has {', '.join(existing)} already", "give a folder that does not yet exist")
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, content)
    command = COMMAND if INSTALLED else str(ROOT / "inv")  # from another folder
    OUT.print(f"{folder}: {len(files)} files. Next: cd {directory} && {command} hil")


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
    inputs = compiling.read_inputs(library, input)
    project_created = project.create(
        platform,
        chip,
        model,
        Path(output),
        inputs=inputs,
        expected=project.run_on_host(library, inputs),
        options=_options(option),
    )
    compiling.note_input(library, input)
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
