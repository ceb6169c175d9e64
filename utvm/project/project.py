# SPDX-License-Identifier: Apache-2.0
"""An existing project: building it, flashing a board with it, and reading its output."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from utvm import boards
from utvm.base.log import log_folder
from utvm.base.process.run import run_tool
from utvm.base.storage.config import Record, validate
from utvm.base.storage.files import read_text
from utvm.boards import Board
from utvm.compiler import Library
from utvm.compiler.package import read_package
from utvm.drivers import Connection, choose
from utvm.errors import BoardError, ConfigError, ToolchainError
from utvm.firmware import Firmware, build
from utvm.paths import work
from utvm.runtime import Pipe
from utvm.selection import BoardSelection
from utvm.session import RunResult, StandaloneRunner
from utvm.session.application import SILENT, read_elf
from utvm.session.board_holder import open_session
from utvm.session.pipes import open_pipe
from utvm.session.transport import Transport

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
    """A folder written by :func:`utvm.project.create`; ``facts`` are the contents of its ``project.json``."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).resolve()
        file = self.directory / FACTS
        text = read_text(file, _CREATE_HINT)
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file}: is not valid JSON", _CREATE_HINT) from error
        self.facts = validate(Facts, content, str(file), _CREATE_HINT)

    def build(self, board: Board | None = None) -> Firmware:
        """Build the project with its platform's commands, and return the image."""
        for need, how in self.facts.needs.items():
            is_variable = need.isupper()
            if not (os.environ.get(need) if is_variable else shutil.which(need)):
                problem = (
                    f"the environment variable {need} is not set" if is_variable else f"{need} is not installed"
                )
                raise ToolchainError(f"{problem}, and the platform {self.facts.platform} needs it", how)
        for command in self.facts.build:
            words = [os.path.expandvars(word) for word in command]
            run_tool(words, cwd=self.directory, timeout=_BUILD_SECONDS, error=ToolchainError)
        return self.firmware(board)

    def firmware(self, board: Board | None = None) -> Firmware:
        """The image built last; arguments and errors as for :meth:`build`."""
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
        image = read_elf(board, elf) if board.memory else Firmware(board, elf, ())
        return replace(image, libraries=(library,), pipe=self.facts.pipe)

    def expected(self) -> list[npt.NDArray[Any]]:
        """The expected outputs, in the model's shapes and element types; empty if unknown."""
        file = self.directory / "expected.npz"
        if not file.is_file():
            return []
        with np.load(file) as stored:
            return [stored[name] for name in stored.files]

    def listen(self, connection: Connection, image: Firmware) -> RunResult:
        return StandaloneRunner(connection, image).reset()


@contextlib.contextmanager
def open_transport(connection: Connection, image: Firmware) -> Iterator[Transport]:
    """Flash and start an image on a board; yield the transport to it."""
    connection.program(image)
    if image.pipe is not None:
        with open_pipe(connection, image) as wire:
            wire.restart()
            yield wire.transport
    elif connection.console is None:
        raise BoardError(f"{connection.board.full_name} has no console here", SILENT)
    else:
        connection.console.clear()
        connection.reset(halt=False)
        yield connection.console


def run_on_host(library: Library, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    host = boards.load("host")
    logs = log_folder(work() / "logs" / f"project-{os.getpid()}-{secrets.token_hex(4)}")
    image = build(host, [library], "rpc")
    with open_session(choose(host, BoardSelection()), image, logs, lambda _: None) as session:
        return [np.asarray(output) for output in session.run(library.name, inputs).outputs]


def differences(result: RunResult, expected: Sequence[npt.NDArray[Any]]) -> list[str]:
    """Describe the outputs that differ: integers at all, floats by more than 1e-5, since C libraries differ."""
    messages = []
    for number, (output, reference) in enumerate(zip(result.outputs, expected, strict=True)):
        tolerance = 1e-5 if np.asarray(reference).dtype.kind == "f" else 0
        if not np.allclose(output, reference, rtol=tolerance, atol=tolerance):
            messages.append(
                f"output {number}: {np.asarray(output).ravel()[:8]} instead of {reference.ravel()[:8]}"
            )
    return messages
