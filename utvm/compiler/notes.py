# SPDX-License-Identifier: Apache-2.0
"""Notes for people on operators and decisions, stored with the library; lines begin with a keyword (``fused``)."""

import contextlib
from collections.abc import Iterator

from utvm.base.text.quoting import printable

_notes: list[list[str]] = []


def note(what: str, text: str) -> None:
    """Add a note on the model being compiled; without a collector, do nothing."""
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
