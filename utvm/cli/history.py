# SPDX-License-Identifier: Apache-2.0
"""The commands ``history.*``: what the project's runs were, and what has changed since when."""

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import JsonChoice
from utvm.selection import FarmChoice

_SINCE = "a date (2026-11-23), or a commit that was run (default: twelve hours before the newest run)"
_ACCEPT = "take the newest figures for the limits of utvm.yaml: write them into utvm-baseline.yaml"
_MONTH = "a date (2026-11-23), or a commit that was run (default: thirty days ago)"


@task(
    example="history.changes --since 2026-11-01", page="docs/history.md", help={"since": _SINCE, "accept": _ACCEPT}
)
def changes(_: Context, json: JsonChoice, since: str = "", accept: bool = False) -> None:
    """Print which figures and tests are not what they were: from which commit on, and how sure that is."""
    from utvm.cli.history_show import show_changes

    show_changes(json, since, accept)


@task(
    example="history.trend digits:instructions --board stm32f746",
    page="docs/history.md",
    positional=["model"],
    help={"model": "a model's name, or MODEL:FIGURE", "board": "only on boards of this name"},
)
def trend(_: Context, json: JsonChoice, model: str, board: str = "") -> None:
    """Print how the figures of a model have gone, run by run."""
    from utvm.cli.history_show import show_trend

    show_trend(json, model, board)


@task(example="history.flaky --since 2026-11-01", page="docs/history.md", help={"since": _MONTH})
def flaky(_: Context, json: JsonChoice, since: str = "") -> None:
    """Print the tests that passed and failed at one commit, on boards of one name and kind."""
    from utvm.cli.history_show import show_flaky

    show_flaky(json, since)


@task(
    name="last-good",
    example="history.last-good flash::test_the_image_is_in_flash",
    page="docs/history.md",
    positional=["test"],
    help={"test": "its name in reports: SUITE::TEST, or TEST alone", "board": "only on boards of this name"},
)
def last_good(_: Context, json: JsonChoice, test: str, board: str = "") -> None:
    """Print, for each board, when a test was last good, and from when on it has failed."""
    from utvm.cli.history_show import show_last_good

    show_last_good(json, test, board)


@task(
    name="import",
    example="history.import build/reports",
    page="docs/history.md",
    positional=["folder"],
    help={"folder": "reports of runs and of nights are looked for in it, and in its folders"},
)
def import_(_: Context, folder: str) -> None:
    """Add runs to the history by their reports; those that are in it stay as they are."""
    from utvm.cli.history_files import import_reports

    import_reports(folder)


@task(
    example="history.export history.csv",
    page="docs/history.md",
    positional=["output"],
    help={
        "output": "the file to write; what ends in .parquet is Parquet",
        "table": "figures (default), or outcomes: every test of every run",
    },
)
def export(_: Context, output: str, table: str = "figures") -> None:
    """Write the history as CSV or Parquet: a row for each figure or outcome, with its run, board and commit."""
    from utvm.cli.history_files import export_table

    export_table(output, table)


@task(
    example="history.page --output public",
    page="docs/history.md",
    help={"output": "the folder that is written (default: build/history)"},
)
def page(_: Context, output: str = "") -> None:
    """Write the history as a folder of pages for any web server: what changed, boards, tests that failed."""
    from utvm.cli.history_files import write_folder

    write_folder(output)


@task(
    example="history.serve --port 8000",
    page="docs/history.md",
    help={"port": "at which it answers, to this computer alone (default: one that is free)"},
)
def serve(_: Context, port: int = 0) -> None:
    """Write the pages, and show them to a browser on this computer until Ctrl-C."""
    from utvm.cli.history_files import serve_folder

    serve_folder(port)


@task(
    name="write",
    example="history.write badge --output badge.svg",
    page="docs/history.md",
    positional=["what"],
    help={
        "what": "badge, metrics (Prometheus), summary (Markdown), annotations (GitHub) or quality (GitLab)",
        "output": "the file to write (default: print it)",
    },
)
def write_(_: Context, what: str, output: str = "") -> None:
    """Write what others read of the last night: a badge, metrics, a summary, annotations, quality."""
    from utvm.cli.history_files import write_door

    write_door(what, output)


@task(
    example="history.bisect digits:instructions --board stm32f746",
    page="docs/history.md",
    positional=["what"],
    help={"what": "a test, SUITE::TEST, or a figure, MODEL:FIGURE", "board": "on the board of this name"},
)
def bisect(_: Context, what: str, where: FarmChoice, board: str = "") -> None:
    """Have git find the commit since which a test fails or a figure is another, by running it at each."""
    from utvm.cli.history_bisect import bisect as find

    find(what, board, where)
