# SPDX-License-Identifier: Apache-2.0
"""The history of a project's runs, and relative limits of its models.

The history never changes a run's verdict. A limit is a percentage above the baseline, a reviewed file.
"""

import contextlib
import datetime
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from pydantic import Field

from utvm import drivers, history
from utvm.base.storage import config, files
from utvm.errors import ConfigError, UtvmError
from utvm.hil import report, schemas
from utvm.hil.project import history_file, load_project
from utvm.hil.results import CaseResult, ModelResult, Outcome, Verdict
from utvm.history import changes, store
from utvm.history.values import LIMITED, format_value
from utvm.paths import PROJECT_FILE, project, work
from utvm.provenance.location import current_kind, read_checkout

BASELINE = "utvm-baseline.yaml"
Figures = dict[str, dict[str, dict[str, int]]]
"""Name of a board -> model -> limit name -> value."""


class Baseline(config.Record):
    """Contents of the baseline file."""

    baseline: Figures = Field({})


def check_limits(board: drivers.BoardIdentity, models: Sequence[ModelResult], commit: str | None) -> list[CaseResult]:
    try:
        content, folder = load_project(), project()
        if content is None or folder is None:
            return []
        known = _read_baseline(folder / BASELINE).get(board.full_name, {})
        limits = {name: model.relative() for name, model in content.models.items()}
        return list(_limit_cases(board, models, limits, known, commit))
    except ConfigError as error:
        return [CaseResult(f"{PROJECT_FILE}::limits", Outcome.ERROR, 0.0, str(error))]


def _read_baseline(path: Path) -> Figures:
    return config.load_yaml(path, Baseline, "history.changes --accept writes it").baseline if path.exists() else {}


def _limit_cases(
    board: drivers.BoardIdentity,
    models: Sequence[ModelResult],
    limits: Mapping[str, Mapping[str, str]],
    known: Mapping[str, Mapping[str, int]],
    commit: str | None,
) -> Iterator[CaseResult]:
    for model in dict.fromkeys(model.name for model in models):
        for name, limit in limits.get(model, {}).items():
            figure = LIMITED[name]
            figures = [result.figures.get(figure) for result in models if result.name == model]
            values = [value for value in figures if value is not None]
            if not values:
                continue
            node = f"{PROJECT_FILE}::{model}:{name}"
            baseline_value = known.get(model, {}).get(name)
            if baseline_value is None:
                reason = f"{BASELINE} has no {name} of {model} on {board.full_name}; history.changes --accept adds it"
                yield CaseResult(node, Outcome.SKIPPED, 0.0, reason)
                continue
            most = _maximum(baseline_value, limit)
            if max(values) <= most:
                yield CaseResult(node, Outcome.PASSED, 0.0)
                continue
            excess = f"{name} is {max(values):,} on {board.full_name}, and the limit is {most:,.0f}"
            commits = _crossing_commit(board, model, figure, most, commit)
            yield CaseResult(node, Outcome.FAILED, 0.0, f"{excess}, {limit} of {baseline_value:,}{commits}")


def _maximum(baseline_value: int, limit: str) -> float:
    return baseline_value * (1 + float(limit.strip("+% ")) / 100)


def describe_limits() -> Callable[[str, str, str, str], str]:
    """Return a function of a board's name and kind, a model and a figure: the figure's limit as text, or empty."""
    content, folder = load_project(), project()
    baseline = _read_baseline(folder / BASELINE) if folder else {}

    def describe(name: str, kind: str, model: str, figure: str) -> str:
        limits = content.models.get(model) if content else None
        if figure == "accuracy":
            minimum = limits.accuracy if limits else None
            return "" if minimum is None else f"at least {format_value(figure, minimum)}"
        key = next((key for key, limited in LIMITED.items() if limited == figure), "")
        most = getattr(limits, key, None)
        if isinstance(most, str):
            baseline_value = baseline.get(drivers.BoardIdentity(name, kind).full_name, {}).get(model, {}).get(key)
            most = None if baseline_value is None else _maximum(baseline_value, most)
        return "" if most is None else f"at most {most:,.0f}"

    return describe


def _crossing_commit(board: drivers.BoardIdentity, model: str, figure: str, most: float, commit: str | None) -> str:
    with contextlib.suppress(UtvmError), store.open_history(history_file()) as history:
        last, first = changes.limit_crossing(history, board.name, board.kind, model, figure, most)
        if last:
            return f"; last kept by commit {last[:12]}, crossed by {(first or commit or 'none')[:12]}"
    return f"; with commit {commit[:12]}" if commit else ""


def accept_figures() -> Path:
    """Write the newest figures of all models with relative limits to the baseline; return its path."""
    content, folder = load_project(), project()
    if content is None or folder is None:
        raise ConfigError(
            "--accept is for a project, and there is none here", "docs/own-project.md explains how to create one"
        )
    path = folder / BASELINE
    figures = _read_baseline(path)
    with store.open_history(history_file()) as history:
        rows = history.execute(store.QUERIES["newest_figures"]).fetchall()
    for row in rows:
        limits = content.models.get(row["model"])
        for name in limits.relative() if limits else ():
            if LIMITED[name] == row["figure"]:
                board = drivers.BoardIdentity(row["name"], row["kind"]).full_name
                figures.setdefault(board, {}).setdefault(row["model"], {})[name] = row["value"]
    text = "# Baseline of the relative limits in utvm.yaml. history.changes --accept writes it; review it.\n"
    files.write_whole(path, text + yaml.safe_dump({"baseline": figures}))
    return path


def remember(root: Path, *reports: Mapping[str, Any]) -> str:
    """Add runs to the history of the project.

    Without a project, only runs in the default report folder are added. In another location nothing is added: the
    host that sent the run adds it when the report arrives.

    Returns:
        a one-line error; empty if the runs were added, or are not to be added.
    """
    if not _is_remembered(root):
        return ""
    try:
        path = history_file()
    except UtvmError as error:
        return f"the history was not written: {error.message}"
    return history.record(path, *reports)


def _is_remembered(root: Path) -> bool:
    return current_kind() == "host" and (project() is not None or root.is_relative_to(work() / "reports"))


def earlier_boards(root: Path, before: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield boards of earlier nightly runs from the history, if it records runs of this folder."""
    with contextlib.suppress(UtvmError):
        if _is_remembered(root):
            with store.open_history(history_file()) as history:
                yield from changes.night_boards(history, store.parse_time(before))


def remember_new(root: Path, before: Collection[Path]) -> str:
    """Add the runs that another location has reported; returns as :func:`remember`."""
    new = [path for path in root.glob("*/report.json") if path not in before and path.parent.name != "latest"]
    try:
        return remember(root, *map(schemas.read_report, sorted(new)))
    except ConfigError as error:
        return f"the history was not written: {error.message}"


def remember_model(board: drivers.BoardIdentity, model: ModelResult) -> str:
    """Add a model run outside a suite, if in a project; returns as :func:`remember`."""
    if not project():
        return ""
    now, sources = datetime.datetime.now(datetime.timezone.utc), read_checkout()
    content = {
        "run_id": report.new_run_id(now),
        "started": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "source": {"commit": sources.commit, "dirty": sources.dirty},
        "board": {"id": board.name, "kind": board.kind, "serial": board.serial},
        "tests": (),
        "models": [
            {"name": model.name, "executor": model.executor, "outputs_sha256": model.outputs_sha256, **model.figures}
        ],
        "verdict": Verdict.PASSED.value,
        "trouble": "",
    }
    return remember(work() / "reports", content)


def iter_board_runs(night: Path) -> Iterator[dict[str, Any]]:
    """Yield each board's job of a nightly run as a run report."""
    path = night / "nightly.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        schemas.check_schema(content, schemas.NIGHTLY)
    except (OSError, ValueError, jsonschema.ValidationError) as error:
        raise ConfigError(f"{path}: is not a nightly report, or has an older version") from error
    for entry in content["boards"]:
        empty = {"started": content["started"], "source": content["source"], "tests": (), "models": ()}
        content_of_board = schemas.read_report(night / entry["report"]) if entry["report"] else empty
        yield {
            "run_id": f"{content['run_id']}/{entry['label']}",
            "board": {"id": entry["id"], "kind": entry["kind"], "serial": entry["serial"]},
            **content_of_board,
            "night": f"{content['run_id']}/{entry['label']}",
            "verdict": entry["verdict"],
            "trouble": entry["reason"],
        }


def iter_reports(folder: Path) -> Iterator[dict[str, Any] | str]:
    """Yield all reports below a folder, oldest run first, and an error message for each unreadable one."""
    for path in sorted(folder.rglob("report.json"), key=lambda path: path.parent.name):
        try:
            yield schemas.read_report(path)
        except ConfigError as error:
            yield error.message
    for path in sorted(folder.rglob("nightly.json")):
        try:
            yield from iter_board_runs(path.parent)
        except ConfigError as error:
            yield error.message
