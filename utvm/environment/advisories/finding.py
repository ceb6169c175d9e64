# SPDX-License-Identifier: Apache-2.0
"""An advisory that applies to a locked package."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm.errors import ConfigError

REFETCH = "fetch it anew; docs/environment.md says what --advisories is to hold"


@dataclass(frozen=True, order=True)
class Finding:
    """What is known of a package.

    Attributes:
        kind: whose package it is, ``Debian`` or ``Python``.
        package: as the lock calls it; of Debian's all that are made from the same source, with commas between.
        version: as the lock has it; of Debian's that of the source.
        advisory: its number, and behind it those that it goes by elsewhere.
        fixed: the first version without it; empty where there is none.
    """

    kind: str
    package: str
    version: str
    advisory: str
    fixed: str


def parsed(data: bytes, where: str) -> dict[str, Any]:
    """Return what a file of advisories holds."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is no JSON: {' '.join(str(error).split())}", REFETCH) from error
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: is no JSON object", REFETCH)
    return found


def read(path: Path) -> bytes:
    """Return a file's content."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", REFETCH) from error
