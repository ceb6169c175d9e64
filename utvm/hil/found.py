# SPDX-License-Identifier: Apache-2.0
"""Which suites there are: those that come with utvm, and the current project's own, in its folder ``hil``."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm.errors import ConfigError
from utvm.paths import DATA, project

BUNDLED = DATA / "hil_tests"


@dataclass(frozen=True)
class Selection:
    """Suites of one origin, as pytest is told of them.

    Attributes:
        root: the folder that their names are relative to, and that they are run from in another place.
        own: whether they are somebody's own, and not those that come with utvm.
        paths: files or folders from there, each perhaps with ``::`` and a test.
    """

    root: Path
    own: bool
    paths: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Return the suites that can be named, sorted: those that come with utvm, and the project's own."""
    files = [path for folder in _folders() for path in folder.glob("test_*.py")]
    return tuple(sorted({path.stem.removeprefix("test_") for path in files}))


def select(suites: Sequence[str]) -> Selection:
    """Return what is meant by suites: names, or paths of files and folders, each maybe with ``::TEST`` behind it.

    Of two with one name, the project's own is meant. Where none is named, all are meant: in a project with suites
    its own, elsewhere those that come with utvm.
    """
    # The project's own folder is the first where there is one.
    chosen = [_find(suite) for suite in suites] or [(_folders()[0], "")]
    own = {not path.is_relative_to(BUNDLED) for path, _ in chosen}
    if len(own) > 1:
        raise ConfigError("suites of one's own and those of utvm are two runs", "name those of one kind")
    root = _root([path for path, _ in chosen]) if own == {True} else DATA
    return Selection(root, own == {True}, tuple(f"{path.relative_to(root)}{test}" for path, test in chosen))


def _root(paths: Sequence[Path]) -> Path:
    """Return the current project, where it has all of these; else the folder that they are all in."""
    found = project()
    if found and all(path.is_relative_to(found) for path in paths):
        return found
    return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


def _folders() -> tuple[Path, ...]:
    own = project()
    return (own / "hil", BUNDLED) if own and (own / "hil").is_dir() else (BUNDLED,)


def _find(suite: str) -> tuple[Path, str]:
    """Return the file of a suite, and what stands behind it."""
    name, colons, test = suite.partition("::")
    if "/" in name or name.endswith(".py"):
        for folder in (Path.cwd(), project() or Path.cwd()):
            if (path := (folder / name).resolve()).exists():
                return path, colons + test
        raise ConfigError(f"{name}: there is no such suite", "--suite takes names, or paths of files and folders")
    for folder in _folders():
        if (path := folder / f"test_{name}.py").is_file():
            return path, colons + test
    raise ConfigError(f"there is no suite {name!r}", f"suites: {', '.join(names())}")
