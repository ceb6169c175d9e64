# SPDX-License-Identifier: Apache-2.0
"""``history.import`` and ``history.export``."""

import csv
import functools
import http.server
import os
import re
import socket
import sqlite3
import sys
import threading
import time
from pathlib import Path

from utvm.base.process.peer import access_note, is_own
from utvm.base.storage.files import check_folder, check_writable, write_whole
from utvm.cli.history_show import start_of
from utvm.cli.output import OUT
from utvm.errors import ConfigError, did_you_mean
from utvm.hil import limits, project
from utvm.hil.report import prune_reports
from utvm.history.exports import EXPORTS, summary, write_pages
from utvm.history.store import OUTCOMES, add, merge, open_history, prune
from utvm.paths import work

_RUN = (
    "run_id, strftime('%Y-%m-%dT%H:%M:%SZ', run.started, 'unixepoch') started, commit_ \"commit\","
    " dirty, name board, kind, serial, verdict, place, holder"
)
_TABLES = {
    "csv": f"select {_RUN}, model, executor, figure, value from figure join run using (run)"
    " join series using (series) join board on board.board = run.board order by run, series",
    "outcomes": f"select {_RUN}, id test, ({{}}) outcome, duration_ms, message from run join outcome using (run)"
    " join test using (test) join board using (board) order by run, test",
}
_REFRESH = 2.0  # Seconds between checks of the history while its pages are served.


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
        cursor = history.execute(_TABLES[table].format(outcomes))
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
    try:
        server = (http.server.ThreadingHTTPServer if anyone else OwnerOnlyServer)(("127.0.0.1", int(port)), handler)
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigError(f"--serve {port}: {error}", "give a free TCP port; 0 takes one") from error
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
