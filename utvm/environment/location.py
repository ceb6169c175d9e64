# SPDX-License-Identifier: Apache-2.0
"""Where this process runs, and what is installed there.

Whoever starts a command in another place says so by two variables. They are believed for the name of the place and
for how the host calls its folders. Whether the tools are those of the lock is looked up: an image may have been
built upon, and a variable set by anybody.
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
"""The places there are; ``host`` is the computer at which the command is given."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_PLACE = "UTVM_PLACE"
_OUTSIDE = "UTVM_OUTSIDE"


@dataclass(frozen=True)
class CurrentLocation:
    """The place in which this process runs.

    Attributes:
        environment: the digest of the checkout's environment where everything that is installed is what that says,
            and nothing else; otherwise an empty string.
        installed: SHA-256 over the names and versions of all Debian and Python packages that are there.
    """

    kind: Kind
    environment: str
    installed: str


def parse_kind(name: str, hint: str) -> Kind:
    """Return the place of that name."""
    for kind in _KINDS:
        if name == kind:
            return kind
    raise ConfigError(f"there is no place {name!r}", f"{hint}; places: {', '.join(_KINDS)}")


def current_kind() -> Kind:
    """Return which of the places this is."""
    # An image that somebody started by hand has no variable of ours, but its Python environment says what it is.
    said = os.environ.get(_PLACE) or ("docker" if _label() else "host")
    return parse_kind(said, f"{_PLACE} is set for you")


def current_location() -> CurrentLocation:
    """Look at this place."""
    debian, python = _debian_packages(), _python_packages()
    digest = environment_digest()
    frozen = False
    if _label() == digest:
        locked = load_locked()
        image = {f"{each.name}:{each.architecture}": each.version for each in locked.debian.packages}
        more = {f"{each.name}:{each.architecture}": each.version for each in locked.debian.machine}
        frozen = debian in (image, image | more) and python == {each.name: each.version for each in locked.wheels}
    listed = (f"{name} {version}" for packages in (debian, python) for name, version in sorted(packages.items()))
    return CurrentLocation(current_kind(), digest if frozen else "", content_key(str(len(debian)), *listed))


def location_variables(kind: Kind, folders: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tell a process in another place where it is, and what it was started from.

    Args:
        folders: folders of the host, and what they are called there.
    """
    inside_out = {inside: host for host, inside in folders.items()}
    return {_PLACE: kind, _OUTSIDE: json.dumps(inside_out), **checkout.checkout_variable()}


def host_path(path: Path) -> Path:
    """Return what the host calls a path: what a command prints is read there."""
    for inside, host in json.loads(os.environ.get(_OUTSIDE, "{}")).items():
        if path.is_relative_to(inside):
            return Path(host) / path.relative_to(inside)
    return path


def _label() -> str:
    """Return the digest of the environment that this Python belongs to; empty where it is no image's."""
    try:
        labels = json.loads((Path(sys.prefix) / "environment.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    return str(labels["utvm.environment"])


def _debian_packages() -> dict[str, str]:
    """Return the version of every package that is installed, with its architecture; none without dpkg."""
    if shutil.which("dpkg-query") is None:
        return {}
    said = run_tool(
        ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\\t${Package}:${Architecture}\\t${Version}\\n"],
        timeout=30,
        error=ProvisionError,
    )
    lines = (line.split("\t") for line in said.splitlines())
    return {package: version for state, package, version in lines if state.startswith("ii")}


def _python_packages() -> dict[str, str]:
    """Return the version of every package of this Python, by its name as indices spell it."""
    folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    # Read once for each: name and version by themselves would both read it.
    found = (each.metadata for each in importlib.metadata.distributions(path=sorted(folders)))
    return {re.sub("[-_.]+", "-", each["Name"]).lower(): each["Version"] for each in found}
