# SPDX-License-Identifier: Apache-2.0
"""A project that is there: it is built, put on a board, and listened to."""

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
from utvm.base.log.folders import log_folder
from utvm.base.process.run import run_tool
from utvm.base.storage.config import Record, validate
from utvm.base.storage.files import read_text
from utvm.boards import Board
from utvm.compiler import Library
from utvm.compiler.package import read_package
from utvm.drivers import Connection, DriverOptions, choose
from utvm.errors import BoardError, ConfigError, ToolchainError
from utvm.firmware import Firmware, build
from utvm.paths import work
from utvm.runtime import Pipe
from utvm.session import RunResult, StandingAlone
from utvm.session.application import SILENT, read_elf
from utvm.session.open_session import open_session
from utvm.session.pipes import open_pipe
from utvm.session.transport import Transport

FACTS = "project.json"
VERSION = 1
_BUILD_SECONDS = 1800.0
_MADE_BY = "project.create makes one"


class Facts(Record):
    """What ``project.json`` says of a project; commands run with the rights of whoever builds it."""

    version: Literal[1]
    platform: str
    board: str
    pipe: Pipe | None
    model: str
    needs: dict[str, str]
    build: tuple[tuple[str, ...], ...]
    elf: str


class Project:
    """A folder that :func:`utvm.project.create` wrote.

    Attributes:
        directory: the folder.
        facts: what its ``project.json`` says.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).resolve()
        file = self.directory / FACTS
        text = read_text(file, _MADE_BY)
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file}: is no JSON", _MADE_BY) from error
        self.facts = validate(Facts, content, str(file), _MADE_BY)

    def build(self, board: Board | None = None) -> Firmware:
        """Build it by its platform's own commands, and return the image.

        Args:
            board: by default the one that it was made for; another must have the same memory.
        """
        for need, how in self.facts.needs.items():
            there = os.environ.get(need) if need.isupper() else shutil.which(need)
            if not there:
                what = (
                    f"the environment variable {need} is not set" if need.isupper() else f"{need} is not installed"
                )
                raise ToolchainError(f"{what}, and the platform {self.facts.platform} needs it", how)
        for command in self.facts.build:
            words = [os.path.expandvars(word) for word in command]
            run_tool(words, cwd=self.directory, timeout=_BUILD_SECONDS, error=ToolchainError)
        return self.firmware(board)

    def firmware(self, board: Board | None = None) -> Firmware:
        """Return the image as it was built; arguments and errors as :meth:`build`."""
        board = board or boards.load(self.facts.board)
        model = self.directory / "model"
        files = {
            path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()
        }
        if "metadata.json" not in files:
            raise ConfigError(f"{model}: the packaged library is not there", _MADE_BY)
        library = read_package(str(model), files)
        elf = self.directory / self.facts.elf
        if not elf.is_file():
            raise ConfigError(f"{elf}: has not been built", "project.build builds it")
        image = read_elf(board, elf) if board.memory else Firmware(board, elf, ())
        return replace(image, libraries=(library,), pipe=self.facts.pipe)

    def expected(self) -> list[npt.NDArray[Any]]:
        """Return what the outputs should be, in the model's shapes and element types; empty if nobody knows."""
        file = self.directory / "expected.npz"
        if not file.is_file():
            return []
        with np.load(file) as stored:
            return [stored[name] for name in stored.files]

    def listen(self, connection: Connection, image: Firmware) -> RunResult:
        """Put it on a board, start it, and return what it reports."""
        return StandingAlone(connection, image).reset()


@contextlib.contextmanager
def open_transport(connection: Connection, image: Firmware) -> Iterator[Transport]:
    """Put an image on a board and start it; what it says, and is told, is read and written for a ``with``
    block.
    """
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
    """Return what a library that was compiled for the board ``host`` makes of inputs."""
    host = boards.load("host")
    logs = log_folder(work() / "logs" / f"project-{os.getpid()}-{secrets.token_hex(4)}")
    with open_session(
        choose(host, DriverOptions("auto", "")), build(host, [library], "rpc"), logs, lambda _: None
    ) as session:
        return [np.asarray(output) for output in session.run(library.name, inputs).outputs]


def differences(result: RunResult, expected: Sequence[npt.NDArray[Any]]) -> list[str]:
    """Return in words how outputs differ from what they should be.

    Integers must be the same. Real numbers may be off by 1e-5, for C libraries differ in the last digits.
    """
    words = []
    for number, (got, wanted) in enumerate(zip(result.outputs, expected, strict=True)):
        tolerance = 1e-5 if np.asarray(wanted).dtype.kind == "f" else 0
        close = np.allclose(got, wanted, rtol=tolerance, atol=tolerance)
        if not close:
            words.append(f"output {number}: {np.asarray(got).ravel()[:8]} instead of {wanted.ravel()[:8]}")
    return words
