# SPDX-License-Identifier: Apache-2.0
"""The running sources and packages, and their location.

A command in another location inherits variables: the kind of the location, the host's names of its folders, and
the checkout with the host's name, since a container may lack git. Whether the location is frozen is checked
against the locks: an image may have been extended, and variables can be set by anyone.
"""

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from packaging.markers import Marker

from utvm import errors, paths
from utvm.base import fields_of
from utvm.base.process import run_tool
from utvm.base.storage.cache import content_key

_CHECKOUT = "UTVM_CHECKOUT"
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Checkout:
    commit: str | None
    dirty: bool | None
    hostname: str


def read_checkout(root: Path | None = None) -> Checkout:
    """Return the git state of the current project, or of utvm itself."""
    root = root or paths.project() or paths.ROOT
    inherited = os.environ.get(_CHECKOUT)
    if inherited:
        return Checkout(**json.loads(inherited))
    # --git-dir: a copy inside another repository is not our checkout. safe.directory: utvm's own checkout may
    # belong to another user, since its code runs anyway; for a project, git decides. No file system monitor.
    git = [
        "git",
        "--no-optional-locks",
        *("-c", "core.fsmonitor=false"),
        *(("-c", f"safe.directory={root}") if root == paths.ROOT else ()),
        *(f"--git-dir={root / '.git'}", f"--work-tree={root}"),
    ]
    try:
        commit = run_tool([*git, "rev-parse", "--verify", "HEAD"], cwd=root, timeout=30).strip()
        changed = run_tool([*git, "status", "--porcelain"], cwd=root, timeout=60)
    except errors.UtvmError:
        # Variables of GitHub and GitLab.
        commit = os.environ.get("GITHUB_SHA") or os.environ.get("CI_COMMIT_SHA") or ""
        return Checkout(commit if _COMMIT.fullmatch(commit) else None, None, platform.node())
    return Checkout(commit, bool(changed.strip()), platform.node())


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILES = ("environment.yaml", "debian.txt", "debian.lock", "python.in", "pylock.toml")
MACHINE = "machine/"
"""Prefix of the files that configure only the virtual machine: ``provision/machine``."""


@dataclass(frozen=True)
class LockedVersions:
    """Versions by package name; Debian names end in ``:ARCHITECTURE``.

    ``machine`` are the Debian packages that only the virtual machine has.
    """

    debian: Mapping[str, str]
    machine: Mapping[str, str]
    python: Mapping[str, str]


def read_lock_files(folder: Path = paths.PROVISION) -> dict[str, str]:
    try:
        machine = sorted(path for path in (folder / MACHINE).rglob("*") if path.is_file())
        names = (*_FILES, *(path.relative_to(folder).as_posix() for path in machine))
        return {name: (folder / name).read_text(encoding="utf-8") for name in names}
    except OSError as error:
        raise errors.ConfigError(
            f"{error.filename}: cannot be read: {error.strerror}", "is the checkout complete?"
        ) from error


def files_digest(files: Mapping[str, str]) -> str:
    return content_key(*(part for item in files.items() for part in item))


def environment_digest(folder: Path = paths.PROVISION) -> str:
    """Return the digest of the requested environment; does not check that the locks match the lists."""
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


LocationKind = Literal["host", "docker", "vm", "farm"]
"""``host`` is the computer on which the command is given."""

KINDS: tuple[LocationKind, ...] = get_args(LocationKind)
_KIND = "UTVM_PLACE"
_FOLDERS = "UTVM_OUTSIDE"


@dataclass(frozen=True)
class CurrentLocation:
    """The location of this process.

    Attributes:
        environment: digest of the locked environment if exactly its packages are installed, else empty.
    """

    kind: LocationKind
    environment: str
    installed: str


def parse_kind(name: str, hint: str) -> LocationKind:
    for kind in KINDS:
        if name == kind:
            return kind
    choice = errors.did_you_mean(name, KINDS, f"choose one of {', '.join(KINDS)}")
    raise errors.ConfigError(f"unknown location {name!r}", f"{hint}; {choice}")


def current_kind() -> LocationKind:
    # A manually started image sets no variable, but its Python environment names it.
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
    """Return variables that pass location and checkout to a process in another location.

    Args:
        folders: the host's folders, mapped to their names in that location.
    """
    inside_out = {inside: host for host, inside in folders.items()}
    return {_KIND: kind, _FOLDERS: json.dumps(inside_out), _CHECKOUT: json.dumps(asdict(read_checkout()))}


def host_path(path: Path) -> Path:
    """Return the host's name of a path, for output that is read there."""
    for inside, host in json.loads(os.environ.get(_FOLDERS, "{}")).items():
        if path.is_relative_to(inside):
            return Path(host) / path.relative_to(inside)
    return path


def _environment_label() -> str:
    """Return the digest of the environment that this Python was built for; empty outside an image."""
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
        error=errors.ProvisionError,
    )
    lines = (line.split("\t") for line in output.splitlines())
    return {package: version for state, package, version in lines if state.startswith("ii")}


def _python_packages() -> dict[str, str]:
    folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    # .name and .version would each read the metadata file again.
    packages = (package.metadata for package in importlib.metadata.distributions(path=sorted(folders)))
    # Package indices compare normalised names.
    return {re.sub("[-_.]+", "-", package["Name"]).lower(): package["Version"] for package in packages}


_LEASE_VARIABLE = "UTVM_LEASE"


@dataclass
class Lease:
    """The right to use a board of a farm.

    Attributes:
        board: the host's record of the board: name, kind, serial, and the path of utvm.
        service: address, username and port for SSH.
        earlier: previous boards that gave no verdict: place, host and reason.
        outcome: ``verdict`` or ``infrastructure``, for the farm's health records.
    """

    place: str
    holder: str
    waited: float
    board: Mapping[str, Any]
    service: Mapping[str, Any]
    others: int = 0
    earlier: Sequence[Mapping[str, str]] = ()
    lost: str = ""
    outcome: str = ""
    _when_lost: list[Callable[[], None]] = field(default_factory=list)

    @property
    def host(self) -> str:
        return str(self.service["address"])

    @property
    def record(self) -> dict[str, Any]:
        earlier = [dict(board) for board in self.earlier]
        return fields_of(self, "place", "host", "holder") | {"waited_s": self.waited, "earlier": earlier}

    def variables(self) -> dict[str, str]:
        names = {item.name for item in dataclasses.fields(self)} - {"lost", "outcome", "_when_lost"}
        return {_LEASE_VARIABLE: json.dumps({name: getattr(self, name) for name in sorted(names)})}

    def when_lost(self, action: Callable[[], None]) -> None:
        """Call a function when the lease is lost, or at once if it already is."""
        self._when_lost.append(action)
        if self.lost:
            action()

    def mark_lost(self, reason: str) -> None:
        self.lost = self.lost or reason
        for action in self._when_lost:
            action()


def inherited_lease() -> Lease | None:
    """Return the lease that the parent process holds for this one, or None."""
    value = os.environ.get(_LEASE_VARIABLE)
    if not value:
        return None
    with errors.ConfigError.on(
        (ValueError, TypeError), f"{_LEASE_VARIABLE} is not a valid lease", f"unset {_LEASE_VARIABLE}: utvm sets it"
    ):
        return Lease(**json.loads(value))
