# SPDX-License-Identifier: Apache-2.0
"""The logs of a run as its page shows them: where they are, and how they end."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from utvm.base.log.setup import FILE

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


def begins(node: str) -> str:
    """Return what the log of everything says where a test begins."""
    return f"test {node}"


def part_of(node: str, found: Sequence[End]) -> str:
    """Return a link to where a test begins in the log of everything; empty where that is not kept.

    Browsers go to the words behind ``:~:text=``; one that does not know that shows the log's beginning.
    """
    href = next((end.href for end in found if end.name == FILE), "")
    # A hyphen and a comma mean something there.
    return f"{href}#:~:text={quote(begins(node), safe='').replace('-', '%2D')}" if href else ""


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
