# SPDX-License-Identifier: Apache-2.0
"""The location of this process, and the packages that are installed there.

A command at another location gets its name and the host's paths from two environment variables. Whether the
packages are those of the lock is checked: an image may have been extended, and anybody can set a variable.
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
from utvm.environment import checkout
from utvm.environment.locked import environment_digest, load_locked
from utvm.errors import ConfigError, ProvisionError

Kind = Literal["host", "docker", "vm", "farm"]
"""Kinds of location; ``host`` is the computer at which the command is given."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_PLACE = "UTVM_PLACE"
_OUTSIDE = "UTVM_OUTSIDE"


@dataclass(frozen=True)
class CurrentLocation:
    """The location of this process.

    Attributes:
        environment: digest of the checkout's environment if exactly its packages are installed; otherwise empty.
        installed: SHA-256 over names and versions of all installed Debian and Python packages.
    """

    kind: Kind
    environment: str
    installed: str


def parse_kind(name: str, hint: str) -> Kind:
    for kind in _KINDS:
        if name == kind:
            return kind
    raise ConfigError(f"there is no location {name!r}", f"{hint}; locations: {', '.join(_KINDS)}")


def current_kind() -> Kind:
    # A container that was started by hand lacks the variable; its Python environment identifies it.
    kind = os.environ.get(_PLACE) or ("docker" if _label() else "host")
    return parse_kind(kind, f"{_PLACE} is set for you")


def current_location() -> CurrentLocation:
    """Look at this place."""
    debian, python = _debian_packages(), _python_packages()
    digest = environment_digest()
    frozen = False
    if _label() == digest:
        locked = load_locked()
        image, machine = (
            {f"{package.name}:{package.architecture}": package.version for package in packages}
            for packages in (locked.debian.packages, locked.debian.machine)
        )
        wheels = {wheel.name: wheel.version for wheel in locked.wheels}
        frozen = debian in (image, image | machine) and python == wheels
    listed = (f"{name} {version}" for packages in (debian, python) for name, version in sorted(packages.items()))
    return CurrentLocation(current_kind(), digest if frozen else "", content_key(str(len(debian)), *listed))


def location_variables(kind: Kind, folders: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for a process at another location: its location, and the checkout it was started from.

    Args:
        folders: path at the location by path on the host.
    """
    inside_out = {inside: host for host, inside in folders.items()}
    return {_PLACE: kind, _OUTSIDE: json.dumps(inside_out), **checkout.checkout_variable()}


def host_path(path: Path) -> Path:
    """Path on the host: the output of a command is read there."""
    for inside, host in json.loads(os.environ.get(_OUTSIDE, "{}")).items():
        if path.is_relative_to(inside):
            return Path(host) / path.relative_to(inside)
    return path


def _label() -> str:
    """Digest of the environment that this Python belongs to; empty outside of an image."""
    try:
        labels = json.loads((Path(sys.prefix) / "environment.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    return str(labels["utvm.environment"])


def _debian_packages() -> dict[str, str]:
    """Installed versions by name and architecture; empty without dpkg."""
    if shutil.which("dpkg-query") is None:
        return {}
    listing = run_tool(
        ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\\t${Package}:${Architecture}\\t${Version}\\n"],
        timeout=30,
        error=ProvisionError,
    )
    lines = (line.split("\t") for line in listing.splitlines())
    return {package: version for state, package, version in lines if state.startswith("ii")}


def _python_packages() -> dict[str, str]:
    """Installed versions by normalised name."""
    folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    # Read each file once: the attributes name and version would both read it.
    records = (package.metadata for package in importlib.metadata.distributions(path=sorted(folders)))
    return {re.sub("[-_.]+", "-", record["Name"]).lower(): record["Version"] for record in records}
