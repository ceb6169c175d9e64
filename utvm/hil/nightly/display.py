# SPDX-License-Identifier: Apache-2.0
"""What a nightly run prints: one line a board as it ends, a table, the verdict as the last line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.markup import escape
from rich.table import Table

from utvm.base.text.terminal import Terminal
from utvm.hil.display import PLAIN_WIDTH, VERDICTS
from utvm.hil.nightly.plan import Job
from utvm.hil.nightly.results import BoardResult, BoardVerdict, NightlyReport
from utvm.hil.results import Outcome, in_brief
from utvm.pages import format_duration

_STYLES = {BoardVerdict.PASSED: "green", BoardVerdict.FAILED: "bold red"}
_NO_VERDICT = "bold yellow"
_NOW_AND_THEN = 60.0  # Seconds without a word.


class NightlyDisplay:
    """Prints a nightly run as it goes.

    Args:
        stream: where to print.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = Terminal(file=stream, width=None if stream.isatty() else PLAIN_WIDTH)
        self._total = 0
        self._ended = 0
        self._said = 0.0

    def begin(self, run_id: str, turns: Sequence[Job], jobs: int) -> None:
        """Say which boards are to run."""
        self._total = len(turns)
        self._line(f"nightly run {run_id}, {jobs} at once: {', '.join(turn.label for turn in turns)}")

    def note(self, text: str) -> None:
        """Say something about a board that is at work."""
        self._line(text)

    def ended(self, result: BoardResult) -> None:
        """Say what came of a board."""
        self._ended += 1
        width = len(str(self._total))
        style = _STYLES.get(result.verdict, _NO_VERDICT)
        reason = in_brief(result.reason)
        self._console.print(
            f"\\[{self._ended:{width}}/{self._total}] [{style}]{result.verdict.value}[/] "
            f"{escape(f'{result.spoken}: {_counts(result)}')}, {format_duration(result.duration_s)}"
            + (f"; {escape(reason)}" if reason else ""),
            soft_wrap=True,
        )

    def look(self, spent: float, running: Sequence[str]) -> None:
        """Say now and then how far it is.

        Args:
            spent: seconds since it began.
            running: labels of the boards that are at work.
        """
        if spent - self._said < _NOW_AND_THEN:
            return
        self._said = spent
        left = ""
        if self._ended:
            left = f", about {format_duration(spent * (self._total - self._ended) / self._ended)} left"
        self._line(
            f"{self._ended} of {self._total} boards after {format_duration(spent)}{left}; "
            f"at work: {', '.join(running)}"
        )

    def close(self, report: NightlyReport, directory: Path, warning: str = "") -> None:
        """Print the tables, a warning if there is one, where the report is, and the verdict."""
        self._console.print(_boards(report))
        if warning:
            self._line(f"warning: {warning}")
        self._line(f"report: {directory / 'index.html'}")
        self._line(last_line(report), VERDICTS[report.verdict][1])

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(escape(text), style=style, soft_wrap=True)


def last_line(report: NightlyReport) -> str:
    """Return the verdict in one line: how many boards ended how, which are not well, and the exit code."""
    counts = [f"{report.count(verdict)} {verdict.value}" for verdict in BoardVerdict if report.count(verdict)]
    unwell = [f"{result.label} {result.verdict.value}" for result in report.boards if result.verdict.exit_code]
    return (
        f"{VERDICTS[report.verdict][0]}: {len(report.boards)} boards, {', '.join(counts)}"
        + (f" ({', '.join(unwell)})" if unwell else "")
        + f"; exit code {int(report.verdict.exit_code)}"
    )


def _counts(result: BoardResult) -> str:
    return ", ".join(f"{result.count(kind)} {kind.value}" for kind in Outcome if result.count(kind)) or "no tests"


def _boards(report: NightlyReport) -> Table:
    table = Table("board", "verdict", title="Boards", title_justify="left")
    for outcome in Outcome:
        table.add_column(outcome.value, justify="right")
    table.add_column("took", justify="right")
    for result in report.boards:
        table.add_row(
            escape(f"{result.spoken} {result.serial}".rstrip()),
            f"[{_STYLES.get(result.verdict, _NO_VERDICT)}]{result.verdict.value}[/]",
            *(str(result.count(outcome)) for outcome in Outcome),
            format_duration(result.duration_s),
        )
    return table
