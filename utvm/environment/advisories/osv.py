# SPDX-License-Identifier: Apache-2.0
"""Advisories of Python packages, in the OSV schema: a folder of its JSON files, or the export's own zip."""

import datetime
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, ValidationError

from utvm.base.storage.files import UNREADABLE_ZIP
from utvm.environment.advisories.finding import REFETCH, Finding, parsed, read
from utvm.errors import ConfigError

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


def findings(folder: Path, locked: Mapping[str, AbstractSet[str]]) -> tuple[list[Finding], datetime.datetime, int]:
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
