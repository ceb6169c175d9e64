# SPDX-License-Identifier: Apache-2.0
"""Reads the table of what a run may say of which fault."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_TABLE = Path(__file__).with_name("table.yaml")


@dataclass(frozen=True)
class Row:
    """One kind of fault; the fields are explained in the table."""

    name: str
    what: str
    deeds: tuple[str, ...]
    boards: tuple[str, ...]
    weight: float
    may: tuple[str, ...]
    cold: bool = False
    place: str = "host"
    reports: bool = True


@functools.cache
def _content() -> Mapping[str, Any]:
    content: Mapping[str, Any] = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return content


def endings() -> dict[str, str]:
    """Return how a run may end, and what that means."""
    return dict(_content()["endings"])


def board_weights() -> dict[str, int]:
    """Return how often each board is drawn, relative to others."""
    return dict(_content()["boards"])


@functools.cache
def rows() -> tuple[Row, ...]:
    """Return all kinds of faults."""
    content = _content()["rows"]
    return tuple(
        Row(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for row in content
    )
