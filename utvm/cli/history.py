# SPDX-License-Identifier: Apache-2.0
"""The commands ``history.*``: the project's runs, and changes between them."""

from invoke.context import Context

from utvm import cli, selection

_SINCE = "date (2026-11-23) or tested commit (default: twelve hours before the newest run)"
_ACCEPT = "write the newest figures to utvm-baseline.yaml, as the baseline of the limits in utvm.yaml"
_FLAKY = "list tests that passed and failed at one commit, on boards of one name and kind (default: last 30 days)"


@cli.task(
    runs="history_show:show_changes",
    example="history.changes --since 2026-11-01",
    page="docs/history.md",
    json=True,
    help={"since": _SINCE, "flaky": _FLAKY, "accept": _ACCEPT},
)
def changes(_: Context, since: str = "", flaky: bool = False, accept: bool = False) -> None:
    """List figures and tests that changed, with the commit and the confidence; or flaky tests."""


@cli.task(
    runs="history_show:show_trend",
    example="history.trend digits:instructions --board stm32f746",
    page="docs/history.md",
    json=True,
    positional=["what"],
    help={"what": "a figure, MODEL or MODEL:FIGURE; or a test, SUITE::TEST", "board": "only boards of this name"},
)
def trend(_: Context, what: str, board: str = "") -> None:
    """Print a model's figures run by run; of a test, when it last passed and since when it fails."""


@cli.task(
    runs="history_files:import_runs",
    name="import",
    example="history.import build/reports",
    page="docs/history.md",
    positional=["source"],
    help={"source": "folder that is searched for reports of runs and nightly runs, or another history file"},
)
def import_(_: Context, source: str) -> None:
    """Add runs to the history from their reports or another history; runs already in it stay unchanged."""


@cli.task(
    runs="history_files:export_history",
    example="history.export --format pages --output public",
    page="docs/history.md",
    help={
        "format": "csv (default: figures), outcomes (CSV of every test), pages (HTML), badge (SVG), "
        "metrics (Prometheus), summary (Markdown), annotations (GitHub) or quality (GitLab)",
        "output": "file to write, or folder of the pages (default: build/history for pages, else standard output)",
        "since": "for summary: list changes since this date or commit (default: since the last night)",
        "serve": "with pages: serve them on this TCP port of 127.0.0.1 until Ctrl-C; 0 takes a free port",
        "anyone": "with --serve: answer all users of this computer (default: only you)",
    },
)
def export(
    _: Context,
    format: str = "csv",  # noqa: A002
    output: str = "",
    since: str = "",
    serve: str = "",
    anyone: bool = False,
) -> None:
    """Export the history as a table or as pages, or the last night as a badge, metrics or a CI report."""


@cli.task(
    runs="history_files:prune_runs",
    example="history.prune --keep 400d,2G",
    page="docs/history.md",
    help={"keep": "maximum age in days, 400d; with a maximum size of all reports, 400d,2G"},
)
def prune(_: Context, keep: str) -> None:
    """Remove old runs from the history, and old reports with their logs; the newest report stays."""


@cli.task(
    runs="history_bisect:bisect",
    example="history.bisect digits:instructions --board stm32f746",
    page="docs/history.md",
    positional=["what"],
    help={"what": "test SUITE::TEST, or figure MODEL:FIGURE", "board": "board name"},
)
def bisect(_: Context, what: str, where: selection.FarmChoice, board: str = "") -> None:
    """Find the commit that broke a test or changed a figure, with git bisect."""
