# SPDX-License-Identifier: Apache-2.0
"""The files that lock the environment: their digest, and the versions of the packages that they name."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.markers import Marker

from utvm.base.storage.cache import content_key
from utvm.errors import ConfigError
from utvm.paths import PROVISION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILES = ("environment.yaml", "debian.txt", "debian.lock", "python.in", "pylock.toml")
MACHINE = "machine/"
"""Prefix of the files that configure the virtual machine only: ``provision/machine``."""


@dataclass(frozen=True)
class LockedVersions:
    """Versions by package name; Debian names end in ``:ARCHITECTURE``.

    ``machine`` are the Debian packages that only the virtual machine has.
    """

    debian: Mapping[str, str]
    machine: Mapping[str, str]
    python: Mapping[str, str]


def read_lock_files(folder: Path = PROVISION) -> dict[str, str]:
    """Read all files that the environment is built from, by name."""
    try:
        machine = sorted(path for path in (folder / MACHINE).rglob("*") if path.is_file())
        names = (*_FILES, *(path.relative_to(folder).as_posix() for path in machine))
        return {name: (folder / name).read_text(encoding="utf-8") for name in names}
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: cannot be read: {error.strerror}", "is the checkout complete?"
        ) from error


def files_digest(files: Mapping[str, str]) -> str:
    """SHA-256 over the names and contents of files."""
    return content_key(*(part for item in files.items() for part in item))


def environment_digest(folder: Path = PROVISION) -> str:
    """Digest of the requested environment; the lists and locks are not checked against each other."""
    return files_digest(read_lock_files(folder))


def locked_versions(files: Mapping[str, str]) -> LockedVersions:
    """Read the package versions from the lock files, for the environment's Python on this system."""

    def debian_versions(packages: list[dict[str, Any]]) -> dict[str, str]:
        return {f"{package['name']}:{package['architecture']}": package["version"] for package in packages}

    recipe = yaml.safe_load(files["environment.yaml"])["python"]
    system = {"python_version": recipe["version"], "python_full_version": f"{recipe['version']}.0"}
    debian = json.loads(files["debian.lock"])
    python = {
        package["name"]: package["version"]
        for package in tomllib.loads(files["pylock.toml"])["packages"]
        if "marker" not in package or Marker(package["marker"]).evaluate(system)
    }
    return LockedVersions(
        debian=debian_versions(debian["packages"]),
        machine=debian_versions(debian.get("machine", [])),
        python={name: version for name, version in python.items() if name not in recipe["without"]},
    )
