# SPDX-License-Identifier: Apache-2.0
"""Adds runs to the project's history; whatever becomes of that, a run's verdict is what it was."""

import datetime
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from utvm import history
from utvm.drivers import BoardIdentity
from utvm.environment import checkout
from utvm.environment.location import current_kind
from utvm.errors import ConfigError, UtvmError
from utvm.hil.project import history_file
from utvm.hil.reading import read
from utvm.hil.report import new_run_id
from utvm.hil.results import ModelResult, Verdict
from utvm.hil.schemas import NIGHTLY, check
from utvm.paths import project, work


def remember(root: Path, *reports: Mapping[str, Any]) -> str:
    """Add runs to the history of the project.

    Without a project, only runs are added whose reports are where they are unless somebody asks otherwise. In
    another place nothing is added: whoever sent the run there does it, once its report is home.

    Args:
        root: the folder of all reports.
        reports: what their ``report.json`` hold.

    Returns:
        why they could not be added, in one line; nothing where they were, or need not be.
    """
    if current_kind() != "host" or not (project() or root.is_relative_to(work() / "reports")):
        return ""
    try:
        path = history_file()
    except UtvmError as error:
        return f"the history was not written: {error.message}"
    return history.record(path, *reports)


def remember_new(root: Path, before: Collection[Path]) -> str:
    """Add the runs that another place has reported; returns as :func:`remember`.

    Args:
        before: the files of the reports that were there.
    """
    new = [path for path in root.glob("*/report.json") if path not in before and path.parent.name != "latest"]
    try:
        return remember(root, *map(read, sorted(new)))
    except ConfigError as error:
        return f"the history was not written: {error.message}"


def remember_model(board: BoardIdentity, model: ModelResult) -> str:
    """Add a model that was run on a board outside of a suite, in a project; returns as :func:`remember`."""
    if not project():
        return ""
    now, sources = datetime.datetime.now(datetime.timezone.utc), checkout.read_checkout()
    content = {
        "run_id": new_run_id(now),
        "started": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "source": {"commit": sources.commit, "dirty": sources.dirty},
        "board": {"id": board.name, "kind": board.kind, "serial": board.serial},
        "tests": (),
        "models": [
            {
                "name": model.name,
                "executor": model.executor,
                "outputs_sha256": model.outputs_sha256,
                **model.figures,
            }
        ],
        "verdict": Verdict.PASSED.value,
        "trouble": "",
    }
    return remember(work() / "reports", content)


def turns_of(night: Path) -> Iterator[dict[str, Any]]:
    """Go through the boards' turns of a nightly run, each as the report of a run.

    Args:
        night: the folder of its report, of the present version.
    """
    path = night / "nightly.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        check(content, NIGHTLY)
    except (OSError, ValueError, jsonschema.ValidationError) as error:
        raise ConfigError(f"{path}: is no report on a night, or one of an older version") from error
    for entry in content["boards"]:
        nothing = {"started": content["started"], "source": content["source"], "tests": (), "models": ()}
        own = read(night / entry["report"]) if entry["report"] else nothing
        yield {
            "run_id": f"{content['run_id']}/{entry['label']}",
            "board": {"id": entry["id"], "kind": entry["kind"], "serial": entry["serial"]},
            **own,
            "night": f"{content['run_id']}/{entry['label']}",
            "verdict": entry["verdict"],
            "trouble": entry["reason"],
        }


def reports_below(folder: Path) -> Iterator[dict[str, Any] | str]:
    """Go through all reports below a folder, the oldest run first; of one that cannot be read, say why."""
    for path in sorted(folder.rglob("report.json"), key=lambda path: path.parent.name):
        try:
            yield read(path)
        except ConfigError as error:
            yield error.message
    for path in sorted(folder.rglob("nightly.json")):
        try:
            yield from turns_of(path.parent)
        except ConfigError as error:
            yield error.message
