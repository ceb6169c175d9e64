# SPDX-License-Identifier: Apache-2.0
"""Boards as data: a folder for each board, with ``board.yaml`` and, for a chip, ``openocd.cfg`` and ``port.c``.

:func:`load` reads and checks a board's folder, :func:`load_chip` one that must have a memory map; :func:`names`
lists the boards of the project and of the user's board path.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from utvm import runtime, selection
from utvm.base.storage.config import Record, read_yaml, validate
from utvm.boards.board import CYCLES, DRIVER, Board
from utvm.boards.parts import MemoryRegion, Port
from utvm.errors import ConfigError, did_you_mean
from utvm.virtual.spec import TRIALS

__all__ = ["DRIVER", "PATH_VARIABLE", "Algorithm", "Board", "algorithm_of", "alternatives", "chips", "load"]
__all__ += ["load_chip", "names", "probe_boards", "project_names", "set_board_path"]

PROJECT = Path(__file__).resolve().parent
PATH_VARIABLE = "UTVM_BOARD_PATH"
"""Environment variable with further folders of boards, separated by colons."""

_COMPLETE = "a board folder has board.yaml, openocd.cfg if OpenOCD drives it, and port.c if it has a port of its own"
_LARGEST = 1 << 20  # bytes of a board.yaml
_KEYS = "docs/porting.md explains the keys of a board"


def set_board_path(path: str) -> None:
    """Set the board path of this process and its children: folders of boards, separated by colons."""
    os.environ[PATH_VARIABLE] = ":".join(map(str, _check_path(path)))


def _search_path() -> list[Path]:
    return list(dict.fromkeys((PROJECT, *_check_path(os.environ.get(PATH_VARIABLE, "")))))


def _check_path(path: str) -> list[Path]:
    folders = [Path(os.path.realpath(part)) for part in path.split(":") if part]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: is not a folder of boards",
                f"--board-path and {PATH_VARIABLE} take folders that hold board folders, separated by colons",
            )
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ConfigError(f"{folder}: a folder of boards that cannot be read", "check its permissions")
        if _is_board(folder):
            raise ConfigError(
                f"{folder}: is a board's own folder, not a folder of boards",
                f"name its parent, {folder.parent}; or give --board {folder}",
            )
    return folders


def _is_board(folder: Path) -> bool:
    try:
        return (folder / "board.yaml").is_file()
    except OSError:
        return True  # Reading it gives the error.


def _folders() -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for parent in _search_path():
        for folder in sorted(file.parent for file in parent.glob("*/board.yaml")):
            if folder.name in folders:
                raise ConfigError(
                    f"there are two boards {folder.name!r}: {folders[folder.name]} and {folder}",
                    "rename one, its folder and the name in its board.yaml; or remove the other's folder from "
                    f"--board-path and {PATH_VARIABLE}",
                )
            folders[folder.name] = folder
    return dict(sorted(folders.items()))


def names() -> tuple[str, ...]:
    """Names of all boards of the project and the board path, sorted."""
    return tuple(_folders())


def project_names() -> tuple[str, ...]:
    """Names of the boards of the project, sorted."""
    return tuple(name for name, folder in _folders().items() if folder.parent == PROJECT)


def chips() -> tuple[Board, ...]:
    """All boards with a memory map, by name; invalid folders are skipped."""
    boards = []
    for name in names():
        with contextlib.suppress(ConfigError):
            boards.append(load(name))
    return tuple(board for board in boards if board.memory)


def probe_boards() -> tuple[Board, ...]:
    """All boards that can be plugged in through a probe; as :func:`chips`."""
    return tuple(board for board in chips() if board.physical)


def alternatives(board: Board) -> tuple[Board, ...]:
    """Variants of a board with one setting changed, for each other value."""
    return tuple(
        _read(board.directory, {**board.settings, name: value})
        for name, values in board.choices.items()
        for value in values
        if value != board.settings[name]
    )


def load_chip(name: str) -> Board:
    """Load a board, as :func:`load`, that must have a memory map."""
    board = load(name)
    _ = board.layout
    return board


def load(name: str) -> Board:
    """Read and check a board's folder, given by one of :func:`names` or a path with a slash in it.

    Settings may follow, ``:NAME=VALUE,...``. The default of a setting is its first value. Every board has the
    settings ``driver``, one of :mod:`utvm.drivers`, and ``cycles``: ``model``. The settings of
    :data:`~utvm.virtual.spec.TRIALS` imply ``cycles=model``.
    """
    name, text = selection.split_name(name)
    settings = _parse_settings(name, text)
    if not name:
        raise ConfigError("missing --board", f"choose one of: {', '.join(names())}")
    if "/" in name:
        return _read(Path(os.path.realpath(name)), settings)
    # Look for the name alone first: the list of all boards is slow.
    matches = [parent / name for parent in _search_path() if _is_board(parent / name)]
    folder = matches[0] if len(matches) == 1 else _folders().get(name)
    if folder is None:
        known = did_you_mean(name, _folders(), f"boards: {', '.join(_folders())}")
        is_folder = (Path(name) / "board.yaml").is_file()
        raise ConfigError(
            f"there is no board {name!r}", f"name a folder with a slash: ./{name}" if is_folder else known
        )
    return _read(folder, settings)


def _parse_settings(name: str, text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in text.removeprefix(":").split(",") if text else ():
        key, _, value = pair.partition("=")
        if not key or not value or key in settings:
            raise ConfigError(f"{name + text!r}: {pair!r} is not a setting", "for instance BOARD:NAME=VALUE,NAME=VALUE")
        settings[key] = value
    return settings


class _OfferedSettings(Record):
    """Settings of a file: each value replaces other keys."""

    model_config = ConfigDict(extra="ignore")

    settings: dict[str, Annotated[dict[str, dict[str, Any]], Field(min_length=1)]] = Field(default={})


def _read(directory: Path, settings: Mapping[str, str]) -> Board:
    file = directory / "board.yaml"
    with ConfigError.on_os_error(f"{file}: cannot be read", _COMPLETE):
        size = file.stat().st_size if file.is_file() else -1
    if size < 0:
        raise ConfigError(f"{file}: is missing", _COMPLETE)
    if size > _LARGEST:
        raise ConfigError(f"{file}: is larger than {_LARGEST >> 20} MiB", _KEYS)
    content, text = read_yaml(file, _KEYS)
    offered = {}
    if "settings" in content:
        offered = validate(_OfferedSettings, content, str(file), _KEYS, text).settings
    general = {name: value for name, value in settings.items() if name in {DRIVER, CYCLES, *TRIALS} - {*offered}}
    others = {name: value for name, value in settings.items() if name not in general}
    files = _choose(directory.name, offered, others)
    replaced: dict[str, Any] = {}
    for name, value in files.items():
        replaced |= offered[name][value]
    choices = {name: tuple(values) for name, values in offered.items()}
    if general.keys() & TRIALS.keys():
        general.setdefault(CYCLES, "model")
    replaced |= {"directory": directory, "choices": choices, "settings": {**files, **general}}
    board = validate(Board, {**content, **replaced}, str(file), _KEYS, text)
    _check(board, file)
    return board


def _check(board: Board, file: Path) -> None:
    chosen = board.settings.get(CYCLES, "off")
    if chosen not in ("model", "off"):
        raise ConfigError(f"{board.name}: cycles cannot be {chosen!r}", "it can be: model, off")
    if chosen == "model" and not board.timing:
        raise ConfigError(
            f"{board.name} has no model of cycles: it counts instructions", "docs/time.md lists boards with one"
        )
    for name in [name for name in TRIALS if name in board.settings and name not in board.choices]:
        if TRIALS[name] and board.settings[name] not in TRIALS[name]:
            value = board.settings[name]
            raise ConfigError(f"{board.name}: {name} cannot be {value!r}", f"one of {', '.join(TRIALS[name])}")
        if name == "clock" and board.timing and not board.timing.states:
            raise ConfigError(f"{board.name}: wait states at other clocks are not known", "leave clock out")
    for path in board.openocd_configs if board.by_openocd or board.virtual.simulator else ():
        if not path.is_file():
            raise ConfigError(f"{path}: is missing", _COMPLETE)
    if board.name != board.directory.name:
        raise ConfigError(f"{file}: name is {board.name!r}, the folder {board.directory.name!r}", "make them the same")
    try:
        row = board.cpu_row
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", error.hint) from error
    if row.architecture not in runtime.architectures():
        raise ConfigError(
            f"{file}: cpu: row {board.cpu!r} has the unknown architecture {row.architecture!r}",
            f"choose one of {', '.join(runtime.architectures())}",
        )
    if board.memory:
        _ = board.port_source
        _ = algorithm_of(board)
        if board.is_guarded and row.stack_guard == "none":
            raise ConfigError(
                f"{file}: layout.stack: an overflow must leave memory, but something lies below "
                f"{board.layout.stack}, or answers there, and {board.cpu} cannot guard it",
                _KEYS,
            )


def _choose(board: str, offered: Mapping[str, Mapping[str, object]], settings: Mapping[str, str]) -> dict[str, str]:
    for name, value in settings.items():
        if name not in offered:
            raise ConfigError(
                f"{board} has no setting {name!r}",
                did_you_mean(name, offered, f"it has: {', '.join(offered) or 'none'} (./inv board.show)"),
            )
        if value not in offered[name]:
            possible = did_you_mean(value, offered[name], f"it can be: {', '.join(offered[name])}")
            raise ConfigError(f"{board}: {name} cannot be {value!r}", possible)
    return {name: settings.get(name) or next(iter(values)) for name, values in offered.items()}


@dataclass(frozen=True)
class Algorithm:
    """A flash algorithm: its C file, the macros' numbers, and the region that it programs."""

    source: Path
    numbers: Port
    region: MemoryRegion


def algorithm_of(board: Board) -> Algorithm | None:
    """The flash algorithm that a board has for pyOCD, if any."""
    part = board.physical.pyocd if board.physical else None
    if part is None or part.algorithm is None:
        return None
    file, architecture = board.directory / "board.yaml", board.architecture
    own = board.directory / f"{part.algorithm.name}.c"
    source = own if own.is_file() else runtime.find_shared(architecture, "flash", part.algorithm.name)
    if source is None:
        known = ", ".join(runtime.shared_names(architecture, "flash"))
        raise ConfigError(
            f"{file}: physical.pyocd.algorithm: there is none named {part.algorithm.name!r}",
            f"name a C file in the board's folder, or one of {architecture}'s: {known or 'none'}",
        )
    regions = [region for region in board.memory if region.kind == "flash" and region.sectors and not region.alias_of]
    if len(regions) != 1:
        raise ConfigError(
            f"{file}: physical.pyocd.algorithm: it programs one region of kind flash with sectors; "
            f"there are {len(regions)}",
            "docs/porting.md, step 8",
        )
    return Algorithm(source, part.algorithm, regions[0])
