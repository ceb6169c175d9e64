# SPDX-License-Identifier: Apache-2.0
"""The locked environment: the recipe and its locks, with one digest; and the differences of two locks."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import utvm
from utvm.base.process.run import run_tool
from utvm.environment import debian, python_lock
from utvm.environment.debian import DebianLock, DebianPackage, load_lock
from utvm.environment.python_lock import Wheel, load_wheels
from utvm.environment.recipe import Recipe, load_recipe
from utvm.environment.store import Progress, Store, temporary_root
from utvm.errors import ConfigError
from utvm.paths import PROVISION, ROOT
from utvm.provenance.location import files_digest, read_lock_files


@dataclass(frozen=True)
class Locked:
    """The locked environment; ``digest`` is a SHA-256 over its files in ``provision/``."""

    recipe: Recipe
    debian: DebianLock
    wheels: tuple[Wheel, ...]
    digest: str
    files: Mapping[str, str]

    @property
    def packages(self) -> tuple[DebianPackage | Wheel, ...]:
        return (*self.debian.packages, *self.wheels)

    @property
    def machine_packages(self) -> tuple[DebianPackage | Wheel, ...]:
        return (*self.debian.packages, *self.debian.machine, *self.wheels)

    @property
    def labels(self) -> dict[str, str]:
        return {
            "org.opencontainers.image.title": "utvm environment",
            "org.opencontainers.image.version": utvm.__version__,
            "org.opencontainers.image.created": self.debian.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "utvm.environment": self.digest,
            **{
                f"utvm.{name}": hashlib.sha256(self.files[name].encode()).hexdigest()
                for name in ("debian.lock", "pylock.toml")
            },
        }


def load_locked(folder: Path = PROVISION) -> Locked:
    """Read the recipe and its locks; check that they match."""
    recipe = load_recipe(folder)
    packages = debian.load_lock(folder / "debian.lock")
    debian.check_current(packages, recipe)
    wheels = python_lock.select_wheels(python_lock.load_wheels(folder / "pylock.toml", recipe.python), recipe)
    files = read_lock_files(folder)
    return Locked(recipe, packages, wheels, files_digest(files), files)


def fetch(
    locked: Locked,
    store: Store,
    archive: Path | None,
    mirror: str,
    say: Progress = lambda _: None,
    *,
    machine: bool = False,
) -> None:
    """Fetch missing package files into the store.

    Args:
        archive: folder of an archive with all files, in place of the network.
        machine: fetch the virtual machine's packages, too.
    """
    if archive is not None:
        packages = locked.machine_packages if machine else locked.packages
        missing = [package for package in packages if not store.has(package)]
        Store(archive).copy(missing, store)
        return
    from_debian = (*locked.debian.packages, *(locked.debian.machine if machine else ()))
    if not all(map(store.has, from_debian)):
        store.fetch_debian(from_debian, debian.mirrors(locked.recipe.debian, mirror), say)
    store.fetch_wheels(locked.wheels, locked.recipe.python, say)


_DEBIAN, _PYTHON = "debian.lock", "pylock.toml"
_HINT = "give a folder with debian.lock and pylock.toml, or a revision such as HEAD~1"


_Packages = Mapping[str, DebianPackage] | Mapping[str, Wheel]


def describe(old: str, new: str) -> list[str]:
    """Describe each difference of two locks in a line.

    Args:
        old, new: a folder with ``debian.lock`` and ``pylock.toml``, or a git revision.
    """
    python = load_recipe().python
    with temporary_root(ROOT / "build") as folder:
        folders = [_lock_folder(source, folder / str(number)) for number, source in enumerate((old, new))]
        debian = [load_lock(path / _DEBIAN) for path in folders]
        wheels = [load_wheels(path / _PYTHON, python) for path in folders]
    lines = list(_changes("Debian", *({package.name: package for package in lock.packages} for lock in debian)))
    lines += _changes("Machine", *({package.name: package for package in lock.machine} for lock in debian))
    lines += _changes("Python", *({wheel.name: wheel for wheel in lock} for lock in wheels))
    if debian[0].date != debian[1].date:
        lines.append(
            f"Debian's indices: of {debian[0].date:%Y-%m-%d %H:%M}, now of {debian[1].date:%Y-%m-%d %H:%M}"
        )
    return lines


def _changes(kind: str, old: _Packages, new: _Packages) -> Iterator[str]:
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


def _lock_folder(source: str, folder: Path) -> Path:
    if Path(source).is_dir():
        if lacking := [name for name in (_DEBIAN, _PYTHON) if not (Path(source) / name).is_file()]:
            raise ConfigError(f"{source} has no {' and no '.join(lacking)}", _HINT)
        return Path(source)
    folder.mkdir()
    for name in (_DEBIAN, _PYTHON):
        text = run_tool(["git", "-C", ROOT, "show", f"{source}:provision/{name}"], error=ConfigError, hint=_HINT)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
