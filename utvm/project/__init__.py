# SPDX-License-Identifier: Apache-2.0
"""Projects for other build systems: an application around a packaged library.

:func:`create` writes one for a platform, a folder with ``platform.yaml`` and its templates. :class:`Project`
builds it, flashes it and reads its output, as microTVM's Project API did.
"""

import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from utvm import boards, compiler, drivers, runtime, selection
from utvm.base.log import log_folder
from utvm.base.process import run_tool
from utvm.base.storage.config import Record, load_yaml, validate
from utvm.base.storage.files import check_folder, read_text
from utvm.base.text import quoting, templates
from utvm.compiler.package import package_files, read_package
from utvm.compiler.package.archive import cmake_target
from utvm.errors import BoardError, ConfigError, ToolchainError, did_you_mean
from utvm.firmware import Firmware, ImageSources, build, compile_for, image_sources
from utvm.firmware.sources import generate
from utvm.firmware.stack import run_stack
from utvm.paths import work
from utvm.runtime import Pipe
from utvm.session import RunResult, StandaloneRunner, application, board_holder, pipes, transport

FACTS = "project.json"
VERSION = 1
_BUILD_SECONDS = 1800.0
_CREATE_HINT = "create a project with project.create"


class Facts(Record):
    """Contents of ``project.json``. Its commands run with the rights of the user."""

    version: Literal[1]
    platform: str
    board: str
    pipe: Pipe | None
    model: str
    needs: dict[str, str]
    build: tuple[tuple[str, ...], ...]
    elf: str


class Project:
    """A folder written by :func:`utvm.project`; ``facts`` are the contents of its ``project.json``."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).resolve()
        file = self.directory / FACTS
        text = read_text(file, _CREATE_HINT)
        with ConfigError.on((ValueError, RecursionError), f"{file}: is not valid JSON", _CREATE_HINT):
            content = json.loads(text)
        self.facts = validate(Facts, content, str(file), _CREATE_HINT)

    def build(self, board: boards.Board | None = None) -> Firmware:
        """Build the project with its platform's commands, and return the image."""
        for need, how in self.facts.needs.items():
            is_variable = need.isupper()
            if not (os.environ.get(need) if is_variable else shutil.which(need)):
                problem = f"the environment variable {need} is not set" if is_variable else f"{need} is not installed"
                raise ToolchainError(f"{problem}, and the platform {self.facts.platform} needs it", how)
        for command in self.facts.build:
            words = [os.path.expandvars(word) for word in command]
            run_tool(words, cwd=self.directory, timeout=_BUILD_SECONDS, error=ToolchainError)
        return self.firmware(board)

    def firmware(self, board: boards.Board | None = None) -> Firmware:
        """Return the last built image; arguments and errors as for :meth:`build`."""
        board = board or boards.load(self.facts.board)
        model = self.directory / "model"
        paths = (path for path in model.rglob("*") if path.is_file())
        files = {path.relative_to(model).as_posix(): path.read_bytes() for path in paths}
        if "metadata.json" not in files:
            raise ConfigError(f"{model}: the packaged library is missing", _CREATE_HINT)
        library = read_package(str(model), files)
        elf = self.directory / self.facts.elf
        if not elf.is_file():
            raise ConfigError(f"{elf}: is not built yet", "build it with project.build")
        image = application.read_elf(board, elf) if board.memory else Firmware(board, elf, ())
        return replace(image, libraries=(library,), pipe=self.facts.pipe)

    def expected(self) -> list[npt.NDArray[Any]]:
        """Return the expected outputs, in the model's shapes and element types; empty if unknown."""
        file = self.directory / "expected.npz"
        if not file.is_file():
            return []
        with np.load(file) as stored:
            return [stored[name] for name in stored.files]

    def listen(self, connection: drivers.Connection, image: Firmware) -> RunResult:
        return StandaloneRunner(connection, image).reset()


@contextlib.contextmanager
def open_transport(connection: drivers.Connection, image: Firmware) -> Iterator[transport.Transport]:
    connection.program(image)
    if image.pipe is not None:
        with pipes.open_pipe(connection, image) as wire:
            wire.restart()
            yield wire.transport
    elif connection.console is None:
        raise BoardError(f"{connection.board.full_name} has no console here", application.SILENT)
    else:
        connection.console.clear()
        connection.reset(halt=False)
        yield connection.console


def run_on_host(library: compiler.Library, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    host = boards.load("host")
    logs = log_folder(work() / "logs" / f"project-{os.getpid()}-{secrets.token_hex(4)}")
    image = build(host, [library], "rpc")
    with board_holder.open_session(
        drivers.choose(host, selection.BoardSelection()), image, logs, lambda _: None
    ) as session:
        return [np.asarray(output) for output in session.run(library.name, inputs).outputs]


def differences(result: RunResult, expected: Sequence[npt.NDArray[Any]]) -> list[str]:
    """Describe differing outputs: integers must be equal, floats within 1e-5, since C libraries differ."""
    messages = []
    for number, (output, reference) in enumerate(zip(result.outputs, expected, strict=True)):
        tolerance = 1e-5 if np.asarray(reference).dtype.kind == "f" else 0
        if not np.allclose(output, reference, rtol=tolerance, atol=tolerance):
            messages.append(f"output {number}: {np.asarray(output).ravel()[:8]} instead of {reference.ravel()[:8]}")
    return messages


PLATFORMS = Path(__file__).parent / "platforms"
"""Folder of the built-in platforms."""
COMMON = Path(__file__).parent / "common"
"""Templates of all platforms."""
FILE = "platform.yaml"

# Another compiler version may have more warnings.
_STRICT = frozenset({"-Werror", "-Wl,--fatal-warnings"})
_APPLICATION = runtime.DIRECTORY / "standing_alone"


class Platform(Record):
    """Contents of ``platform.yaml``. ``build`` and ``elf`` are templates.

    Attributes:
        runtime: start-up code, port and linker script: ``utvm`` for the board's, or ``own``, with C in the folder
            that implements the port functions of ``utvm.h``.
        flat: folder for all C of the application and the runtime, for builds without include paths; empty to keep
            their folders.
        needs: how to get each required program, or environment variable in capitals.
        cpus: supported CPUs, each with its ``cpu_word`` in templates; empty for all.
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
    return tuple(sorted(file.parent.name for file in PLATFORMS.glob(f"*/{FILE}")))


def load_platform(name: str) -> tuple[Path, Platform]:
    folder = Path(name).resolve() if "/" in name else PLATFORMS / name
    known = f"platforms: {', '.join(platforms())}; or the path of a folder with a {FILE}"
    if not name or not (folder / FILE).is_file():
        raise ConfigError(f"there is no platform {name!r}", did_you_mean(name, platforms(), known))
    return folder, load_yaml(folder / FILE, Platform, known)


def create(
    platform: str,
    board: boards.Board,
    model: compiler.Model,
    directory: Path,
    *,
    inputs: Sequence[npt.NDArray[Any]],
    expected: Sequence[npt.NDArray[Any]] = (),
    options: Mapping[str, str] = {},
) -> Project:
    """Write a project whose application runs a model on stored inputs and reports on the console."""
    folder, record = load_platform(platform)
    _check(platform, record, board, options)
    check_folder(directory)
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory}: is not empty", "name a folder that does not exist yet")
    library = compile_for(board, model, compiler.CompileOptions(accelerator="off"))
    image = _image_sources(board, library, record, inputs)
    own = {name: text for name, text in image.generated.items() if name not in library.sources}
    sources, headers = _runtime_files(image)
    values: dict[str, Any] = {
        **_flags(board),
        "kept": sorted(name for name in sources if name.endswith((".c", ".S"))),
        "include": sorted({str(Path(name).parent) for name in headers} | {"app"}),
        "generated": sorted(f"app/{name}" for name in own if name.endswith(".c")),
        "model_sources": sorted(f"model/codegen/host/src/{n}" for n in library.sources if n.endswith(".c")),
        "defines": [tuple(d.partition("=")[::2]) for d in image.defines if not d.startswith("UTVM_STEPS")],
        "project": directory.resolve().name,
        "name": library.name,
        "library": library,
        "library_target": cmake_target(library.name),
        "board": board,
        "platform": record,
        "options": dict(options),
        "cpu_word": record.cpus.get(board.cpu, ""),
    }
    values["build"] = [[_render(word, values) for word in command] for command in record.build]
    stack = run_stack(board, library)
    files = {f"model/{path}": data for path, data in package_files(library, model=model, stack=stack).items()}
    texts = {**sources, **headers, **{f"app/{name}": text for name, text in own.items()}}
    texts |= _render_folder(COMMON, values)
    if record.flat:
        texts = dict(_flatten(name, text, record.flat) for name, text in texts.items())
    texts |= _render_folder(folder, values)
    texts[FACTS] = json.dumps(_facts(platform, record, image, values), indent=2) + "\n"
    files |= {path: text.encode() for path, text in texts.items()}
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    if expected:
        np.savez(directory / "expected.npz", *expected)
    return Project(directory)


def _check(name: str, platform: Platform, board: boards.Board, options: Mapping[str, str]) -> None:
    if platform.cpus and board.cpu not in platform.cpus:
        raise ConfigError(
            f"the platform {name} is not for a {board.cpu}, the CPU of {board.full_name}",
            f"CPUs: {', '.join(platform.cpus)}",
        )
    for missing in platform.options.keys() - options.keys():
        raise ConfigError(
            f"the platform {name} needs the option {missing}: {platform.options[missing]}", f"--option {missing}=..."
        )
    for unknown in options.keys() - platform.options.keys():
        known = ", ".join(platform.options) or "it has none"
        raise ConfigError(f"the platform {name} has no option {unknown}", f"options: {known}")
    for option, value in options.items():
        if not re.fullmatch(r"[\w./:,=+-]+", value):
            raise ConfigError(f"the option {option} cannot be {value!r}", "use letters, digits and ./:,=+-")


def _image_sources(
    board: boards.Board, library: compiler.Library, platform: Platform, inputs: Sequence[npt.NDArray[Any]]
) -> ImageSources:
    if platform.runtime == "utvm":
        return image_sources(board, [library], "standing_alone", inputs)
    return ImageSources(
        runtime.portable_files("standing_alone"),
        (runtime.INCLUDE, _APPLICATION),
        generate([library], "standing_alone", inputs, linked_by_script=False),
        (f"UTVM_BOARD_NAME={quoting.c_string(board.name)}",),
    )


def _facts(name: str, platform: Platform, image: ImageSources, values: dict[str, Any]) -> dict[str, object]:
    board: boards.Board = values["board"]
    built_in = board.directory.is_relative_to(Path(boards.__file__).parent)
    return {
        "version": VERSION,
        "platform": name,
        "board": ("" if built_in else f"{board.directory.resolve().parent}/") + board.full_name,
        "pipe": image.pipe,
        "model": values["name"],
        "needs": platform.needs,
        "build": values["build"],
        "elf": _render(platform.elf, values),
    }


def _render_folder(folder: Path, values: dict[str, object]) -> dict[str, str]:
    """Render the files of a folder: text by path. ``PROJECT`` in a file name becomes the project's name.

    A template may extend or include a built-in platform's: ``cmake/CMakeLists.txt``.
    """
    environment = templates.templates_of(jinja2.FileSystemLoader([folder, PLATFORMS]))
    environment.filters["c"] = lambda text: str(text).replace("\\", "\\\\").replace('"', '\\"')
    environment.filters["shell"] = shlex.join
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        # pip compiles all Python that it installs.
        if path.is_dir() or name == FILE or "__pycache__" in path.parts:
            continue
        try:
            text = environment.get_template(name).render(values)
        except (jinja2.TemplateError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be rendered: {error}", "check the names in braces") from error
        files[name.removesuffix(".j2").replace("PROJECT", str(values["project"]))] = text
    return files


def _render(text: str, values: dict[str, object]) -> str:
    with ConfigError.on(jinja2.TemplateError, f"{FILE}: {text!r} cannot be rendered:"):
        return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text).render(values)


def _flatten(name: str, text: str, folder: str) -> tuple[str, str]:
    if not name.startswith(("app/", "runtime/")):
        return name, text
    return f"{folder}/{Path(name).name}", f'#include "config.h"\n{text}' if name.endswith(".c") else text


def _runtime_files(image: ImageSources) -> tuple[dict[str, str], dict[str, str]]:
    headers = [path for folder in image.include for path in sorted(folder.glob("*.h"))]
    sources, texts = ({_project_path(p): p.read_text("utf-8") for p in paths} for paths in (image.files, headers))
    return sources, texts


def _project_path(path: Path) -> str:
    if path.is_relative_to(_APPLICATION):
        return f"app/{path.name}"
    if path.is_relative_to(runtime.DIRECTORY):
        return f"runtime/{path.relative_to(runtime.DIRECTORY).as_posix()}"
    return f"board/{path.name}"


def _flags(board: boards.Board) -> dict[str, object]:
    toolchain = board.compiler
    return {
        "toolchain": toolchain.data,
        "cpu_flags": toolchain.cpu(board.cpu).flags,
        "c_flags": [flag for flag in toolchain.data.c_flags if flag not in _STRICT],
        "link_flags": [flag for flag in toolchain.data.link_flags if flag not in _STRICT],
    }
