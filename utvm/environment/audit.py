# SPDX-License-Identifier: Apache-2.0
"""Audit of both locks against known vulnerabilities, with accepted exceptions.

Advisories come from local files: OSV's export for Python, the tracker's for Debian; no network is used. A missing,
unreadable or outdated file is an error.
"""

import contextlib
import datetime
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from packaging.pylock import Pylock
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, StringConstraints, TypeAdapter, ValidationError

from utvm.base import fields_of
from utvm.base.storage import config, files
from utvm.environment.debian import DebianPackage, compare_versions
from utvm.environment.locked import Locked, load_lock_files
from utvm.errors import ConfigError, ProvisionError, UtvmError
from utvm.paths import PROVISION

REFETCH = "fetch it again; docs/environment.md describes the folder of --advisories"


@dataclass(frozen=True, order=True)
class Finding:
    """An advisory that applies to a locked package.

    Attributes:
        package: name in the lock; for Debian all packages of one source, separated by commas.
        version: locked version; for Debian that of the source.
        advisory: its number and aliases.
    """

    kind: str
    package: str
    version: str
    advisory: str
    fixed: str

    def as_json(self) -> dict[str, str | None]:
        return fields_of(self, "kind", "package", "version", "advisory") | {"fixed_in": self.fixed or None}


def _parse_json(data: bytes, source: str) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid JSON: {' '.join(str(error).split())}", REFETCH) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: not a JSON object", REFETCH)
    return content


def read(path: Path) -> bytes:
    with ConfigError.on_os_error(f"{path}: cannot be read", REFETCH):
        return path.read_bytes()


_ECOSYSTEM = "PyPI"
# Real advisories have up to 200 kB; larger files could exhaust the memory.
_MAX_BYTES = 32 << 20


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
    findings: list[Finding] = []
    newest, count = None, 0
    for source, data in _files(folder):
        content = _parse_json(data, source)
        try:
            advisory = _Advisory.model_validate(content)
            python_entries = [row for row in advisory.affected if row.package and row.package.ecosystem == _ECOSYSTEM]
            if not python_entries:
                continue
            count += 1
            newest = max(newest or advisory.modified, advisory.modified)
            if not advisory.withdrawn:
                findings += _matching(advisory, python_entries, locked)
        except (ValidationError, InvalidVersion) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"{source}: not a valid advisory: {reason}", REFETCH) from error
    if newest is None:
        raise ConfigError(f"{folder}: has no advisory of a Python package", REFETCH)
    return _merge_aliases(findings), newest, count


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder", REFETCH)
    for path in sorted(folder.glob("*.json")):
        yield str(path), read(path)
    for path in sorted(folder.glob("*.zip")):
        unreadable = ConfigError.on(files.UNREADABLE_ZIP, f"{path}: cannot be read:", REFETCH)
        with unreadable, zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".json"):
                    if member.file_size > _MAX_BYTES:
                        raise ConfigError(f"{path}: {member.filename}: is too large for an advisory", REFETCH)
                    yield f"{path}: {member.filename}", archive.read(member)


def _matching(
    advisory: _Advisory, affected: Sequence[_Affected], locked: Mapping[str, AbstractSet[str]]
) -> Iterator[Finding]:
    for entry in affected:
        assert entry.package
        name = canonicalize_name(entry.package.name)
        for version in sorted(locked.get(name, ())):
            if _affects(entry, version):
                names = " ".join([advisory.id, *sorted(advisory.aliases)])
                fixes = (event.fixed for span in entry.ranges if span.type != "GIT" for event in span.events)
                later = [fix for fix in fixes if fix and Version(fix) > Version(version)]
                yield Finding("Python", name, version, names, min(later, key=Version, default=""))


def _affects(affected: _Affected, locked: str) -> bool:
    """True if a version is affected (OSV schema, "Evaluation")."""
    version = Version(locked)
    for text in affected.versions:
        with contextlib.suppress(InvalidVersion):  # Not a PEP 440 version; locked versions are.
            if Version(text) == version:
                return True
    return any(_is_within(span.events, version) for span in affected.ranges if span.type != "GIT")


def _is_within(events: Sequence[_Event], version: Version) -> bool:
    limits = [event.limit for event in events if event.limit not in (None, "*")]
    if limits and not any(version < Version(str(limit)) for limit in limits):
        return False
    within = False
    for event in sorted(events, key=_event_order):
        if event.introduced is not None and (event.introduced == "0" or version >= Version(event.introduced)):
            within = True
        elif (event.fixed is not None and version >= Version(event.fixed)) or (
            event.last_affected is not None and version > Version(event.last_affected)
        ):
            within = False
    return within


def _event_order(event: _Event) -> tuple[bool, Any, bool]:
    text = event.introduced or event.fixed or event.last_affected
    # "0" precedes every version, even pre-releases. A range that begins at another's end sorts after it.
    begins = event.introduced is not None
    return text not in (None, "0"), Version(text) if text not in (None, "0") else Version("0"), begins


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
class TrackerResult:
    findings: list[Finding]
    unimportant: int
    undetermined: int
    tracked: int


def debian_findings(file: Path, packages: Sequence[DebianPackage], release: str) -> TrackerResult:
    """Look up packages by source package and version, as the tracker does."""
    content = _parse_json(read(file), str(file))
    by_source: dict[tuple[str, str], list[DebianPackage]] = {}
    for package in packages:
        by_source.setdefault(package.source_package, []).append(package)
    findings: list[Finding] = []
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
                findings.append(Finding("Debian", names, version, number, state.fixed_version or ""))
    if not tracked:
        raise ConfigError(f"{file}: has no entry for {release} and the locked packages", REFETCH)
    return TrackerResult(sorted(findings), unimportant, undetermined, len(tracked))


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


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Acceptance(config.Record):
    """An accepted advisory, for one package only.

    Attributes:
        advisory: number or alias.
        package: as ``env.audit`` lists it; for Debian, any package of the source.
    """

    advisory: _Text
    package: _Text
    reason: _Text
    until: datetime.date

    def matches(self, finding: Finding) -> bool:
        return self.advisory in finding.advisory.split() and self.package in finding.package.split(", ")


class _Accepted(config.Record):
    accepted: tuple[Acceptance, ...] = ()


MAX_AGE = 7
"""Days after which advisories are too old."""
OSV = "osv"
"""Folder of OSV's files in a folder of advisories."""
TRACKER = "debian.json"
"""The Debian tracker's file in a folder of advisories."""


@dataclass(frozen=True)
class Audit:
    """Findings, sorted by acceptance, and a summary line for each half of the lock.

    Attributes:
        findings: those that are not accepted, or no longer.
        expired: expired acceptances of current findings.
        unused: acceptances that match no finding.
    """

    findings: Sequence[Finding]
    accepted: Sequence[tuple[Finding, Acceptance]]
    expired: Sequence[Acceptance]
    unused: Sequence[Acceptance]
    summaries: Sequence[str]

    def as_json(self) -> dict[str, object]:
        return {
            "looked_at": list(self.summaries),
            "findings": [finding.as_json() for finding in self.findings],
            "accepted": [
                finding.as_json() | {"until": str(why.until), "reason": why.reason} for finding, why in self.accepted
            ],
        }


def load_acceptances(path: Path = PROVISION / "accepted.yaml") -> tuple[Acceptance, ...]:
    return config.load_yaml(path, _Accepted).accepted


def report_on(folder: Path) -> dict[str, object]:
    """Return the nightly report's entry on the checkout's locks; ``problem`` explains an empty one."""
    try:
        return {"problem": "", **audit(load_lock_files(), folder, MAX_AGE, load_acceptances()).as_json()}
    except UtvmError as error:
        return {"problem": error.message, "looked_at": [], "findings": [], "accepted": []}


def audit(locked: Locked, folder: Path, max_age: int, acceptances: Sequence[Acceptance] = ()) -> Audit:
    """Check all locked packages, including those of the virtual machine and of the tests."""
    lock = Pylock.from_dict(tomllib.loads(locked.files["pylock.toml"]))
    versions: dict[str, set[str]] = {}
    for package in lock.packages:
        versions.setdefault(canonicalize_name(package.name), set()).add(str(package.version))
    python, changed, advisories = python_findings(folder / OSV, versions)
    _check_age(folder / OSV, changed, max_age)
    file = folder / TRACKER
    read(file)
    # The tracker's file has no date, so its modification time counts.
    fetched = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.timezone.utc)
    _check_age(file, fetched, max_age)
    packages = (*locked.debian.packages, *locked.debian.machine)
    release = next(iter(locked.recipe.debian.suites))
    debian = debian_findings(file, packages, release)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    accepted, remaining = [], []
    for finding in (*debian.findings, *python):
        current = [item for item in acceptances if item.until >= today and item.matches(finding)]
        if current:
            accepted.append((finding, current[0]))
        else:
            remaining.append(finding)
    unused = [item for item in acceptances if not any(map(item.matches, (*debian.findings, *python)))]
    expired = [item for item in acceptances if item.until < today and item not in unused]
    return Audit(
        remaining,
        accepted,
        expired,
        unused,
        (
            f"Debian: {len(packages)} packages; {debian.tracked} of their sources are tracked for {release} "
            f"({fetched:%Y-%m-%d}); not listed: {debian.unimportant} that Debian calls unimportant, "
            f"{debian.undetermined} undetermined",
            f"Python: {len(versions)} packages; {advisories} advisories, the newest of {changed:%Y-%m-%d}",
        ),
    )


def _check_age(path: Path, date: datetime.datetime, max_age: int) -> None:
    age = datetime.datetime.now(datetime.timezone.utc) - date
    if age > datetime.timedelta(days=max_age):
        raise ProvisionError(
            f"{path}: is of {date:%Y-%m-%d}, {age.days} days old; at most {max_age} are allowed", REFETCH
        )
