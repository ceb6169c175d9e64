# SPDX-License-Identifier: Apache-2.0
"""The schemas of ``report.json`` and ``nightly.json``: docs/*.schema.json, with the figures of models filled in.

What the files say of models is made of :data:`utvm.hil.figures.FIGURES`, so that a figure is written once; a test
compares. The schemas of earlier versions are not touched any more.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema

from utvm.base.storage.files import write_whole
from utvm.hil.figures import FIGURES
from utvm.paths import DATA

REPORT = DATA / "docs" / "report.schema.json"
REPORT_1 = DATA / "docs" / "report.schema.1.json"
REPORT_2 = DATA / "docs" / "report.schema.2.json"
REPORT_3 = DATA / "docs" / "report.schema.3.json"
NIGHTLY = DATA / "docs" / "nightly.schema.json"

_SHA256 = {"$ref": "#/$defs/sha256"}
_IDENTITY: Mapping[str, object] = {
    "id": {
        "description": "SHA-256 over the model file's format and content, whatever compiles it: the same in all "
        "reports. null for a program that was no model file.",
        "type": ["string", "null"],
        "pattern": "^[0-9a-f]{64}$",
    },
    "name": {"type": "string", "minLength": 1},
    "executor": {"description": "How it was run.", "type": "string", "minLength": 1},
    "outputs_sha256": {"description": "Over the bytes of all outputs of all samples, in order.", **_SHA256},
    "image_sha256": {"description": "Of the ELF file that it ran in.", **_SHA256},
}


def load(path: Path) -> dict[str, Any]:
    """Return a schema with the present figures in it.

    Args:
        path: of the file; that of an earlier version is returned as it is.
    """
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if path in (REPORT, NIGHTLY):
        schema["$defs"] |= _definitions()
    return schema


def check(content: Mapping[str, object], path: Path) -> None:
    """Hold a report against its schema."""
    jsonschema.validate(content, load(path))


def text(path: Path) -> str:
    """Return what the file of a schema should hold."""
    return json.dumps(load(path), indent=2) + "\n"


def write_schemas() -> None:
    """Bring the files up to date."""
    for path in (REPORT, NIGHTLY):
        write_whole(path, text(path).encode())


def _definitions() -> dict[str, object]:
    """Return what is said of models and statistics: of all boards, and of each kind."""
    figures = {figure.name: {"description": figure.means, **figure.schema} for figure in FIGURES}
    definitions: dict[str, object] = {
        "model": {
            "type": "object",
            "additionalProperties": False,
            "required": [*_IDENTITY, *(figure.name for figure in FIGURES if not figure.only)],
            "properties": {**_IDENTITY, **figures},
        }
    }
    kinds = dict.fromkeys(figure.only for figure in FIGURES if figure.only)
    for kind in kinds:
        # One figure is never under another's name: false is a schema that nothing is right by.
        others: dict[str, object] = {figure.name: False for figure in FIGURES if figure.only not in ("", kind)}
        own = [figure.name for figure in FIGURES if figure.only == kind]
        definitions[f"{kind}_model"] = {"required": own, "properties": others}
        definitions[f"{kind}_statistics"] = {"properties": others}
    return definitions
