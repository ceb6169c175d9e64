# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a nightly run: one line per finished board, a table, and the verdict as the last line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from utvm.base.text.terminal import Terminal
from utvm.hil.display import PLAIN_WIDTH, VERDICTS
from utvm.hil.nightly.plan import Job
from utvm.hil.nightly.report import BoardResult, NightlyReport, last_line
from utvm.hil.results import Outcome, Verdict, first_line
from utvm.pages import format_duration

_STYLES = {Verdict.PASSED: "green", Verdict.FAILED: "bold red"}
_NO_VERDICT = "bold yellow"
_PROGRESS_INTERVAL = 9.0  # Seconds without output, if it is no terminal.


class NightlyDisplay:
    def __init__(self, stream: TextIO) -> None:
        self._console = Terminal(file=stream, width=None if stream.isatty() else PLAIN_WIDTH)
        self._total = 0
        self._ended = 0
        self._last_printed = 0.0
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def begin(self, run_id: str, queue: Sequence[Job], jobs: int) -> None:
        self._total = len(queue)
        self.print_line(f"nightly run {run_id}, {jobs} at once: {', '.join(job.label for job in queue)}")

    def finish(self, result: BoardResult) -> None:
        self._ended += 1
        width = len(str(self._total))
        style = _STYLES.get(result.verdict, _NO_VERDICT)
        reason = first_line(result.reason)
        self._console.print(
            f"\\[{self._ended:{width}}/{self._total}] [{style}]{result.verdict.value}[/] "
            f"{escape(f'{result.full_name}: {_counts(result)}')}, {format_duration(result.duration_s)}"
            + (f"; {escape(reason)}" if reason else ""),
            soft_wrap=True,
        )

    def show_progress(self, spent: float, running: Sequence[str]) -> None:
        if spent - self._last_printed < (1.0 if self._console.is_terminal else _PROGRESS_INTERVAL):
            return
        self._last_printed = spent
        left = ""
        if self._ended:
            left = f", about {format_duration(spent * (self._total - self._ended) / self._ended)} left"
        text = (
            f"{self._ended} of {self._total} boards after {format_duration(spent)}{left}; running: {', '.join(running)}"
        )
        if self._console.is_terminal:
            self._live.start()
            self._live.update(Text(text, style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            self.print_line(text)

    def close(self, report: NightlyReport, directory: Path, warning: str = "") -> None:
        self._live.stop()
        self._console.print(_boards(report))
        if warning:
            self.print_line(f"warning: {warning}")
        if report.advisories is not None:
            count = f"{len(report.advisories['findings'])} apply to locked packages"
            self.print_line(f"advisories: {report.advisories['problem'] or count}")
        self.print_line(f"report: {directory / 'index.html'}")
        self.print_line(last_line(report), VERDICTS[report.verdict][1])

    def print_line(self, text: str, style: str = "") -> None:
        self._console.print(escape(text), style=style, soft_wrap=True)


def _counts(result: BoardResult) -> str:
    return ", ".join(f"{result.count(kind)} {kind.value}" for kind in Outcome if result.count(kind)) or "no tests"


def _boards(report: NightlyReport) -> Table:
    table = Table("board", "verdict", title="Boards", title_justify="left")
    for outcome in Outcome:
        table.add_column(outcome.value, justify="right")
    table.add_column("took", justify="right")
    for result in report.boards:
        table.add_row(
            escape(f"{result.full_name} {result.board.serial}".rstrip()),
            f"[{_STYLES.get(result.verdict, _NO_VERDICT)}]{result.verdict.value}[/]",
            *(str(result.count(outcome)) for outcome in Outcome),
            format_duration(result.duration_s),
        )
    return table
