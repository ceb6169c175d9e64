# SPDX-License-Identifier: Apache-2.0
"""The logs of a run as its page shows them: where they are, and how they end."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_FILES = 12
_TAIL_BYTES = 3_000


@dataclass(frozen=True)
class End:
    """The end of one log.

    Attributes:
        name: its path in the folder of logs.
        href: where it is, seen from the page.
        size: bytes.
        tail: its last lines.
    """

    name: str
    href: str
    size: int
    tail: str


def ends(logs: Path, seen_from: Path) -> tuple[End, ...]:
    """Return how the logs in a folder end, the smallest first: the log of everything has them all in it.

    Args:
        seen_from: the folder with the page that links to them.
    """
    found = sorted(_ends(logs, seen_from), key=lambda end: (end.size, end.name))
    return tuple(found[-_FILES:])


def href_from(logs: Path, seen_from: Path) -> str:
    """Return the beginning of links to the files in a folder of logs."""
    return quote(os.path.relpath(logs, seen_from)) + "/"


def _ends(logs: Path, seen_from: Path) -> Iterator[End]:
    base = href_from(logs, seen_from)
    for path in sorted(logs.rglob("*")):
        # Another process may sweep old logs, and what is no text is no log.
        with contextlib.suppress(OSError):
            if not path.is_file() or path.suffix not in (".log", ".txt") or not path.stat().st_size:
                continue
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(max(0, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
            name = path.relative_to(logs).as_posix()
            yield End(name, base + quote(name), size, text.partition("\n")[2] if size > _TAIL_BYTES else text)
