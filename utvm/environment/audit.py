# SPDX-License-Identifier: Apache-2.0
"""Both halves of the lock, held against what is known."""

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
from utvm.environment.recipe import PROVISION
from utvm.errors import ProvisionError, UtvmError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Acceptance(Record):
    """One advisory, for one package only: what it does to another one is another matter.

    Attributes:
        advisory: any of the numbers that it goes by.
        package: as ``env.audit`` lists it; one of those that Debian makes from the same source is enough.
        until: the last day.
    """

    advisory: _Said
    package: _Said
    reason: _Said
    until: datetime.date

    def is_about(self, finding: Finding) -> bool:
        """Whether it is this that was accepted."""
        return self.advisory in finding.advisory.split() and self.package in finding.package.split(", ")


class _File(Record):
    accepted: tuple[Acceptance, ...] = ()


@dataclass(frozen=True)
class SortedFindings:
    """What is known, by what somebody said of it.

    Attributes:
        findings: what nobody has accepted, or not until today.
        accepted: what somebody has.
        over: acceptances that would be of something, but have ended.
        idle: acceptances of what is not known any more.
    """

    findings: tuple[Finding, ...]
    accepted: tuple[tuple[Finding, Acceptance], ...]
    over: tuple[Acceptance, ...]
    idle: tuple[Acceptance, ...]


def load(path: Path) -> tuple[Acceptance, ...]:
    """Read what is accepted."""
    return load_yaml(path, _File).accepted


def sort(findings: Sequence[Finding], acceptances: Sequence[Acceptance], today: datetime.date) -> SortedFindings:
    """Say of each finding whether it is accepted."""
    accepted, left = [], []
    for finding in findings:
        about = [each for each in acceptances if each.until >= today and each.is_about(finding)]
        if about:
            accepted.append((finding, about[0]))
        else:
            left.append(finding)
    about_nothing = [each for each in acceptances if not any(map(each.is_about, findings))]
    over = [each for each in acceptances if each.until < today and each not in about_nothing]
    return SortedFindings(tuple(left), tuple(accepted), tuple(over), tuple(about_nothing))


MAX_AGE = 7
"""Days after which advisories are too old to say that nothing is known."""
OSV = "osv"
"""The folder of OSV's files in a folder of advisories."""
TRACKER = "debian.json"
"""The tracker's file in it."""


@dataclass(frozen=True)
class Audit:
    """What is known of all packages of the lock, and a line for each half that says what was looked at."""

    known: SortedFindings
    looked_at: Sequence[str]

    def as_json(self) -> dict[str, object]:
        """Return what reports have of it."""
        return {
            "looked_at": list(self.looked_at),
            "findings": [finding.as_json() for finding in self.known.findings],
            "accepted": [
                finding.as_json() | {"until": str(why.until), "reason": why.reason}
                for finding, why in self.known.accepted
            ],
        }


def report_on(folder: Path) -> dict[str, object]:
    """Return what the nightly report has of the checkout's locks; ``problem`` says why there is no more.

    Args:
        folder: the advisories.
    """
    try:
        acceptances = load(PROVISION / "accepted.yaml")
        return {"problem": "", **audit(load_locked(), folder, MAX_AGE, acceptances).as_json()}
    except UtvmError as error:
        return {"problem": error.message, "looked_at": [], "findings": [], "accepted": []}


def audit(locked: Locked, folder: Path, max_age: int, acceptances: Sequence[Acceptance] = ()) -> Audit:
    """Hold the packages of both locks, those of the virtual machine and of the tests too, against the advisories.

    Args:
        max_age: days after which the data are too old to say that nothing is known.
        acceptances: what is known and lived with.
    """
    lock = Pylock.from_dict(tomllib.loads(locked.files["pylock.toml"]))
    versions: dict[str, set[str]] = {}
    for package in lock.packages:
        versions.setdefault(canonicalize_name(package.name), set()).add(str(package.version))
    python, changed, advisories = python_findings(folder / OSV, versions)
    _check_age(folder / OSV, changed, max_age)
    file = folder / TRACKER
    read(file)
    # The tracker's file has no date in it: what there is is when it was written here.
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
            f"{path}: is of {date:%Y-%m-%d}, {age.days} days old, where {max_age} are allowed: "
            "what is known today is not in it",
            REFETCH,
        )
