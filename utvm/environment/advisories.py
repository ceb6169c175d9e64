# SPDX-License-Identifier: Apache-2.0
"""What is known against locked packages, from files at hand: OSV's export for Python, the tracker's for Debian.

Nothing here uses a network. Whoever fetches the files decides from where; what is missing, cannot be read or is
too old ends in an error, since without it "nothing found" would be a guess.
"""

import datetime
import functools
import json
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, TypeAdapter, ValidationError

from utvm.base.storage.files import UNREADABLE_ZIP
from utvm.environment.debian import DebianPackage
from utvm.errors import ConfigError, ProvisionError

REFETCH = "fetch it anew; docs/environment.md says what --advisories is to hold"


@dataclass(frozen=True, order=True)
class Finding:
    """What is known of a package.

    Attributes:
        kind: whose package it is, ``Debian`` or ``Python``.
        package: as the lock calls it; of Debian's all that are made from the same source, with commas between.
        version: as the lock has it; of Debian's that of the source.
        advisory: its number, and behind it those that it goes by elsewhere.
        fixed: the first version without it; empty where there is none.
    """

    kind: str
    package: str
    version: str
    advisory: str
    fixed: str

    def as_json(self) -> dict[str, str | None]:
        """Return its entry in reports."""
        return {
            "kind": self.kind,
            "package": self.package,
            "version": self.version,
            "advisory": self.advisory,
            "fixed_in": self.fixed or None,
        }


def parsed(data: bytes, where: str) -> dict[str, Any]:
    """Return what a file of advisories holds."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is no JSON: {' '.join(str(error).split())}", REFETCH) from error
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: is no JSON object", REFETCH)
    return found


def read(path: Path) -> bytes:
    """Return a file's content."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", REFETCH) from error


_ECOSYSTEM = "PyPI"
# The largest real one has some 200 kB: what is far beyond is no advisory, and might be made to fill the memory.
_LARGEST = 32 << 20


class _Event(BaseModel):
    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None
    limit: str | None = None


class _Range(BaseModel):
    type: str
    events: list[_Event]


class _Package(BaseModel):
    ecosystem: str
    name: str


class _Affected(BaseModel):
    package: _Package | None = None
    ranges: list[_Range] = []
    versions: list[str] = []


class _Advisory(BaseModel):
    id: str
    modified: AwareDatetime
    withdrawn: AwareDatetime | None = None
    aliases: list[str] = []
    affected: list[_Affected] = []


def python_findings(
    folder: Path, locked: Mapping[str, AbstractSet[str]]
) -> tuple[list[Finding], datetime.datetime, int]:
    """Return what is known of packages, the day on which an advisory was last changed, and how many there are.

    Args:
        locked: name to versions.
    """
    found: list[Finding] = []
    newest, count = None, 0
    for where, data in _files(folder):
        content = parsed(data, where)
        try:
            advisory = _Advisory.model_validate(content)
            ours = [each for each in advisory.affected if each.package and each.package.ecosystem == _ECOSYSTEM]
            if not ours:
                continue
            count += 1
            newest = max(newest or advisory.modified, advisory.modified)
            if not advisory.withdrawn:
                found += _applying(advisory, ours, locked)
        except (ValidationError, InvalidVersion) as error:
            said = " ".join(str(error).split())
            raise ConfigError(f"{where}: cannot be read as an advisory: {said}", REFETCH) from error
    if newest is None:
        raise ConfigError(f"{folder}: has no advisory of a Python package", REFETCH)
    return _each_once(found), newest, count


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every JSON file of a folder, and of the archives in it."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder", REFETCH)
    for path in sorted(folder.glob("*.json")):
        yield str(path), read(path)
    for path in sorted(folder.glob("*.zip")):
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    if member.filename.endswith(".json"):
                        if member.file_size > _LARGEST:
                            raise ConfigError(f"{path}: {member.filename}: is too large for an advisory", REFETCH)
                        yield f"{path}: {member.filename}", archive.read(member)
        except UNREADABLE_ZIP as error:
            raise ConfigError(f"{path}: cannot be read: {error}", REFETCH) from error


def _applying(
    advisory: _Advisory, affected: Sequence[_Affected], locked: Mapping[str, AbstractSet[str]]
) -> Iterator[Finding]:
    for each in affected:
        assert each.package
        name = canonicalize_name(each.package.name)
        for version in sorted(locked.get(name, ())):
            if _is_affected(each, version):
                names = " ".join([advisory.id, *sorted(advisory.aliases)])
                yield Finding("Python", name, version, names, _fixed(each, Version(version)))


def _is_affected(affected: _Affected, locked: str) -> bool:
    """Whether a version is affected, as the OSV schema's section on evaluation has it."""
    version = Version(locked)
    return any(_same(each, version) for each in affected.versions) or any(
        _is_within(each.events, version) for each in affected.ranges if each.type != "GIT"
    )


def _same(text: str, version: Version) -> bool:
    try:
        return Version(text) == version
    except InvalidVersion:
        return False  # From before versions had a form; the lock's have it.


def _is_within(events: Sequence[_Event], version: Version) -> bool:
    limits = [event.limit for event in events if event.limit not in (None, "*")]
    if limits and not any(version < Version(str(limit)) for limit in limits):
        return False
    within = False
    for event in sorted(events, key=_place):
        if event.introduced is not None and (event.introduced == "0" or version >= Version(event.introduced)):
            within = True
        elif (event.fixed is not None and version >= Version(event.fixed)) or (
            event.last_affected is not None and version > Version(event.last_affected)
        ):
            within = False
    return within


def _place(event: _Event) -> tuple[bool, Any, bool]:
    text = event.introduced or event.fixed or event.last_affected
    # "0" is before every version, those with letters too; what begins again where another ended does so after it.
    begins = event.introduced is not None
    return text not in (None, "0"), Version(text) if text not in (None, "0") else Version("0"), begins


def _fixed(affected: _Affected, version: Version) -> str:
    fixes = (event.fixed for each in affected.ranges if each.type != "GIT" for event in each.events)
    later = [fix for fix in fixes if fix and Version(fix) > version]
    return min(later, key=Version, default="")


def _each_once(found: Sequence[Finding]) -> list[Finding]:
    """Leave out what other databases say of the same under their own numbers."""
    kept: list[Finding] = []
    known: dict[tuple[str, str], set[str]] = {}
    for finding in sorted(found):
        names = set(finding.advisory.split())
        said = known.setdefault((finding.package, finding.version), set())
        if not names & said:
            kept.append(finding)
        said |= names
    return kept


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


def debian_findings(file: Path, packages: Sequence[DebianPackage], release: str) -> Known:
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
