# SPDX-License-Identifier: Apache-2.0
"""Processes, storage, logging, text; independent of boards and models."""

from typing import Any


def fields_of(record: object, *names: str) -> dict[str, Any]:
    """Return attributes of a record by name, in this order."""
    return {name: getattr(record, name) for name in names}
