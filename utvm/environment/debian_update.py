# SPDX-License-Identifier: Apache-2.0
"""A newer Debian package, and what it forces: those whose locked versions its dependencies do not allow."""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

from utvm.errors import ProvisionError

_RELATION = re.compile(r"([^\s:(]+)(?::\w+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*(\S+)\s*\))?")

Stanza = Mapping[str, str]
"""What an index says of a package: field to value."""


def set_free(
    names: Sequence[str], locked: Mapping[str, tuple[str, str]], newest: Callable[[str], Stanza]
) -> set[str]:
    """Return which of the locked packages may be newer than they are locked, if these names shall be.

    What is made from the same source goes together: Debian's dependencies count on it.

    Args:
        locked: name to source and version.
        newest: says what the index has of a package.
    """
    free: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in free:
            continue
        free.add(name)
        waiting += [each for each, (source, _) in locked.items() if source == locked[name][0]]
        waiting += _forced_by(newest(name), locked)
    return free


def _forced_by(stanza: Stanza, locked: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for field in ("Pre-Depends", "Depends"):
        for clause in filter(None, stanza.get(field, "").split(",")):
            known = [each for each in map(_relation, clause.split("|")) if each[0] in locked]
            if known and not any(_holds(*each, locked) for each in known):
                yield known[0][0]
    for field in ("Breaks", "Conflicts"):
        for name, operator, version in map(_relation, filter(None, stanza.get(field, "").split(","))):
            if operator and name in locked and _holds(name, operator, version, locked):
                yield name


def _relation(text: str) -> tuple[str, str, str]:
    found = _RELATION.match(text.strip())
    return (found[1], found[2] or "", found[3] or "") if found else ("", "", "")


def _holds(name: str, operator: str, version: str, locked: Mapping[str, tuple[str, str]]) -> bool:
    """Return whether a dependency is met."""
    if not operator:
        return True
    try:
        words = ["dpkg", "--compare-versions", locked[name][1], operator, version]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except FileNotFoundError as error:
        raise ProvisionError("dpkg is not installed, and only it compares Debian's versions") from error
