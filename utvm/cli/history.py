# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/history.yaml``; ``git bisect`` works in a worktree, with one run of ``hil`` per step."""

import csv
import functools
import http.server
import json
import os
import re
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from utvm import paths, selection
from utvm.base.process import Subprocess, interpreter, run_tool
from utvm.base.process.peer import access_note, is_own
from utvm.base.storage.files import check_folder, check_writable, write_whole
from utvm.cli.output import OUT, show_progress
from utvm.errors import ConfigError, ProvisionError, did_you_mean
from utvm.hil import limits, project
from utvm.hil.report import prune_reports
from utvm.history import bisect_step, store, values
from utvm.history.changes import Change, changes, last_good, newest_night, trend
from utvm.history.changes import flaky as flaky_tests
from utvm.history.exports import EXPORTS, summary, write_pages
from utvm.history.store import OUTCOMES, add, format_time, merge, open_history, parse_time, prune
from utvm.pages import readable_time
from utvm.paths import ROOT, work
from utvm.selection import words

_MONTH = 30 * 86400
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TABLES = ("csv", "outcomes")
_REFRESH = 2.0  # Seconds between checks of the history while its pages are served.
_LEFT = re.compile(r"roughly (\d+) step")
_FIRST = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit$", re.MULTILINE)
_POLL_SECONDS = 0.2


def show_changes(since: str, flaky: bool, accept: bool) -> None:
    """Print changes, or flaky tests; with ``accept``, the newest figures become the baseline."""
    if flaky:
        _show_flaky(since)
        return
    with open_history(project.history_file()) as history:
        start = start_of(history, since)
        changed = changes(history, start)
    if accept:
        OUT.print(f"the baseline is written: {limits.accept_figures()}")
    OUT.results({"since": format_time(start), "changes": changed})
    if changed:
        OUT.table(
            ("what", "of", "board", "was", "is", "commits"),
            rows=[
                (
                    change.what,
                    change.name,
                    change.board,
                    *_values(change),
                    "..".join((commit or "none")[:10] for commit in (change.last, change.first)),
                )
                for change in changed
            ],
        )
    OUT.print(f"{len(changed)} changes since {readable_time(format_time(start))}")


def show_trend(what: str, board: str) -> None:
    """Print a model's figures run by run, or the one after a colon; of a test, when it last passed."""
    if "::" in what or what.startswith("test_"):
        _show_last_good(what, board)
        return
    name, _, figure = what.partition(":")
    with open_history(project.history_file()) as history:
        points = trend(history, name, figure, board)
    OUT.results({"points": points})
    before: dict[tuple[str, str, str], values.Value] = {}
    rows = []
    for point in points:
        series = (point.figure, point.executor, point.board)
        if before.get(series) != point.value:
            key = (point.figure, f"{point.model} ({point.executor})", point.board)
            when = ((point.commit or "none")[:10], readable_time(point.started))
            rows.append((*key, *when, values.format_value(point.figure, point.value)))
        before[series] = point.value
    OUT.table(("figure", "of", "board", "commit", "since", "value"), rows=rows)
    OUT.print(f"{len(points)} values; only changes are shown, --json has all")


def _show_flaky(since: str) -> None:
    with open_history(project.history_file()) as history:
        start = start_of(history, since) if since else int(time.time()) - _MONTH
        flaky = flaky_tests(history, start)
    OUT.results(
        {"since": format_time(start), "flaky": [{**asdict(test), "probability": test.probability} for test in flaky]}
    )
    if flaky:
        OUT.table(
            ("test", "board", "commit", ">passed", ">failed", ">flaky", "failed in"),
            rows=[
                (
                    test.test,
                    test.board,
                    test.commit[:10],
                    test.passed,
                    test.failed,
                    f"{100 * test.probability:.1f} %",
                    "\n".join(test.runs[-3:]),
                )
                for test in flaky
            ],
        )
    OUT.print(f"{len(flaky)} flaky since {readable_time(format_time(start))}")


def _show_last_good(test: str, board: str) -> None:
    with open_history(project.history_file()) as history:
        states = last_good(history, test, board)
    OUT.table(
        ("board", "now", "last passed", "commit", "first failed", "commit"),
        rows=[
            (
                state.board,
                state.now,
                readable_time(state.good_at or "never"),
                (state.good or "")[:10],
                readable_time(state.bad_at or ""),
                (state.bad or "")[:10],
            )
            for state in states
        ],
    )
    OUT.results({"boards": states})


def start_of(history: sqlite3.Connection, since: str) -> int:
    """Return the time of a date, or of the last run of a commit."""
    if not since:
        return newest_night(history)
    if _DATE.fullmatch(since):
        with ConfigError.on(ValueError, f"--since {since}: there is no such date"):
            return parse_time(f"{since}T00:00:00Z")
    if re.fullmatch(r"[0-9a-f]{4,64}", since):
        (last,) = history.execute("select max(started) from run where commit_ glob ?", (f"{since}*",)).fetchone()
        if last is not None:
            return int(last) + 1
    raise ConfigError(f"--since {since}: neither a date nor a tested commit", "give 2026-11-23, or a commit")


def _values(change: Change) -> tuple[str, str]:
    sure = "" if change.sure == 1 else f", {100 * change.sure:.1f} % sure"
    return change.old, f"{change.new}{sure}"


def import_runs(source: str) -> None:
    new, known, problems = 0, 0, list[str]()
    path = project.history_file()
    if not Path(source).exists():
        raise ConfigError(f"{source}: does not exist", "give a folder of reports, as build/reports, or a history")
    with open_history(path, create=True) as history:
        if Path(source).is_file():
            new, known = merge(history, Path(source))
        for report in limits.iter_reports(Path(source)):
            if isinstance(report, str):
                problems.append(report)
            elif add(history, report):
                new += 1
            else:
                known += 1
    for problem in problems:
        OUT.print(f"warning: left out: {problem}")
    OUT.print(f"{path}: {new} runs added, {known} already there, {len(problems)} reports left out")


def export_history(
    format: str,  # noqa: A002
    output: str,
    since: str,
    serve: str,
    *,
    anyone: bool,
) -> None:
    known = (*_TABLES, "pages", *EXPORTS)
    if format not in known:
        raise ConfigError(
            f"--format {format}: unknown format", did_you_mean(format, known, f"choose one of {', '.join(known)}")
        )
    if serve and format != "pages":
        raise ConfigError("--serve is for --format pages", "add --format pages")
    if since and format != "summary":
        raise ConfigError("--since is for --format summary", "history.changes --since prints changes as well")
    if format in EXPORTS:
        _write_night(format, output, since)
    elif format != "pages":
        _export_table(output, format)
    elif serve:
        _serve_folder(output, serve, anyone=anyone)
    else:
        _write_folder(output)


def prune_runs(keep: str) -> None:
    match = re.fullmatch(r"([1-9]\d{0,5})d(?:,(\d{1,9})([MG]))?", keep)
    if not match:
        raise ConfigError(f"--keep {keep}: not an age", "--keep 400d; with a size of all reports, --keep 400d,2G")
    size_limit = int(match[2]) << {"M": 20, "G": 30}[match[3]] if match[2] else sys.maxsize
    before, path = int(time.time()) - int(match[1]) * 86_400, project.history_file()
    with open_history(path) as history:
        runs = prune(history, before)
    reports, freed = prune_reports(work(), before, size_limit)
    OUT.print(f"{path}: {runs} runs removed, {path.stat().st_size / 1e6:.1f} MB remain")
    OUT.print(f"{reports} reports removed with their logs, {freed / 1e6:.1f} MB")


def _export_table(output: str, table: str) -> None:
    if not output:
        raise ConfigError("--output is missing", "--output history.csv")
    check_writable(output)
    outcomes = "case outcome " + " ".join(f"when {i} then '{name}'" for i, name in enumerate(OUTCOMES)) + " end"
    temporary = Path(f"{output}.{os.getpid()}")
    with open_history(project.history_file()) as history:
        cursor = history.execute(store.QUERIES[table].format(outcome=outcomes))
        try:
            rows = _write_csv(cursor, temporary)
            temporary.replace(output)
        finally:
            temporary.unlink(missing_ok=True)
    OUT.print(f"wrote {output}, {rows} rows")


def _write_csv(cursor: sqlite3.Cursor, path: Path) -> int:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(column[0] for column in cursor.description)
        rows = 0
        for row in cursor:
            writer.writerow(row)
            rows += 1
    return rows


def _write_folder(output: str) -> Path:
    folder = Path(output).resolve() if output else work() / "history"
    check_folder(folder)
    with open_history(project.history_file()) as history:
        count = write_pages(history, folder, work() / "reports")
    OUT.print(f"{folder / 'index.html'}: {count} pages")
    return folder


def _serve_folder(output: str, port: str, *, anyone: bool) -> None:
    """Serve the pages until Ctrl-C; write them again when the history has changed."""
    seen, folder = history_times(), _write_folder(output)
    handler = functools.partial(QuietHandler, directory=str(folder.parent))
    with ConfigError.on((OSError, OverflowError, ValueError), f"--serve {port}:", "give a free TCP port; 0 takes one"):
        server = (http.server.ThreadingHTTPServer if anyone else OwnerOnlyServer)(("127.0.0.1", int(port)), handler)
    with server:
        OUT.print(f"http://127.0.0.1:{server.server_port}/{folder.name}/ until Ctrl-C; {access_note(anyone=anyone)}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while True:
            time.sleep(_REFRESH)
            if (now := history_times()) != seen:
                seen, folder = now, _write_folder(output)


def history_times() -> list[int]:
    """Times of the history's file and its write-ahead log, which has the newest runs (sqlite.org/wal.html)."""
    path = project.history_file()
    return [file.stat().st_mtime_ns for file in (path, path.with_name(f"{path.name}-wal")) if file.is_file()]


class OwnerOnlyServer(http.server.ThreadingHTTPServer):
    def verify_request(self, request: object, client_address: object) -> bool:
        """Refuse other users."""
        return isinstance(request, socket.socket) and is_own(request)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *words: object) -> None:  # noqa: A002  the name in the base class
        """Log no requests."""


def _write_night(format: str, output: str, since: str) -> None:  # noqa: A002
    check_writable(output)
    with open_history(project.history_file()) as history:
        if format == "summary":
            text = summary(history, start_of(history, since), limits.describe_limits())
        else:
            text = EXPORTS[format](history)
    if output:
        write_whole(Path(output), text)
    else:
        sys.stdout.write(text)


@dataclass(frozen=True)
class Question:
    """The test or figure to check at each commit; ``value`` is the good figure, in JSON."""

    board: str
    good: str
    bad: str
    test: str = ""
    model: str = ""
    figure: str = ""
    value: str = "null"


def bisect(what: str, board: str, where: selection.FarmChoice) -> None:
    where.require_farm()
    question = _of_figure(what, board) if ":" in what.replace("::", "") else _of_test(what, board)
    if question.good == question.bad:
        raise ConfigError(
            f"{what} was good and bad at commit {question.good[:12]}", "history.changes --flaky lists such tests"
        )
    OUT.print(f"good: {question.good[:12]}, bad: {question.bad[:12]}, on {question.board}")
    OUT.print("hil runs on one commit between them after the other; a run halves those that are left")
    output = _bisect(question, where)
    match = _FIRST.search(output)
    if match is None:
        raise ConfigError(
            f"git names no first bad commit of {what}: {' '.join(output.split())[-300:]}",
            "commits without a verdict are skipped; is the good one an ancestor of the bad one?",
        )
    OUT.print(f"first bad: {match[1]}")
    OUT.print(_git(paths.project() or ROOT, "log", "-1", "--format=%an, %as: %s", match[1]).strip())


def _of_test(what: str, board: str) -> Question:
    with store.open_history(project.history_file()) as history:
        states = [state for state in last_good(history, what, board) if state.good and state.bad]
    if not states:
        raise ConfigError(f"{what} never passed before it failed", "history.trend shows when it last passed")
    state = states[0]
    return Question(state.name, state.good or "", state.bad or "", test=state.test)


def _of_figure(what: str, board: str) -> Question:
    model, _, figure = what.partition(":")
    with store.open_history(project.history_file()) as history:
        figure = values.figure_of(history, model, figure)
        points = [
            change
            for change in changes(history, 0)
            if change.what == figure
            and change.name.partition(" (")[0] == model
            and (not board or change.board.split()[1] == board)
            and change.last
            and change.first
        ]
        if not points:
            raise ConfigError(f"{what} has not changed between two commits", "history.trend shows its values")
        change = points[0]
        board = change.board.split()[1]
        value = history.execute(store.QUERIES["value_at_commit"], (model, figure, board, change.last)).fetchone()[0]
    key = (board, change.last or "", change.first or "")
    return Question(*key, model=model, figure=figure, value=json.dumps(value))


def _bisect(question: Question, where: selection.FarmChoice) -> str:
    root = paths.project() or ROOT
    with tempfile.TemporaryDirectory(prefix="utvm-bisect-") as folder:
        tree, reports = Path(folder) / "tree", Path(folder) / "reports"
        _git(root, "worktree", "add", "--detach", str(tree), question.bad)
        try:
            begun = _git(tree, "bisect", "start", question.bad, question.good)
            # A project's commits are tested with this utvm, commits of utvm with themselves.
            sources = str(ROOT if paths.project() else tree)
            goal = (question.test or question.model, question.figure, question.value)
            step = interpreter.python_command(bisect_step.__file__, str(reports), *goal)
            hil = interpreter.python_command(
                "utvm", "hil", "--board", question.board, f"--report-dir={reports}", root=sources
            )
            hil += words(where)
            if question.test:
                suite, _, test = question.test.partition("::")
                hil += ["--suite", suite, "-k", test.partition("[")[0]]
            log = Path(folder) / "log.txt"
            run = ["git", "bisect", "run", *step, *hil]
            with (
                show_progress("") as show,
                Subprocess("git bisect", run, log=log, error=ProvisionError, cwd=tree) as job,
            ):
                while job.running:
                    # Git estimates the runs that follow each.
                    if left := _LEFT.findall(begun + log.read_text(encoding="utf-8", errors="replace")):
                        show(f"runs of hil: {len(left) - 1} of {len(left) + int(left[-1])}")
                    time.sleep(_POLL_SECONDS)
            return log.read_text(encoding="utf-8", errors="replace")
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *words: str) -> str:
    return run_tool(["git", *words], cwd=folder, error=ConfigError, hint="are the commits in this repository?")
