# SPDX-License-Identifier: Apache-2.0
"""Reads the table of faults and allowed results."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_TABLE = Path(__file__).with_name("table.yaml")


@dataclass(frozen=True)
class Row:
    """One kind of fault; table.yaml explains the fields."""

    name: str
    what: str
    actions: tuple[str, ...]
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
    """Return the possible endings of a run, with their meaning."""
    return dict(_content()["endings"])


def board_weights() -> dict[str, int]:
    """Return the relative frequency of each board."""
    return dict(_content()["boards"])


@functools.cache
def rows() -> tuple[Row, ...]:
    """Return all kinds of faults."""
    content = _content()["rows"]
    return tuple(
        Row(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for row in content
    )
