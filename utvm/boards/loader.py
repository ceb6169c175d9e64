"""Finds and reads board folders."""

from pathlib import Path

from utvm.boards.board import Board, ProcessBoard
from utvm.config import load_yaml
from utvm.errors import ConfigError
from utvm.toolchain import Toolchain

DIRECTORY = Path(__file__).resolve().parent


def names() -> tuple[str, ...]:
    """Return the names of the boards that come with the project, sorted."""
    return tuple(sorted(path.parent.name for path in DIRECTORY.glob("*/board.yaml")))


def load(name: str) -> Board:
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
    if not (directory / "board.yaml").is_file():
        raise ConfigError(
            f"{directory / 'board.yaml'}: is missing", "a board folder has board.yaml, openocd.cfg, port.c"
        )
    board = load_yaml(directory / "board.yaml", Board, directory=directory)
    for path in (board.openocd_config, board.port_source):
        if not path.is_file():
            raise ConfigError(f"{path}: is missing", "a board folder has board.yaml, openocd.cfg and port.c")
    if board.name != directory.name:
        raise ConfigError(
            f"{directory / 'board.yaml'}: name is {board.name!r}, the folder {directory.name!r}",
            "the two must be the same",
        )
    Toolchain(board.toolchain).cpu(board.cpu)
    return board


def is_process(name: str) -> bool:
    """Return whether a board of the project is a process on this computer."""
    return "/" not in name and (DIRECTORY / name / "process.yaml").is_file()


def load_process(name: str) -> ProcessBoard:
    """Read and check the folder of a board that is a process.

    Raises:
        ConfigError: the folder is not complete and right.
    """
    board = load_yaml(DIRECTORY / name / "process.yaml", ProcessBoard)
    Toolchain(board.toolchain).cpu(board.cpu)
    return board
