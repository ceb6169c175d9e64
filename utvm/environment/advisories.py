# SPDX-License-Identifier: Apache-2.0
"""Known vulnerabilities of locked packages, from local files: OSV's export for Python, the tracker's for Debian.

Nothing here uses the network. A missing, unreadable or outdated file is an error: without it, "nothing found"
would be a guess.
"""

import datetime
import json
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
from utvm.environment.debian import DebianPackage, compare_versions
from utvm.errors import ConfigError

REFETCH = "fetch it again; docs/environment.md describes the folder of --advisories"


@dataclass(frozen=True, order=True)
class Finding:
    """An advisory that applies to a locked package.

    Attributes:
        kind: ``Debian`` or ``Python``.
        package: name in the lock; for Debian all packages built from the same source, separated by commas.
        version: locked version; for Debian that of the source.
        advisory: its number, followed by its aliases.
        fixed: first version that fixes it; empty if there is none.
    """

    kind: str
    package: str
    version: str
    advisory: str
    fixed: str

    def as_json(self) -> dict[str, str | None]:
        return {
            "kind": self.kind,
            "package": self.package,
            "version": self.version,
            "advisory": self.advisory,
            "fixed_in": self.fixed or None,
        }


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid JSON: {' '.join(str(error).split())}", REFETCH) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: not a JSON object", REFETCH)
    return content


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", REFETCH) from error


_ECOSYSTEM = "PyPI"
# Real advisories have up to 200 kB; a much larger file may be meant to fill the memory.
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
    """Findings, the date of the newest advisory, and the number of advisories.

    Args:
        locked: versions by package name.
    """
    found: list[Finding] = []
    newest, count = None, 0
    for where, data in _files(folder):
        content = parse_json(data, where)
        try:
            advisory = _Advisory.model_validate(content)
            ours = [
                entry for entry in advisory.affected if entry.package and entry.package.ecosystem == _ECOSYSTEM
            ]
            if not ours:
                continue
            count += 1
            newest = max(newest or advisory.modified, advisory.modified)
            if not advisory.withdrawn:
                found += _applying(advisory, ours, locked)
        except (ValidationError, InvalidVersion) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"{where}: not a valid advisory: {reason}", REFETCH) from error
    if newest is None:
        raise ConfigError(f"{folder}: has no advisory of a Python package", REFETCH)
    return _merge_aliases(found), newest, count


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
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
    for entry in affected:
        assert entry.package
        name = canonicalize_name(entry.package.name)
        for version in sorted(locked.get(name, ())):
            if _affects(entry, version):
                names = " ".join([advisory.id, *sorted(advisory.aliases)])
                yield Finding("Python", name, version, names, _first_fix(entry, Version(version)))


def _affects(affected: _Affected, locked: str) -> bool:
    """True if a version is affected (OSV schema, "Evaluation")."""
    version = Version(locked)
    return any(_same(text, version) for text in affected.versions) or any(
        _is_within(span.events, version) for span in affected.ranges if span.type != "GIT"
    )


def _same(text: str, version: Version) -> bool:
    try:
        return Version(text) == version
    except InvalidVersion:
        return False  # Not a PEP 440 version; locked versions are.


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
    # "0" comes before every version, also pre-releases. A range that begins where another ends comes after it.
    begins = event.introduced is not None
    return text not in (None, "0"), Version(text) if text not in (None, "0") else Version("0"), begins


def _first_fix(affected: _Affected, version: Version) -> str:
    fixes = (event.fixed for span in affected.ranges if span.type != "GIT" for event in span.events)
    later = [fix for fix in fixes if fix and Version(fix) > version]
    return min(later, key=Version, default="")


def _merge_aliases(findings: Sequence[Finding]) -> list[Finding]:
    """Drop duplicates: the same advisory under the numbers of other databases."""
    unique: list[Finding] = []
    known: dict[tuple[str, str], set[str]] = {}
    for finding in sorted(findings):
        names = set(finding.advisory.split())
        earlier = known.setdefault((finding.package, finding.version), set())
        if not names & earlier:
            unique.append(finding)
        earlier |= names
    return unique


class _State(BaseModel):
    status: str
    fixed_version: str | None = None
    urgency: str = ""


class _Issue(BaseModel):
    releases: dict[str, _State] = {}


_ISSUES = TypeAdapter(dict[str, _Issue])


@dataclass(frozen=True)
class Known:
    """Findings of Debian's security tracker.

    Attributes:
        unimportant: number of further ones that Debian calls unimportant.
        undetermined: number of issues that are not yet investigated.
        tracked: number of the lock's source packages that it tracks.
    """

    findings: list[Finding]
    unimportant: int
    undetermined: int
    tracked: int


def debian_findings(file: Path, packages: Sequence[DebianPackage], release: str) -> Known:
    """Look up packages by source package and source version, as the tracker does."""
    content = parse_json(read(file), str(file))
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
                names = ", ".join(sorted(package.name for package in binaries))
                found.append(Finding("Debian", names, version, number, state.fixed_version or ""))
    if not tracked:
        raise ConfigError(f"{file}: has no entry for {release} and the locked packages", REFETCH)
    return Known(sorted(found), unimportant, undetermined, len(tracked))


def _states(file: Path, source: str, issues: object, release: str) -> Iterator[tuple[str, _State]]:
    try:
        known: Mapping[str, _Issue] = _ISSUES.validate_python(issues)
    except ValidationError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{file}: invalid entry of {source}: {reason}", REFETCH) from error
    for number, issue in sorted(known.items()):
        if release in issue.releases:
            state = issue.releases[release]
            if state.status not in ("open", "resolved", "undetermined"):
                raise ConfigError(f"{file}: {source}: {number}: status {state.status!r} is unknown", REFETCH)
            yield number, state


def _applies(state: _State, version: str) -> bool:
    # "0": the release was never affected.
    if state.status == "open" or not state.fixed_version:
        return state.status == "open"
    return state.fixed_version != "0" and compare_versions(version, "lt", state.fixed_version)
