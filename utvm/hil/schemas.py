# SPDX-License-Identifier: Apache-2.0
"""Schemas of ``report.json`` and ``nightly.json``, and reading reports of all versions.

The model definitions in docs/*.schema.json are generated from :data:`utvm.hil.figures.FIGURES`; a test compares.
Schemas of earlier versions do not change; docs/report.md lists the changes.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from utvm.base.storage.config import read_yaml
from utvm.base.storage.files import write_whole
from utvm.errors import ConfigError
from utvm.hil.figures import FIGURES
from utvm.hil.results import SCHEMA_VERSION, board_entry, case_id, first_line
from utvm.paths import DATA

REPORT = DATA / "docs" / "report.schema.json"
NIGHTLY = DATA / "docs" / "nightly.schema.json"
_IDENTITY = read_yaml(Path(__file__).with_name("identity.yaml"))[0]


def load_schema(path: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if path in (REPORT, NIGHTLY):
        schema["$defs"] |= _definitions()
    return schema


def check_schema(content: Mapping[str, Any], path: Path) -> None:
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for

    # Not jsonschema.validate: it also checks the schema, which is slow and done in tests.
    schema = load_schema(path)
    if error := best_match(validator_for(schema)(schema).iter_errors(content)):
        raise error


def schema_text(path: Path) -> str:
    return json.dumps(load_schema(path), indent=2) + "\n"


def write_schemas() -> None:
    for path in (REPORT, NIGHTLY):
        write_whole(path, schema_text(path))


def _definitions() -> dict[str, object]:
    figures = {figure.name: {"description": figure.means, **figure.schema} for figure in FIGURES}
    definitions: dict[str, object] = {
        "model": {
            "type": "object",
            "additionalProperties": False,
            "required": [*_IDENTITY, *(figure.name for figure in FIGURES if not (figure.only or figure.optional))],
            "properties": {**_IDENTITY, **figures},
        }
    }
    kinds = dict.fromkeys(figure.only for figure in FIGURES if figure.only)
    for kind in kinds:
        # The schema false rejects figures of other kinds of boards.
        others: dict[str, object] = {figure.name: False for figure in FIGURES if figure.only not in ("", kind)}
        own = [figure.name for figure in FIGURES if figure.only == kind and not figure.optional]
        definitions[f"{kind}_model"] = {"required": own, "properties": others}
        definitions[f"{kind}_statistics"] = {"properties": others}
    return definitions


MAX_BYTES = 1 << 26
"""Longer files are refused; a run of every suite writes a tiny fraction of this."""

_EARLIER = {version: REPORT.with_name(f"report.schema.{version}.json") for version in range(1, SCHEMA_VERSION)}
_SCHEMAS = {**_EARLIER, SCHEMA_VERSION: REPORT}


def read_report(path: Path) -> dict[str, Any]:
    """Read a report of any version, with the keys of the current one.

    Values missing in its version are None; ``schema_version`` stays that of the file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: is longer than {MAX_BYTES} bytes", "give the report.json of a run")
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = content["schema_version"]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", "give the report.json of a run") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not a report", "give the report.json of a run") from error
    if not isinstance(version, int) or version not in _SCHEMAS:
        known = ", ".join(map(str, _SCHEMAS))
        raise ConfigError(
            f"{path}: is a report of version {version!r}, and this utvm reads versions {known}", "update utvm"
        )
    from jsonschema import ValidationError

    try:
        check_schema(content, _SCHEMAS[version])
    except ValidationError as error:
        raise ConfigError(
            f"{path}: {error.json_path}: {error.message}", f"{_SCHEMAS[version].name} describes a report"
        ) from error
    return _UPGRADES[version](content)


def first_trouble(content: Mapping[str, Any]) -> str:
    """Return the first test that did not pass, in one line; empty if all passed."""
    for outcome in ("infrastructure", "error", "failed"):
        for test in content["tests"]:
            if test["outcome"] == outcome:
                name = str(test["node"]).rpartition("/")[2]
                return f"{name}: {first_line(str(test['message']))}"
    return ""


def _from_1(content: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a report of version 1, in any of its layouts."""
    board, environment = content["board"], content["environment"]
    place = environment.get("place", {"tools": environment.get("tools")})
    # Version 1 called all counters "cycles".
    unit = next(figure.name for figure in FIGURES if figure.only == board["kind"])
    return {
        **content,
        "source": {"commit": None, "dirty": None},
        "board": {**board, **board_entry(board["name"])},
        "environment": {
            "digest": environment["digest"],
            "lock": None,
            "place": {**dict.fromkeys(("kind", "hostname", "frozen", "environment", "installed", "lease")), **place},
        },
        "tests": [_not_run({**test, "node": test["id"], "id": case_id(test["id"])}) for test in content["tests"]],
        "models": [_with_counts({"id": None, "image_sha256": None, **model}) for model in content["models"]],
        "statistics": [
            {
                "name": entry["name"],
                "values": {unit if name == "cycles" else name: value for name, value in entry["values"].items()},
            }
            for entry in content.get("statistics", ())
        ],
        "trouble": content.get("trouble", ""),
    }


def _from_2(content: Mapping[str, Any]) -> dict[str, Any]:
    tests, models = map(_not_run, content["tests"]), map(_with_counts, content["models"])
    return _from_3({**content, "tests": [*tests], "models": [*models]})


def _from_3(content: Mapping[str, Any]) -> dict[str, Any]:
    environment = content["environment"]
    return {**content, "environment": {**environment, "place": {**environment["place"], "lease": None}}}


def _with_counts(model: Mapping[str, Any]) -> dict[str, Any]:
    units = (figure.name for figure in FIGURES if figure.only)
    return {**model, **{unit: model[unit] or None for unit in units if unit in model}}


def _not_run(test: Mapping[str, Any]) -> dict[str, Any]:
    """Set "not run": up to version 2, such tests were "skipped"."""
    reason = test["message"].removeprefix("not run: ")
    if test["outcome"] != "skipped" or reason == test["message"]:
        return dict(test)
    return {**test, "outcome": "not run", "message": reason}


_UPGRADES: Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: dict,
    SCHEMA_VERSION: dict,
}
