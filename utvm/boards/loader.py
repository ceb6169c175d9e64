"""Finds and reads board folders."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from utvm.boards.board import Board, OpenOcdBoard, ProcessBoard, QemuBoard
from utvm.config import Record, load_yaml
from utvm.errors import ConfigError
from utvm.toolchain import Toolchain

DIRECTORY = Path(__file__).resolve().parent

_COMPLETE = (
    "a board folder has board.yaml, openocd.cfg and port.c; that of an emulated board has no openocd.cfg, "
    "that of a process board.yaml alone"
)


class _Kind(Record):
    """What decides how the rest is read."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["chip", "process"] = "chip"
    virtual: object = None

    @property
    def emulated(self) -> bool:
        return isinstance(self.virtual, dict) and "emulator" in self.virtual


def names() -> tuple[str, ...]:
    """Return the names of the boards that come with the project, sorted."""
    return tuple(sorted(path.parent.name for path in DIRECTORY.glob("*/board.yaml")))


def chips() -> tuple[Board, ...]:
    """Return the project's boards that have a debug port, by name.

    Raises:
        ConfigError: one of their folders is wrong.
    """
    return tuple(board for name in names() if isinstance(board := load_any(name), Board))


def probed() -> tuple[OpenOcdBoard, ...]:
    """Return the project's boards that can be plugged in through a probe, by name.

    Raises:
        ConfigError: one of their folders is wrong.
    """
    return tuple(board for board in chips() if isinstance(board, OpenOcdBoard))


def load(name: str) -> Board:
    """Read and check the folder of a board that has a debug port.

    Args:
        name: as :func:`load_any`.

    Raises:
        ConfigError: as :func:`load_any`; or it is a process, without a debug port.
    """
    board = load_any(name)
    if isinstance(board, ProcessBoard):
        raise ConfigError(
            f"{board.name} is a process on this computer: it has no debug port, no probe and no memory map",
            "./inv hil, model.run, model.eval, model.profile and board.serve take it; for this, name another "
            "board (./inv board.list)",
        )
    return board


def load_any(name: str) -> Board | ProcessBoard:
    """Read and check a board's folder.

    Args:
        name: a board of the project, or the path of a folder elsewhere (with a slash in it).

    Raises:
        ConfigError: there is no such board, or its folder is not complete and right; the message names the
            file, the key and what was expected.
    """
    directory = Path(name).resolve() if "/" in name else DIRECTORY / name
    if not name:
        raise ConfigError("no board is named", f"give one; boards: {', '.join(names())}")
    if "/" not in name and name not in names():
        raise ConfigError(f"there is no board {name!r}", f"boards: {', '.join(names())}")
    file = directory / "board.yaml"
    if not file.is_file():
        raise ConfigError(f"{file}: is missing", _COMPLETE)
    board: Board | ProcessBoard
    files: list[Path] = []
    kind = load_yaml(file, _Kind)
    if kind.kind == "process":
        board = load_yaml(file, ProcessBoard, directory=directory)
    elif kind.emulated:
        board = load_yaml(file, QemuBoard, directory=directory)
        files = [board.port_source]
    else:
        board = load_yaml(file, OpenOcdBoard, directory=directory)
        files = [board.openocd_config, board.port_source]
    for path in files:
        if not path.is_file():
            raise ConfigError(f"{path}: is missing", _COMPLETE)
    if board.name != directory.name:
        raise ConfigError(
            f"{file}: name is {board.name!r}, the folder {directory.name!r}", "the two must be the same"
        )
    Toolchain(board.toolchain).cpu(board.cpu)
    return board
