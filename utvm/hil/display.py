# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a run: board, progress, tables, verdict. Without a terminal, plain lines."""

import datetime
import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from rich import progress
from rich.control import Control
from rich.markup import escape
from rich.segment import ControlType
from rich.table import Column, Table

from utvm.base.text.terminal import Terminal
from utvm.hil.figures import present_figures
from utvm.hil.results import CaseResult, Outcome, RunReport, Verdict, first_line
from utvm.provenance.location import host_path

_STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.SKIPPED: "dim",
    Outcome.NOT_RUN: "yellow",
    Outcome.ERROR: "bold magenta",
    Outcome.INFRASTRUCTURE: "bold yellow",
}
VERDICTS = {
    Verdict.PASSED: ("PASSED", "bold green"),
    Verdict.FAILED: ("FAILED", "bold red"),
    Verdict.ERROR: ("NO VERDICT (error in the suite)", "bold magenta"),
    Verdict.INFRASTRUCTURE: ("NO VERDICT (infrastructure trouble)", "bold yellow"),
    Verdict.INTERRUPTED: ("NO VERDICT (interrupted)", "bold yellow"),
}
# Width without a terminal: enough for a test's name and its time.
PLAIN_WIDTH = 120


class _TimeLeft(progress.ProgressColumn):
    """The time left at the speed so far; rich's own takes skipped tests of the last seconds for all others."""

    def render(self, task: progress.Task) -> str:
        if not task.completed or task.elapsed is None or not task.total:
            return "-:--:--"
        return str(datetime.timedelta(seconds=int(task.elapsed * (task.total / task.completed - 1))))


class Display:
    def __init__(self, stream: TextIO) -> None:
        width = None if stream.isatty() else PLAIN_WIDTH
        self._console = Terminal(file=stream, width=width)
        self._progress: progress.Progress | None = None
        self._task: progress.TaskID | None = None
        self._total = 0
        self._done = 0

    def line(self, text: str, style: str = "") -> None:
        self._console.print(escape(text), style=style, soft_wrap=True)

    def begin(self, total: int) -> None:
        self._total = total
        if self._console.is_terminal:
            self._progress = progress.Progress(
                progress.BarColumn(bar_width=10),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                _TimeLeft(),
                # On a narrow terminal, the name is cut first.
                progress.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
                console=self._console,
                expand=True,
                transient=True,
                # This stream is ours; sys.stdout belongs to pytest's capture.
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._progress.start()
            self._task = self._progress.add_task("", total=total)

    def running(self, test: str) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=test.removeprefix("hil_tests/"))

    def show_result(self, case: CaseResult) -> None:
        self._done += 1
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._done)
            if case.outcome is Outcome.PASSED:
                return
        width = len(str(self._total))
        style = _STYLES[case.outcome]
        note = f"{case.duration_s:.2f} s"
        if case.outcome is Outcome.SKIPPED:
            note = escape(case.message.partition("\n")[0])
        self._console.print(
            f"\\[{self._done:{width}}/{self._total}] [{style}]{case.outcome.value}[/] "
            f"{escape(case.node)}  [dim]{note}[/]",
            soft_wrap=True,
        )
        if case.outcome.has_trouble:
            # A traceback ends with the message; an error of ours has no traceback.
            if case.message.partition("\n")[0] not in case.details:
                self.line(_indent(case.message))
            self.line(_indent(case.details))

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def close(self, report: RunReport, directory: Path | None) -> None:
        """Print the tables, the report's path, and the verdict as the last line."""
        self.end()
        if report.cases:
            self._console.print(_suites(report))
        if report.models:
            self._console.print(_models(report))
        if report.trouble:
            self.line(report.trouble, "yellow")
        if directory is not None:
            self.line(f"report: {host_path(directory / 'index.html')}")
        # In one write, so that an echoed ^C does not split the line.
        with self._console:
            if self._console.is_terminal:
                self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            self.line(last_line(report), VERDICTS[report.verdict][1])


def last_line(report: RunReport) -> str:
    counts = [f"{report.count(outcome)} {outcome.value}" for outcome in Outcome if report.count(outcome)]
    summary = ", ".join(counts) or "no tests"
    if report.trouble:
        summary += "; " + first_line(report.trouble)
    return (
        f"{VERDICTS[report.verdict][0]} on a {report.board.full_name}: {summary}; "
        f"exit code {int(report.verdict.exit_code)}"
    )


def standard_output() -> TextIO:
    """Return a stream on standard output that pytest's capture does not redirect.

    The progress bar's thread draws to it while a test's output is captured.
    """
    try:
        descriptor = os.dup(sys.stdout.fileno())
    except (io.UnsupportedOperation, OSError):
        return sys.stdout
    raw = io.BufferedWriter(_IgnoresWriteErrors(descriptor, "w"))
    return io.TextIOWrapper(raw, encoding=sys.stdout.encoding, errors="replace", line_buffering=True)


class _IgnoresWriteErrors(io.FileIO):
    """A file that ignores write errors: the run goes on when its terminal is closed."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _suites(report: RunReport) -> Table:
    suites: dict[str, list[CaseResult]] = {}
    for case in report.cases:
        suites.setdefault(case.suite, []).append(case)
    table = Table("suite", title=f"Suites on a {report.board.full_name}", title_justify="left")
    # A terminal may be too narrow for all of them.
    columns = [outcome for outcome in Outcome if report.count(outcome) or outcome in (Outcome.PASSED, Outcome.FAILED)]
    for outcome in columns:
        table.add_column(outcome.value, justify="right")
    table.add_column("time", justify="right")
    for suite, cases in suites.items():
        counts = [sum(case.outcome is outcome for case in cases) for outcome in columns]
        cells = [
            f"[{_STYLES[outcome]}]{count}[/]" if count else "[dim]0[/]"
            for outcome, count in zip(columns, counts, strict=True)
        ]
        table.add_row(escape(suite), *cells, f"{sum(case.duration_s for case in cases):.1f} s")
    return table


def _models(report: RunReport) -> Table:
    table = Table("model", "executor", title=f"Models on a {report.board.full_name}", title_justify="left")
    figures = present_figures(model.figures for model in report.models)
    for figure in figures:
        table.add_column(figure.title, justify="right")
    for model in report.models:
        cells = (figure.format(model.figures.get(figure.name)) for figure in figures)
        table.add_row(escape(model.name), escape(model.executor), *cells)
    return table


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
