# SPDX-License-Identifier: Apache-2.0
"""Notes on a model's operators and decisions: written where they are made, stored with the library, for people.

The notes of a library are lines, each of which begins with a word that says what was done, such as ``fused``.
"""

import contextlib
from collections.abc import Iterator

from utvm.base.text.quoting import printable

_notes: list[list[str]] = []


def note(what: str, text: str) -> None:
    """Note something of the model that is compiled; where nobody collects notes, nothing."""
    for item in _notes:
        item.append(printable(f"{what}: {text}"))


@contextlib.contextmanager
def collect_notes() -> Iterator[list[str]]:
    lines: list[str] = []
    _notes.append(lines)
    try:
        yield lines
    finally:
        _notes.remove(lines)
