# SPDX-License-Identifier: Apache-2.0
"""Writing a project: the library as a package, what is around it, and what the platform builds it with."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from utvm import boards, runtime
from utvm.base.storage.config import Record, load_yaml
from utvm.base.storage.files import check_folder
from utvm.boards import Board
from utvm.compiler import Library, Model
from utvm.compiler.package import package_files
from utvm.compiler.package.texts import cmake_target
from utvm.errors import ConfigError
from utvm.firmware import ImageSources, compile_for, image_sources
from utvm.firmware.sources import generate
from utvm.firmware.stack import run_stack
from utvm.project.project import FACTS, VERSION, Project

PLATFORMS = Path(__file__).parent / "platforms"
"""The folders of those that come with utvm."""

COMMON = Path(__file__).parent / "common"
"""Files that every project has."""

FILE = "platform.yaml"


class Platform(Record):
    """What a ``platform.yaml`` says. ``build`` and ``elf`` are filled in as files are, by templates.

    Attributes:
        says: what it is, in a few words.
        runtime: whose start-up code, port and linker script it is built with: utvm's for the board, or its own.
            With its own, the folder has C that provides what ``utvm.h`` asks of a port.
        flat: a folder that all C of the application and the runtime lies in, side by side, for builds that know no
            folders of headers; without it, they lie in folders.
        needs: program, or environment variable in capitals, to how one gets it.
        build: commands that build it, run in the project's folder.
        elf: the image that they make.
        options: name of what must be known when a project is made, to what it is.
        cpus: the CPUs that it is for, to a word for each, ``cpu_word`` in templates; empty for any.
    """

    says: str
    runtime: Literal["utvm", "own"]
    flat: str = ""
    needs: dict[str, str] = Field(default_factory=dict)
    build: tuple[tuple[str, ...], ...] = Field(min_length=1)
    elf: str
    options: dict[str, str] = Field(default_factory=dict)
    cpus: dict[str, str] = Field(default_factory=dict)


def platforms() -> tuple[str, ...]:
    """Return the names of those that come with utvm, sorted."""
    return tuple(sorted(file.parent.name for file in PLATFORMS.glob(f"*/{FILE}")))


def load_platform(name: str) -> tuple[Path, Platform]:
    """Return a platform's folder and what it says.

    Args:
        name: one of :func:`platforms`, or the path of a folder of one's own, with a slash in it.
    """
    folder = Path(name).resolve() if "/" in name else PLATFORMS / name
    known = f"platforms: {', '.join(platforms())}; or the path of a folder with a {FILE}"
    if not name or not (folder / FILE).is_file():
        raise ConfigError(f"there is no platform {name!r}", known)
    return folder, load_yaml(folder / FILE, Platform, known)


def rendered(folder: Path, values: dict[str, object]) -> dict[str, str]:
    """Return a folder's files, filled in: path to text. ``PROJECT`` in a file's name is the project's.

    A template may extend or include one of a platform that comes with utvm: ``cmake/CMakeLists.txt``.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, PLATFORMS]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["c"] = lambda text: str(text).replace("\\", "\\\\").replace('"', '\\"')
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name == FILE:
            continue
        try:
            text = environment.get_template(name).render(values)
        except (jinja2.TemplateError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be filled in: {error}", "is a name in braces wrong?") from error
        files[name.removesuffix(".j2").replace("PROJECT", str(values["project"]))] = text
    return files


def filled(text: str, values: dict[str, object]) -> str:
    """Fill in a text of a ``platform.yaml``."""
    try:
        return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text).render(values)
    except jinja2.TemplateError as error:
        raise ConfigError(f"{FILE}: {text!r} cannot be filled in: {error}") from error


# In a project, a compiler of another version may warn of more.
_STRICT = frozenset({"-Werror", "-Wl,--fatal-warnings"})
_APPLICATION = runtime.DIRECTORY / "standing_alone"


def create(
    platform: str,
    board: Board,
    model: Model,
    directory: Path,
    *,
    inputs: Sequence[npt.NDArray[Any]],
    expected: Sequence[npt.NDArray[Any]] = (),
    options: Mapping[str, str] = {},
) -> Project:
    """Write a project whose application runs a model on stored inputs and reports on the console.

    Args:
        platform: as :func:`load_platform` takes it.
        inputs: one array an input, of the shape and element type that the model declares.
        expected: what the outputs should be, kept for the project's suite; nothing if nobody knows.
        options: what the platform asks for.
    """
    folder, said = load_platform(platform)
    _check(platform, said, board, options)
    check_folder(directory)
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory}: is not empty", "give a folder that does not yet exist")
    library = compile_for(board, model, accelerator="off")
    made = _ingredients(board, library, said, inputs)
    kept, headers = _runtime_files(made)
    values: dict[str, Any] = {
        **_flags(board),
        **_places(made, library, [*kept], [*headers]),
        "project": directory.resolve().name,
        "name": library.name,
        "library": library,
        "library_target": cmake_target(library.name),
        "board": board,
        "platform": said,
        "options": dict(options),
        "cpu_word": said.cpus.get(board.cpu, ""),
    }
    stack = run_stack(board, library)
    files = {f"model/{path}": data for path, data in package_files(library, model=model, stack=stack).items()}
    texts = {**kept, **headers, **{f"app/{name}": text for name, text in _own(made, library).items()}}
    texts |= rendered(COMMON, values)
    if said.flat:
        texts = dict(_flat(name, text, said.flat) for name, text in texts.items())
    texts |= rendered(folder, values)
    texts[FACTS] = json.dumps(_facts(platform, said, made, values), indent=2) + "\n"
    files |= {path: text.encode() for path, text in texts.items()}
    if expected:
        files["expected.npz"] = _npz(expected)
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return Project(directory)


def _check(name: str, platform: Platform, board: Board, options: Mapping[str, str]) -> None:
    if platform.cpus and board.cpu not in platform.cpus:
        raise ConfigError(
            f"the platform {name} is not for a {board.cpu}, as {board.full_name} has",
            f"CPUs: {', '.join(platform.cpus)}",
        )
    for missing in platform.options.keys() - options.keys():
        raise ConfigError(
            f"the platform {name} must be told {missing}: {platform.options[missing]}", f"--option {missing}=..."
        )
    for unknown in options.keys() - platform.options.keys():
        known = ", ".join(platform.options) or "it has none"
        raise ConfigError(f"the platform {name} has no option {unknown}", f"options: {known}")
    for option, value in options.items():
        if not re.fullmatch(r"[\w./:,=+-]+", value):
            raise ConfigError(f"the option {option} cannot be {value!r}", "letters, digits and ./:,=+-")


def _ingredients(
    board: Board, library: Library, platform: Platform, inputs: Sequence[npt.NDArray[Any]]
) -> ImageSources:
    if platform.runtime == "utvm":
        return image_sources(board, [library], "standing_alone", inputs)
    return ImageSources(
        "",
        generate([library], "standing_alone", inputs, linked_by_script=False),
        runtime.portable_files("standing_alone"),
        (runtime.INCLUDE, _APPLICATION),
        (f'UTVM_BOARD_NAME="{board.name}"',),
    )


def _own(made: ImageSources, library: Library) -> dict[str, str]:
    return {name: text for name, text in made.generated.items() if name not in library.sources}


def _places(made: ImageSources, library: Library, kept: list[str], headers: list[str]) -> dict[str, object]:
    """Return what build files name: sources, folders of headers, and macros with their values."""
    defines = [each for each in made.defines if not each.startswith("UTVM_STEPS")]
    return {
        "kept": sorted(name for name in kept if name.endswith((".c", ".S"))),
        "include": sorted({str(Path(name).parent) for name in headers} | {"app"}),
        "generated": sorted(f"app/{name}" for name in _own(made, library) if name.endswith(".c")),
        "model_sources": sorted(f"model/codegen/host/src/{n}" for n in library.sources if n.endswith(".c")),
        "defines": [tuple(each.partition("=")[::2]) for each in defines],
    }


def _facts(name: str, platform: Platform, made: ImageSources, values: dict[str, Any]) -> dict[str, object]:
    board: Board = values["board"]
    return {
        "version": VERSION,
        "platform": name,
        "board": _found_again(board),
        "pipe": made.pipe,
        "model": values["name"],
        "needs": platform.needs,
        "build": [[filled(word, values) for word in command] for command in platform.build],
        "elf": filled(platform.elf, values),
    }


def _flat(name: str, text: str, folder: str) -> tuple[str, str]:
    if not name.startswith(("app/", "runtime/")):
        return name, text
    return f"{folder}/{Path(name).name}", f'#include "config.h"\n{text}' if name.endswith(".c") else text


def _found_again(board: Board) -> str:
    ours = Path(boards.__file__).parent
    folder = "" if board.directory.is_relative_to(ours) else f"{board.directory.resolve().parent}/"
    return folder + board.full_name


def _runtime_files(made: ImageSources) -> tuple[dict[str, str], dict[str, str]]:
    """Return the runtime's sources and headers that an image needs, by their place in the project."""
    headers = [path for folder in made.include for path in sorted(folder.glob("*.h"))]
    return {_place(path): path.read_text("utf-8") for path in made.kept}, {
        _place(path): path.read_text("utf-8") for path in headers
    }


def _place(path: Path) -> str:
    if path.is_relative_to(_APPLICATION):
        return f"app/{path.name}"
    if path.is_relative_to(runtime.DIRECTORY):
        return f"runtime/{path.relative_to(runtime.DIRECTORY).as_posix()}"
    return f"board/{path.name}"


def _flags(board: Board) -> dict[str, object]:
    toolchain = board.compiler
    said = toolchain.data
    return {
        "toolchain": said,
        "cpu_flags": toolchain.cpu(board.cpu).flags,
        "c_flags": [flag for flag in said.c_flags if flag not in _STRICT],
        "link_flags": [flag for flag in said.link_flags if flag not in _STRICT],
    }


def _npz(arrays: Sequence[npt.NDArray[Any]]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, *arrays)
    return stream.getvalue()
