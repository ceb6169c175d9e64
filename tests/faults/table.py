# SPDX-License-Identifier: Apache-2.0
"""Reads the table of what a run may say of which fault."""

from dataclasses import dataclass
from pathlib import Path

import yaml

_TABLE = Path(__file__).with_name("table.yaml")


@dataclass(frozen=True)
class Row:
    """One kind of fault; the fields are explained in the table."""

    name: str
    what: str
    deeds: tuple[str, ...]
    boards: tuple[str, ...]
    weight: int
    may: tuple[str, ...]
    cold: bool = False


def endings() -> dict[str, str]:
    """Return how a run may end, and what that means."""
    return dict(yaml.safe_load(_TABLE.read_text(encoding="utf-8"))["endings"])


def rows() -> tuple[Row, ...]:
    """Return all kinds of faults."""
    content = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))["rows"]
    return tuple(
        Row(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for row in content
    )
