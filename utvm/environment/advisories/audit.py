# SPDX-License-Identifier: Apache-2.0
"""Both halves of the lock, held against what is known."""

import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.pylock import Pylock
from packaging.utils import canonicalize_name

from utvm.environment.advisories import accepted, osv, tracker
from utvm.environment.advisories.finding import REFETCH, read
from utvm.environment.locked import Locked
from utvm.errors import ProvisionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OSV = "osv"
"""The folder of OSV's files in a folder of advisories."""
TRACKER = "debian.json"
"""The tracker's file in it."""


@dataclass(frozen=True)
class Audit:
    """What is known of all packages of the lock, and a line for each half that says what was looked at."""

    known: accepted.Sorted
    looked_at: Sequence[str]


def audit(locked: Locked, folder: Path, max_age: int, acceptances: Sequence[accepted.Acceptance] = ()) -> Audit:
    """Hold the packages of both locks, those of the virtual machine and of the tests too, against the advisories.

    Args:
        max_age: days after which the data are too old to say that nothing is known.
        acceptances: what is known and lived with.
    """
    lock = Pylock.from_dict(tomllib.loads(locked.files["pylock.toml"]))
    versions: dict[str, set[str]] = {}
    for package in lock.packages:
        versions.setdefault(canonicalize_name(package.name), set()).add(str(package.version))
    python, changed, advisories = osv.findings(folder / OSV, versions)
    _check_age(folder / OSV, changed, max_age)
    file = folder / TRACKER
    read(file)
    # The tracker's file has no date in it: what there is is when it was written here.
    fetched = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.timezone.utc)
    _check_age(file, fetched, max_age)
    packages = (*locked.debian.packages, *locked.debian.machine)
    release = next(iter(locked.recipe.debian.suites))
    debian = tracker.findings(file, packages, release)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return Audit(
        accepted.sort((*debian.findings, *python), acceptances, today),
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
