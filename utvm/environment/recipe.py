# SPDX-License-Identifier: Apache-2.0
"""The contents of the environment: ``provision/environment.yaml`` and the two lists beside it.

``./inv`` also makes the checkout's ``.venv`` from ``debian.txt`` and ``python.in``, so requirements are listed
once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from utvm import errors, paths
from utvm.base.storage import cache, config, files

_HINT = "is the checkout complete?"


class Multilibs(config.Record):
    """A toolchain's libraries per core: their folders, and those that boards link.

    ``folders`` may contain ``*``; a core's libraries are in ``FOLDER/FAMILY/...``.
    """

    folders: tuple[str, ...] = Field(min_length=1)
    families: tuple[str, ...] = Field(min_length=1)
    keep: tuple[str, ...]


class DebianPart(config.Record):
    """Debian packages of the environment.

    ``suites`` maps to archives, ``packages`` to the purpose, ``without`` to the reason for exclusion.
    """

    architecture: Literal["amd64"]
    keyring: Path
    suites: dict[str, str] = Field(min_length=1)
    packages: dict[str, str]
    without: dict[str, str]
    leave_out: tuple[str, ...]
    keep: tuple[str, ...]
    multilibs: dict[str, Multilibs]


class MachinePart(config.Record):
    """Additional packages and settings of the virtual machine.

    ``packages`` maps to the purpose; ``early_drivers`` are in the initial RAM disk; ``disk_gib`` is the size of
    the sparse disk.
    """

    packages: dict[str, str] = Field(min_length=1)
    early_drivers: tuple[str, ...] = Field(min_length=1)
    disk_gib: int = Field(ge=4)


class PythonPart(config.Record):
    """Python version and platform, and excluded packages and files."""

    version: str = Field(pattern=r"^3\.\d+$")
    glibc: str = Field(pattern=r"^2\.\d+$")
    without: dict[str, str]
    leave_out: tuple[str, ...]

    @field_validator("leave_out")
    @classmethod
    def _stay_below(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        if any(pattern.startswith(("/", "*")) for pattern in patterns):
            raise ValueError("patterns begin with the name of a package's folder")
        return patterns


class _File(config.Record):
    debian: DebianPart
    machine: MachinePart
    python: PythonPart


@dataclass(frozen=True)
class Recipe:
    """The requested environment.

    ``debian_packages`` are the requested names, without the virtual machine's own; ``requirements`` the lines of
    ``python.in``. ``debian_digest`` changes when the lock must be resolved again, ``digest`` also with the
    excluded files.
    """

    debian: DebianPart
    machine: MachinePart
    python: PythonPart
    debian_packages: Mapping[str, str]
    requirements: tuple[str, ...]
    debian_digest: str
    digest: str


def read_package_list(path: Path) -> dict[str, str]:
    packages = {}
    for line in files.read_text(path, _HINT).splitlines():
        name, _, purpose = line.partition("#")[0].strip().partition(" ")
        if name:
            packages[name] = purpose.strip()
    return packages


def load_recipe(folder: Path = paths.PROVISION) -> Recipe:
    path = folder / "environment.yaml"
    file = config.load_yaml(path, _File)
    work = read_package_list(folder / "debian.txt")
    twice = sorted(work.keys() & file.debian.packages.keys())
    if twice:
        raise errors.ConfigError(
            f"{path}: debian.packages: {', '.join(twice)} is in debian.txt too", "one place is enough: debian.txt"
        )
    unknown = sorted(file.debian.without.keys() - work.keys())
    if unknown:
        raise errors.ConfigError(
            f"{path}: debian.without: {', '.join(unknown)} is not in debian.txt", "remove it there too"
        )
    all_packages = {**work, **file.debian.packages}
    packages = {name: all_packages[name] for name in sorted(all_packages) if name not in file.debian.without}
    debian_digest = cache.content_key(
        file.debian.architecture,
        *(f"{suite} {archive}" for suite, archive in file.debian.suites.items()),
        *packages,
        "machine",
        *sorted(file.machine.packages),
    )
    python_in = files.read_text(folder / "python.in", _HINT)
    requirements = tuple(filter(None, (line.partition("#")[0].strip() for line in python_in.splitlines())))
    return Recipe(
        debian=file.debian,
        machine=file.machine,
        python=file.python,
        debian_packages=packages,
        requirements=requirements,
        debian_digest=debian_digest,
        digest=cache.content_key(file.model_dump_json(), *packages),
    )


def dpkg_filters(debian: DebianPart) -> list[str]:
    """Return dpkg's path filters, without the dashes; the last matching one wins.

    dpkg does not notice a kept file in an excluded folder, so every parent folder is kept.
    """
    left_out, keep = list(debian.leave_out), list(debian.keep)
    for libraries in debian.multilibs.values():
        for folder in libraries.folders:
            left_out += [f"{folder}/{family}/*" for family in libraries.families]
            for multilib in libraries.keep:
                steps = multilib.split("/")
                keep += [f"{folder}/{'/'.join(steps[:count])}" for count in range(2, len(steps) + 1)]
                keep.append(f"{folder}/{multilib}/*")
    return [*(f"path-exclude={pattern}" for pattern in left_out), *(f"path-include={pattern}" for pattern in keep)]
