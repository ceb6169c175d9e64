# SPDX-License-Identifier: Apache-2.0
"""Where this process runs, and which packages are installed there.

A command in another location inherits two variables: the kind of the location, and the names that the host has for
its folders. Whether the location is frozen is checked against the locks: an image may have been built upon, and
anybody can set a variable.
"""

import importlib.metadata
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from utvm.base.process.run import run_tool
from utvm.base.storage.cache import content_key
from utvm.errors import ConfigError, ProvisionError
from utvm.provenance.checkout import checkout_variables
from utvm.provenance.lock import files_digest, locked_versions, read_lock_files

LocationKind = Literal["host", "docker", "vm", "farm"]
"""``host`` is the computer on which the command is given."""

_KINDS: tuple[LocationKind, ...] = get_args(LocationKind)
_KIND = "UTVM_PLACE"
_FOLDERS = "UTVM_OUTSIDE"


@dataclass(frozen=True)
class CurrentLocation:
    """The location of this process.

    Attributes:
        environment: digest of the locked environment if exactly its packages are installed, otherwise empty.
        installed: SHA-256 over the names and versions of all installed Debian and Python packages.
    """

    kind: LocationKind
    environment: str
    installed: str


def parse_kind(name: str, hint: str) -> LocationKind:
    for kind in _KINDS:
        if name == kind:
            return kind
    raise ConfigError(f"unknown location {name!r}", f"{hint}; choose one of {', '.join(_KINDS)}")


def current_kind() -> LocationKind:
    # An image that was started by hand sets no variable, but its Python environment names it.
    name = os.environ.get(_KIND) or ("docker" if _environment_label() else "host")
    return parse_kind(name, f"unset {_KIND}: utvm sets it")


def inspect_location() -> CurrentLocation:
    debian, python = _debian_packages(), _python_packages()
    files = read_lock_files()
    digest = files_digest(files)
    frozen = False
    if _environment_label() == digest:
        locked = locked_versions(files)
        frozen = debian in (locked.debian, {**locked.debian, **locked.machine}) and python == locked.python
    lines = (f"{name} {version}" for packages in (debian, python) for name, version in sorted(packages.items()))
    return CurrentLocation(current_kind(), digest if frozen else "", content_key(str(len(debian)), *lines))


def location_variables(kind: LocationKind, folders: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that pass its location and the checkout to a process in another location.

    Args:
        folders: the name in that location of each of the host's folders.
    """
    inside_out = {inside: host for host, inside in folders.items()}
    return {_KIND: kind, _FOLDERS: json.dumps(inside_out), **checkout_variables()}


def host_path(path: Path) -> Path:
    """The host's name of a path, for output that is read there."""
    for inside, host in json.loads(os.environ.get(_FOLDERS, "{}")).items():
        if path.is_relative_to(inside):
            return Path(host) / path.relative_to(inside)
    return path


def _environment_label() -> str:
    """Digest of the environment that this Python was built for; empty outside an image."""
    try:
        labels = json.loads((Path(sys.prefix) / "environment.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    return str(labels["utvm.environment"])


def _debian_packages() -> dict[str, str]:
    if shutil.which("dpkg-query") is None:
        return {}
    output = run_tool(
        ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\\t${Package}:${Architecture}\\t${Version}\\n"],
        timeout=30,
        error=ProvisionError,
    )
    lines = (line.split("\t") for line in output.splitlines())
    return {package: version for state, package, version in lines if state.startswith("ii")}


def _python_packages() -> dict[str, str]:
    folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    # .name and .version would each read the metadata file again.
    packages = (package.metadata for package in importlib.metadata.distributions(path=sorted(folders)))
    # Package indices compare normalised names.
    return {re.sub("[-_.]+", "-", package["Name"]).lower(): package["Version"] for package in packages}
