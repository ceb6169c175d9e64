# SPDX-License-Identifier: Apache-2.0
"""Advisories of Debian packages: the security tracker's ``data/json``, for the release that the lock is of.

The tracker speaks of source packages and of their versions, so that is what packages are looked up by.
"""

import functools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from utvm.environment.advisories.finding import REFETCH, Finding, parsed, read
from utvm.environment.debian import DebianPackage
from utvm.errors import ConfigError, ProvisionError


class _State(BaseModel):
    status: str
    fixed_version: str | None = None
    urgency: str = ""


class _Issue(BaseModel):
    releases: dict[str, _State] = {}


_ISSUES = TypeAdapter(dict[str, _Issue])


@dataclass(frozen=True)
class Known:
    """What the tracker knows of locked packages.

    Attributes:
        findings: what applies.
        unimportant: how many more apply that Debian calls unimportant: no harm to whoever uses the package.
        undetermined: how many nobody has looked into yet.
        tracked: source packages of the lock that it has anything on.
    """

    findings: list[Finding]
    unimportant: int
    undetermined: int
    tracked: int


def findings(file: Path, packages: Sequence[DebianPackage], release: str) -> Known:
    """Return what is known of packages."""
    content = parsed(read(file), str(file))
    by_source: dict[tuple[str, str], list[DebianPackage]] = {}
    for package in packages:
        by_source.setdefault(package.made_from, []).append(package)
    found: list[Finding] = []
    unimportant = undetermined = 0
    tracked = set()
    for (source, version), binaries in sorted(by_source.items()):
        for number, state in _states(file, source, content.get(source, {}), release):
            tracked.add(source)
            if state.status == "undetermined":
                undetermined += 1
            elif not _applies(state, version):
                continue
            elif state.urgency == "unimportant":
                unimportant += 1
            else:
                names = ", ".join(sorted(each.name for each in binaries))
                found.append(Finding("Debian", names, version, number, state.fixed_version or ""))
    if not tracked:
        raise ConfigError(f"{file}: knows nothing of {release} and the locked packages", REFETCH)
    return Known(sorted(found), unimportant, undetermined, len(tracked))


def _states(file: Path, source: str, issues: object, release: str) -> Iterator[tuple[str, _State]]:
    try:
        known: Mapping[str, _Issue] = _ISSUES.validate_python(issues)
    except ValidationError as error:
        said = " ".join(str(error).split())
        raise ConfigError(f"{file}: what it says of {source} cannot be read: {said}", REFETCH) from error
    for number, issue in sorted(known.items()):
        if release in issue.releases:
            state = issue.releases[release]
            if state.status not in ("open", "resolved", "undetermined"):
                raise ConfigError(f"{file}: {source}: {number}: status {state.status!r} is unknown", REFETCH)
            yield number, state


def _applies(state: _State, version: str) -> bool:
    # "0" is for what the release never had.
    if state.status == "open" or not state.fixed_version:
        return state.status == "open"
    return state.fixed_version != "0" and _is_older(version, state.fixed_version)


@functools.cache
def _is_older(version: str, other: str) -> bool:
    try:
        done = subprocess.run(
            ["dpkg", "--compare-versions", version, "lt", other], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ProvisionError(
            "dpkg is not installed, and only it compares Debian's versions", "run this on Debian, or --in docker"
        ) from error
    if done.returncode > 1 or done.stderr:
        raise ConfigError(f"dpkg cannot compare {version} with {other}: {done.stderr.strip()}", REFETCH)
    return done.returncode == 0
