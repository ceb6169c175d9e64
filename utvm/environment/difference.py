# SPDX-License-Identifier: Apache-2.0
"""What changed between two locks, in words."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from utvm.base.process.run import run_tool
from utvm.environment.debian import load_lock
from utvm.environment.python_lock import load_wheels
from utvm.environment.recipe import load_recipe
from utvm.environment.temporary_roots import draft
from utvm.errors import ConfigError
from utvm.paths import ROOT

_DEBIAN, _PYTHON = "debian.lock", "pylock.toml"
_HINT = "give a folder with debian.lock and pylock.toml, or a revision such as HEAD~1"


class _Package(Protocol):
    """What the packages of both locks have."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def sha256(self) -> str: ...


_PackageT = TypeVar("_PackageT", bound=_Package)


def describe(old: str, new: str) -> list[str]:
    """Return a line for each difference between two states of ``provision/``; none when there is none.

    Args:
        old, new: a folder with ``debian.lock`` and ``pylock.toml``, or a revision of the checkout's history.
    """
    python = load_recipe().python
    with draft(ROOT / "build") as folder:
        places = [_at_hand(place, folder / str(number)) for number, place in enumerate((old, new))]
        debian = [load_lock(place / _DEBIAN) for place in places]
        wheels = [load_wheels(place / _PYTHON, python) for place in places]
    lines = list(_changes("Debian", *({package.name: package for package in lock.packages} for lock in debian)))
    lines += _changes("Machine", *({package.name: package for package in lock.machine} for lock in debian))
    lines += _changes("Python", *({wheel.name: wheel for wheel in lock} for lock in wheels))
    if debian[0].date != debian[1].date:
        lines.append(
            f"Debian's indices: of {debian[0].date:%Y-%m-%d %H:%M}, now of {debian[1].date:%Y-%m-%d %H:%M}"
        )
    return lines


def _changes(kind: str, old: Mapping[str, _PackageT], new: Mapping[str, _PackageT]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None and after is not None:
            yield f"{kind}: {name} {after.version} is new"
        elif after is None and before is not None:
            yield f"{kind}: {name} {before.version} is gone"
        elif before is not None and after is not None:
            if before.version != after.version:
                source = " (security)" if getattr(after, "archive", "").endswith("security") else ""
                yield f"{kind}: {name} {before.version} became {after.version}{source}"
            elif before.sha256 != after.sha256:
                yield f"{kind}: {name} {after.version} has another file, though its version is the same"


def _at_hand(place: str, folder: Path) -> Path:
    """Return a folder with the locks of a place: it, or a new one into which a revision's are written."""
    if Path(place).is_dir():
        if lacking := [name for name in (_DEBIAN, _PYTHON) if not (Path(place) / name).is_file()]:
            raise ConfigError(f"{place} has no {' and no '.join(lacking)}", _HINT)
        return Path(place)
    folder.mkdir()
    for name in (_DEBIAN, _PYTHON):
        text = run_tool(["git", "-C", ROOT, "show", f"{place}:provision/{name}"], error=ConfigError, hint=_HINT)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
