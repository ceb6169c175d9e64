# SPDX-License-Identifier: Apache-2.0
"""Writing a project: the library as a package, what is around it, and what the platform builds it with."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm import boards, runtime
from utvm.base.storage.files import check_folder
from utvm.boards import Board
from utvm.compiler import Library, Model
from utvm.compiler.package import package_files
from utvm.compiler.package.texts import cmake_target
from utvm.errors import ConfigError
from utvm.firmware import Ingredients, compile_for, ingredients
from utvm.firmware.sources import generate
from utvm.firmware.stack import run_stack
from utvm.project.platform import COMMON, Platform, filled, load_platform, rendered
from utvm.project.project import FACTS, VERSION, Project

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
            f"the platform {name} is not for a {board.cpu}, as {board.spoken} has",
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
) -> Ingredients:
    if platform.runtime == "utvm":
        return ingredients(board, [library], "standing_alone", inputs)
    return Ingredients(
        "",
        generate([library], "standing_alone", inputs, linked_by_script=False),
        runtime.portable_sources("standing_alone"),
        (runtime.INCLUDE, _APPLICATION),
        (f'UTVM_BOARD_NAME="{board.name}"',),
    )


def _own(made: Ingredients, library: Library) -> dict[str, str]:
    return {name: text for name, text in made.generated.items() if name not in library.sources}


def _places(made: Ingredients, library: Library, kept: list[str], headers: list[str]) -> dict[str, object]:
    """Return what build files name: sources, folders of headers, and macros with their values."""
    defines = [each for each in made.defines if not each.startswith("UTVM_STEPS")]
    return {
        "kept": sorted(name for name in kept if name.endswith((".c", ".S"))),
        "include": sorted({str(Path(name).parent) for name in headers} | {"app"}),
        "generated": sorted(f"app/{name}" for name in _own(made, library) if name.endswith(".c")),
        "model_sources": sorted(f"model/codegen/host/src/{n}" for n in library.sources if n.endswith(".c")),
        "defines": [tuple(each.partition("=")[::2]) for each in defines],
    }


def _facts(name: str, platform: Platform, made: Ingredients, values: dict[str, Any]) -> dict[str, object]:
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
    return folder + board.spoken


def _runtime_files(made: Ingredients) -> tuple[dict[str, str], dict[str, str]]:
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
