# SPDX-License-Identifier: Apache-2.0
"""Finds and reads board folders."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from utvm import runtime
from utvm.base.storage.config import Record, read_yaml, validate
from utvm.boards.board import DRIVER, Board
from utvm.boards.parts import MemoryRegion, Port
from utvm.errors import ConfigError
from utvm.selection import split_name

PROJECT = Path(__file__).resolve().parent

PATH_VARIABLE = "UTVM_BOARD_PATH"
"""The environment variable that names the other folders, with colons between them."""


def set_board_path(path: str) -> None:
    """Look for boards in these folders from now on, in this process and in those that it starts.

    They take the place of what :data:`PATH_VARIABLE` had named before.

    Args:
        path: folders that hold board folders, with colons between them.
    """
    os.environ[PATH_VARIABLE] = ":".join(map(str, _others(path)))


def folders() -> dict[str, Path]:
    """Return the folder of every board that can be named, by name, sorted."""
    found: dict[str, Path] = {}
    # A folder that is named twice is still one.
    for place in dict.fromkeys((PROJECT, *_others(os.environ.get(PATH_VARIABLE, "")))):
        for folder in sorted(file.parent for file in place.glob("*/board.yaml")):
            if folder.name in found:
                raise ConfigError(
                    f"there are two boards {folder.name!r}: {found[folder.name]} and {folder}",
                    "rename one, its folder and the name in its board.yaml; or leave the other's folder out of "
                    f"--board-path and {PATH_VARIABLE}",
                )
            found[folder.name] = folder
    return dict(sorted(found.items()))


def folder_of(name: str) -> Path | None:
    """Return the folder of one board, without looking at all others; None where there is none."""
    places = dict.fromkeys((PROJECT, *_others(os.environ.get(PATH_VARIABLE, ""))))
    found = [place / name for place in places if _is_board(place / name)]
    return found[0] if len(found) == 1 else folders().get(name)


def _is_board(folder: Path) -> bool:
    """Whether a folder is a board's; where nobody may look, whoever reads it says so."""
    try:
        return (folder / "board.yaml").is_file()
    except OSError:
        return True


def _others(path: str) -> list[Path]:
    places = [Path(os.path.realpath(part)) for part in path.split(":") if part]
    for place in places:
        if not place.is_dir():
            raise ConfigError(
                f"{place}: is no folder, and boards are looked for in it",
                f"--board-path and {PATH_VARIABLE} take folders that hold board folders, with colons between them",
            )
        if not os.access(place, os.R_OK | os.X_OK):
            raise ConfigError(f"{place}: cannot be read, and boards are looked for in it", "let yourself read it")
        if _is_board(place):
            raise ConfigError(
                f"{place}: is a board's own folder, and boards are looked for in it",
                f"name the folder that it is in, {place.parent}; or give --board {place}",
            )
    return places


@dataclass(frozen=True)
class Algorithm:
    """How the flash is programmed.

    Attributes:
        source: its C file, of the board's folder or the runtime.
        numbers: what becomes macros in it.
        region: what it programs.
    """

    source: Path
    numbers: Port
    region: MemoryRegion


def algorithm_of(board: Board) -> Algorithm | None:
    """Return the algorithm that a board brings for pyOCD; None where it brings none."""
    part = board.physical.pyocd if board.physical else None
    if part is None or part.algorithm is None:
        return None
    file, architecture = board.directory / "board.yaml", board.architecture
    own = board.directory / f"{part.algorithm.name}.c"
    source = own if own.is_file() else runtime.shared(architecture, "flash", part.algorithm.name)
    if source is None:
        known = ", ".join(runtime.shared_names(architecture, "flash"))
        raise ConfigError(
            f"{file}: physical.pyocd.algorithm: there is none named {part.algorithm.name!r}",
            f"it is a C file in the board's folder, or one of {architecture}'s: {known or 'none'}",
        )
    regions = [each for each in board.memory if each.kind == "flash" and each.sectors and not each.alias_of]
    if len(regions) != 1:
        raise ConfigError(
            f"{file}: physical.pyocd.algorithm: it programs one region of kind flash with sectors; "
            f"there are {len(regions)}",
            "docs/porting.md, step 8",
        )
    return Algorithm(source, part.algorithm, regions[0])


_COMPLETE = (
    "a board folder has board.yaml, openocd.cfg if OpenOCD drives it, and port.c if it has a port of its own"
)
_LARGEST = 1 << 20  # bytes of a board.yaml
_KEYS = "docs/porting.md says what the keys of a board are, in the order in which one finds them out"


class _Kind(Record):
    """What decides what the rest is. A setting's value is what it puts in place of other keys of the file."""

    model_config = ConfigDict(extra="ignore")

    settings: dict[str, Annotated[dict[str, dict[str, Any]], Field(min_length=1)]] = Field(default={})


def names() -> tuple[str, ...]:
    """Return the names of the boards that can be named, sorted: the project's, and those of the board path."""
    return tuple(folders())


def project_names() -> tuple[str, ...]:
    """Return the names of the boards that come with the project, sorted."""
    return tuple(name for name, folder in folders().items() if folder.parent == PROJECT)


def chips() -> tuple[Board, ...]:
    """Return the boards that are chips, with a memory map, by name; a folder that is wrong hides no other."""
    return tuple(board for name in names() if (board := _readable(name)) and board.memory)


def _readable(name: str) -> Board | None:
    with contextlib.suppress(ConfigError):
        return load(name)
    return None


def probe_boards() -> tuple[Board, ...]:
    """Return the boards that can be plugged in through a probe, by name; as :func:`chips`."""
    return tuple(board for board in chips() if board.physical)


def alternatives(board: Board) -> tuple[Board, ...]:
    """Return a board as it is with one of its settings chosen otherwise, once for each value."""
    return tuple(
        _read(board.directory, {**board.settings, name: value})
        for name, values in board.choices.items()
        for value in values
        if value != board.settings[name]
    )


def load_chip(name: str) -> Board:
    """Read and check the folder of a board that has a memory map.

    Args:
        name: as :func:`load`.
    """
    board = load(name)
    _ = board.layout
    return board


def load(name: str) -> Board:
    """Read and check a board's folder.

    Args:
        name: one of :func:`names`, or the path of a board's folder (with a slash in it); behind a colon, its
            settings: ``NAME=VALUE``, with commas between them. One that is not said is the file's first. Every
            board has ``driver``: the way by which it is to be reached, one of :mod:`utvm.drivers`.
    """
    name, settings = split_name(name)
    wanted = _settings(name, settings)
    if not name:
        raise ConfigError("no board is named", f"give one; boards: {', '.join(names())}")
    if "/" in name:
        return _read(Path(os.path.realpath(name)), wanted)
    folder = folder_of(name)
    if folder is None:
        known = f"boards: {', '.join(folders())}"
        here = (Path(name) / "board.yaml").is_file()
        raise ConfigError(
            f"there is no board {name!r}", f"a folder is named with a slash: ./{name}" if here else known
        )
    return _read(folder, wanted)


def _settings(name: str, text: str) -> dict[str, str]:
    """Read ``:KEY=VALUE,...``."""
    wanted: dict[str, str] = {}
    for pair in text.removeprefix(":").split(",") if text else ():
        key, _, value = pair.partition("=")
        if not key or not value or key in wanted:
            raise ConfigError(
                f"{name + text!r}: {pair!r} is no setting", "for instance BOARD:NAME=VALUE,NAME=VALUE"
            )
        wanted[key] = value
    return wanted


def _read(directory: Path, wanted: Mapping[str, str]) -> Board:
    file = directory / "board.yaml"
    try:
        size = file.stat().st_size if file.is_file() else -1
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}", _COMPLETE) from error
    if size < 0:
        raise ConfigError(f"{file}: is missing", _COMPLETE)
    if size > _LARGEST:
        raise ConfigError(f"{file}: has more than {_LARGEST >> 20} MiB, and is no board's", _KEYS)
    content, text = read_yaml(file, _KEYS)
    kind = validate(_Kind, content, str(file), _KEYS, text) if "settings" in content else _Kind()
    driver = {DRIVER: wanted[DRIVER]} if DRIVER in wanted else {}
    chosen = _choose(directory.name, kind.settings, {name: wanted[name] for name in wanted if name != DRIVER})
    replaced: dict[str, Any] = {}
    for name, value in chosen.items():
        replaced |= kind.settings[name][value]
    choices = {name: tuple(values) for name, values in kind.settings.items()}
    given = {**replaced, "directory": directory, "choices": choices, "settings": {**chosen, **driver}}
    board = validate(Board, {**content, **given}, str(file), _KEYS, text)
    for path in board.openocd_configs if board.by_openocd or board.virtual.simulator else ():
        if not path.is_file():
            raise ConfigError(f"{path}: is missing", _COMPLETE)
    if board.name != directory.name:
        raise ConfigError(
            f"{file}: name is {board.name!r}, the folder {directory.name!r}", "the two must be the same"
        )
    try:
        row = board.cpu_row
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", error.hint) from error
    if row.architecture not in runtime.architectures():
        said = f"{file}: cpu: row {board.cpu!r} has the architecture {row.architecture!r}, which there is not"
        raise ConfigError(said, f"there are {', '.join(runtime.architectures())}")
    if board.memory:
        _ = board.port_source
        _ = algorithm_of(board)
        if board.is_guarded and row.stack_guard == "none":
            raise ConfigError(
                f"{file}: layout.stack: an overflow must leave memory, but something lies below "
                f"{board.layout.stack}, or answers there, and {board.cpu} cannot guard it",
                _KEYS,
            )
    return board


def _choose(board: str, offered: Mapping[str, Mapping[str, object]], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return a value for each setting that is offered: the wanted one, else the first."""
    for name, value in wanted.items():
        if name not in offered:
            raise ConfigError(
                f"{board} has no setting {name!r}", f"it has: {', '.join(offered) or 'none'} (./inv board.show)"
            )
        if value not in offered[name]:
            raise ConfigError(f"{board}: {name} cannot be {value!r}", f"it can be: {', '.join(offered[name])}")
    return {name: wanted.get(name) or next(iter(values)) for name, values in offered.items()}
