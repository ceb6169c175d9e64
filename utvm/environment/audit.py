# SPDX-License-Identifier: Apache-2.0
"""Audit of both locks against known vulnerabilities, with accepted exceptions."""

import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from packaging.pylock import Pylock
from packaging.utils import canonicalize_name
from pydantic import StringConstraints

from utvm.base.storage.config import Record, load_yaml
from utvm.environment.advisories import REFETCH, Finding, debian_findings, python_findings, read
from utvm.environment.locked import Locked, load_locked
from utvm.errors import ProvisionError, UtvmError
from utvm.paths import PROVISION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Acceptance(Record):
    """An accepted advisory, for one package only.

    Attributes:
        advisory: its number or an alias.
        package: as ``env.audit`` lists it; for Debian, any package built from the source.
        until: the last day.
    """

    advisory: _Text
    package: _Text
    reason: _Text
    until: datetime.date

    def matches(self, finding: Finding) -> bool:
        return self.advisory in finding.advisory.split() and self.package in finding.package.split(", ")


class _File(Record):
    accepted: tuple[Acceptance, ...] = ()


@dataclass(frozen=True)
class SortedFindings:
    """Findings, sorted by acceptance.

    Attributes:
        findings: those not accepted, or no longer.
        over: expired acceptances of current findings.
        idle: acceptances that match no finding.
    """

    findings: tuple[Finding, ...]
    accepted: tuple[tuple[Finding, Acceptance], ...]
    over: tuple[Acceptance, ...]
    idle: tuple[Acceptance, ...]


def load(path: Path) -> tuple[Acceptance, ...]:
    return load_yaml(path, _File).accepted


def sort(findings: Sequence[Finding], acceptances: Sequence[Acceptance], today: datetime.date) -> SortedFindings:
    accepted, remaining = [], []
    for finding in findings:
        current = [item for item in acceptances if item.until >= today and item.matches(finding)]
        if current:
            accepted.append((finding, current[0]))
        else:
            remaining.append(finding)
    idle = [item for item in acceptances if not any(map(item.matches, findings))]
    over = [item for item in acceptances if item.until < today and item not in idle]
    return SortedFindings(tuple(remaining), tuple(accepted), tuple(over), tuple(idle))


MAX_AGE = 7
"""Days after which advisories are too old."""
OSV = "osv"
"""The folder of OSV's files in a folder of advisories."""
TRACKER = "debian.json"
"""The tracker's file in it."""


@dataclass(frozen=True)
class Audit:
    known: SortedFindings
    looked_at: Sequence[str]

    def as_json(self) -> dict[str, object]:
        return {
            "looked_at": list(self.looked_at),
            "findings": [finding.as_json() for finding in self.known.findings],
            "accepted": [
                finding.as_json() | {"until": str(why.until), "reason": why.reason}
                for finding, why in self.known.accepted
            ],
        }


def report_on(folder: Path) -> dict[str, object]:
    """The nightly report's entry on the checkout's locks; ``problem`` says why it is empty."""
    try:
        acceptances = load(PROVISION / "accepted.yaml")
        return {"problem": "", **audit(load_locked(), folder, MAX_AGE, acceptances).as_json()}
    except UtvmError as error:
        return {"problem": error.message, "looked_at": [], "findings": [], "accepted": []}


def audit(locked: Locked, folder: Path, max_age: int, acceptances: Sequence[Acceptance] = ()) -> Audit:
    """Check all locked packages, also those of the virtual machine and of the tests.

    Args:
        max_age: age of the advisories in days that is an error.
    """
    lock = Pylock.from_dict(tomllib.loads(locked.files["pylock.toml"]))
    versions: dict[str, set[str]] = {}
    for package in lock.packages:
        versions.setdefault(canonicalize_name(package.name), set()).add(str(package.version))
    python, changed, advisories = python_findings(folder / OSV, versions)
    _check_age(folder / OSV, changed, max_age)
    file = folder / TRACKER
    read(file)
    # The tracker's file has no date in it, so its modification time counts.
    fetched = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.timezone.utc)
    _check_age(file, fetched, max_age)
    packages = (*locked.debian.packages, *locked.debian.machine)
    release = next(iter(locked.recipe.debian.suites))
    debian = debian_findings(file, packages, release)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return Audit(
        sort((*debian.findings, *python), acceptances, today),
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
            f"{path}: is of {date:%Y-%m-%d}, {age.days} days old; at most {max_age} are allowed",
            REFETCH,
        )
