# SPDX-License-Identifier: Apache-2.0
"""Advisories that somebody has looked into and lives with: each with a reason, and a day on which that ends."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from utvm.base.storage.config import Record, load_yaml
from utvm.environment.advisories.finding import Finding

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
class Sorted:
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


def sort(findings: Sequence[Finding], acceptances: Sequence[Acceptance], today: datetime.date) -> Sorted:
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
    return Sorted(tuple(left), tuple(accepted), tuple(over), tuple(about_nothing))
