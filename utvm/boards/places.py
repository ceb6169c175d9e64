# SPDX-License-Identifier: Apache-2.0
"""Where boards are looked for by name: in the project, and in the folders that the user has of his own."""

import os
from pathlib import Path

from utvm.errors import ConfigError

PROJECT = Path(__file__).resolve().parent

PATH_VARIABLE = "UTVM_BOARD_PATH"
"""The environment variable that names the other folders, with colons between them."""


def search_also(path: str) -> None:
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
