# SPDX-License-Identifier: Apache-2.0
"""The environment as it is locked: the recipe and its locks, as one thing with one digest."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import utvm
from utvm.base.storage.cache import content_key
from utvm.environment import debian, python_lock
from utvm.environment.debian import DebianLock, DebianPackage
from utvm.environment.python_lock import Wheel
from utvm.environment.recipe import PROVISION, Recipe, load_recipe
from utvm.environment.store import Progress, Store
from utvm.errors import ConfigError

_FILES = ("environment.yaml", "debian.txt", "debian.lock", "python.in", "pylock.toml")
MACHINE = "machine/"
"""What begins so among the files makes a machine of the packages: ``provision/machine``."""


@dataclass(frozen=True)
class Locked:
    """The environment as it is locked; ``digest`` is a SHA-256 over all files in ``provision/`` that say so."""

    recipe: Recipe
    debian: DebianLock
    wheels: tuple[Wheel, ...]
    digest: str
    files: Mapping[str, str]

    @property
    def packages(self) -> tuple[DebianPackage | Wheel, ...]:
        """All packages of the container image."""
        return (*self.debian.packages, *self.wheels)

    @property
    def machine_packages(self) -> tuple[DebianPackage | Wheel, ...]:
        """All packages of the virtual machine; those of the image are among them."""
        return (*self.debian.packages, *self.debian.machine, *self.wheels)

    @property
    def labels(self) -> dict[str, str]:
        """What everything made from it says of itself: OCI's keys, and our own for the digests of the locks."""
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
    """Read the recipe and its locks, and check that they belong together."""
    recipe = load_recipe(folder)
    packages = debian.load_lock(folder / "debian.lock")
    debian.check_current(packages, recipe)
    wheels = python_lock.taken(python_lock.load_wheels(folder / "pylock.toml", recipe.python), recipe)
    files = _read(folder)
    return Locked(recipe, packages, wheels, _digest(files), files)


def environment_digest(folder: Path = PROVISION) -> str:
    """Return the digest of the environment that is asked for, whether or not its lists and locks belong
    together.
    """
    return _digest(_read(folder))


def _read(folder: Path) -> dict[str, str]:
    try:
        of_machine = sorted(path for path in (folder / MACHINE).rglob("*") if path.is_file())
        names = (*_FILES, *(path.relative_to(folder).as_posix() for path in of_machine))
        return {name: (folder / name).read_text(encoding="utf-8") for name in names}
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: cannot be read: {error.strerror}", "is the checkout complete?"
        ) from error


def _digest(files: Mapping[str, str]) -> str:
    return content_key(*(part for item in files.items() for part in item))


def fetch(
    locked: Locked,
    store: Store,
    archive: Path | None,
    mirror: str,
    progress: Progress | None = None,
    *,
    machine: bool = False,
) -> None:
    """Have every package file in the store.

    Args:
        machine: also those that only the virtual machine has.
        archive: folder of an archive that has them all; the network is left alone.
        mirror: see :func:`utvm.environment.debian.mirrors`.
    """
    if archive is not None:
        wanted = locked.machine_packages if machine else locked.packages
        missing = [package for package in wanted if not store.has(package)]
        Store(archive).copy(missing, store)
        return
    packages = (*locked.debian.packages, *(locked.debian.machine if machine else ()))
    if not all(map(store.has, packages)):
        store.fetch_debian(packages, debian.mirrors(locked.recipe.debian, mirror), progress)
    store.fetch_wheels(locked.wheels, locked.recipe.python, progress)
