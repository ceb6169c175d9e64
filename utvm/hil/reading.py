# SPDX-License-Identifier: Apache-2.0
"""Reads a ``report.json`` of any version that there was; docs/report.md has the changes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from utvm.errors import ConfigError
from utvm.hil.figures import FIGURES
from utvm.hil.results import SCHEMA_VERSION, board_entry, id_of_test, in_brief
from utvm.hil.schemas import REPORT, REPORT_1, REPORT_2, REPORT_3, check

MAX_BYTES = 1 << 26
"""A longer file is refused unread: a run of every suite writes some ten thousandths of it."""

_SCHEMAS = {1: REPORT_1, 2: REPORT_2, 3: REPORT_3, SCHEMA_VERSION: REPORT}


def read(path: Path) -> dict[str, Any]:
    """Return what a report says, with the keys of the present version, whatever it was written as.

    What its version did not say is None; ``schema_version`` stays that of the file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: is longer than {MAX_BYTES} bytes", "give the report.json of a run")
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = content["schema_version"]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", "give the report.json of a run") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: is no report", "give the report.json of a run") from error
    if not isinstance(version, int) or version not in _SCHEMAS:
        known = ", ".join(map(str, _SCHEMAS))
        raise ConfigError(
            f"{path}: is a report of version {version!r}, and this utvm knows {known}", "take a newer utvm"
        )
    try:
        check(content, _SCHEMAS[version])
    except jsonschema.ValidationError as error:
        raise ConfigError(
            f"{path}: {error.json_path}: {error.message}", f"{_SCHEMAS[version].name} says what a report holds"
        ) from error
    return _UPGRADES[version](content)


def first_trouble(content: Mapping[str, Any]) -> str:
    """Return the first test of a report that did not pass, in one line; nothing where all did."""
    for outcome in ("infrastructure", "error", "failed"):
        for test in content["tests"]:
            if test["outcome"] == outcome:
                name = str(test["node"]).rpartition("/")[2]
                return f"{name}: {in_brief(str(test['message']))}"
    return ""


def _from_1(content: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a report of version 1, of each of its shapes, into the present one."""
    board, environment = content["board"], content["environment"]
    place = environment.get("place", {"tools": environment.get("tools")})
    # Counters had the name of a chip's, whoever counted.
    unit = next(figure.name for figure in FIGURES if figure.only == board["kind"])
    return {
        **content,
        "source": {"commit": None, "dirty": None},
        "board": {**board, **board_entry(board["name"])},
        "environment": {
            "digest": environment["digest"],
            "lock": None,
            "place": {
                **dict.fromkeys(("kind", "hostname", "frozen", "environment", "installed", "lease")),
                **place,
            },
        },
        "tests": [
            _not_run({**test, "node": test["id"], "id": id_of_test(test["id"])}) for test in content["tests"]
        ],
        "models": [_counted({"id": None, "image_sha256": None, **model}) for model in content["models"]],
        "statistics": [
            {
                "name": each["name"],
                "values": {unit if name == "cycles" else name: value for name, value in each["values"].items()},
            }
            for each in content.get("statistics", ())
        ],
        "trouble": content.get("trouble", ""),
    }


def _from_2(content: Mapping[str, Any]) -> dict[str, Any]:
    tests, models = map(_not_run, content["tests"]), map(_counted, content["models"])
    return _from_3({**content, "tests": [*tests], "models": [*models]})


def _from_3(content: Mapping[str, Any]) -> dict[str, Any]:
    environment = content["environment"]
    return {**content, "environment": {**environment, "place": {**environment["place"], "lease": None}}}


def _counted(model: Mapping[str, Any]) -> dict[str, Any]:
    units = (figure.name for figure in FIGURES if figure.only)
    return {**model, **{unit: model[unit] or None for unit in units if unit in model}}


def _not_run(test: Mapping[str, Any]) -> dict[str, Any]:
    """Call a test by what became of it: up to version 2, one that a run did not come to was skipped."""
    reason = test["message"].removeprefix("not run: ")
    if test["outcome"] != "skipped" or reason == test["message"]:
        return dict(test)
    return {**test, "outcome": "not run", "message": reason}


_UPGRADES: Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    SCHEMA_VERSION: dict,
}
