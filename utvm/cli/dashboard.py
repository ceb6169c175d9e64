# SPDX-License-Identifier: Apache-2.0
"""``dashboard``: a page of this user's runs as they go, the last night, the farm and the history.

The server only reads. It sends a section of the page, as HTML, whenever it changes (server-sent events).
"""

import contextlib
import functools
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from utvm import errors, pages
from utvm.base.process.peer import access_note
from utvm.cli.farm import state_of
from utvm.cli.history import OwnerOnlyServer, QuietHandler, history_times
from utvm.cli.output import OUT
from utvm.farm.client import FarmClient, coordinator_address
from utvm.hil import progress, project
from utvm.history import exports, store
from utvm.history.changes import changes, newest_night
from utvm.paths import work

_PORT = 20409
_INTERVAL = 0.5  # Seconds between two looks at the runs.
_FARM_INTERVAL, _FARM_PAUSE = 1.0, 10.0  # Seconds between two questions to a coordinator; after an error.
_SILENCE = 5.0  # Seconds without a change until a comment shows whether the browser still listens.
_HARMLESS = {"passed", "skipped"}  # Outcomes; tests with others come first.
_RUNS, _SHOWN, _DAYS, _CHANGES = 200, 20, 14, 20


class _Dashboard(OwnerOnlyServer):
    """The server; ``sections`` is the HTML by name."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), functools.partial(_Handler, directory=str(work())))
        self.names = {f"{host}:{self.server_port}" for host in ("127.0.0.1", "localhost")}
        self.sections: dict[str, str] = {}
        self.changed = threading.Condition()
        self._values: dict[str, object] = {}

    def update(self, values: Mapping[str, object]) -> None:
        """Render the sections whose values have changed."""
        template = pages.pages_of("utvm.cli").get_template("dashboard.html.j2")
        new = {key: value for key, value in values.items() if key not in self.sections or value != self._values[key]}
        self._values |= new
        texts = {
            name: "".join(template.blocks[name](template.new_context({name: new[name], "state_of": state_of})))
            for name in new
        }
        with self.changed:
            self.sections |= texts
            self.changed.notify_all()

    @functools.cached_property
    def page(self) -> bytes:
        script = (resources.files("utvm.cli") / "templates" / "dashboard.js").read_text(encoding="utf-8")
        template = pages.pages_of("utvm.cli").get_template("dashboard.html.j2")
        return template.render(**pages.script_values(script)).encode()


class _Handler(QuietHandler):
    server: _Dashboard

    def do_GET(self) -> None:  # noqa: N802  the name in the base class
        if self.path == "/events" and self._is_addressed():
            with contextlib.suppress(OSError):  # The browser has gone.
                self._stream()
        else:
            super().do_GET()

    def send_head(self) -> BinaryIO | None:
        """Answer with the page, or with a file of reports and logs."""
        shown = (work() / "reports", work() / "logs")
        if not self._is_addressed():
            self.send_error(403, "not the name of this server")
        elif self.path == "/":
            self._begin("text/html; charset=utf-8")
            self.wfile.write(self.server.page if self.command == "GET" else b"")
        elif any(Path(self.translate_path(self.path)).is_relative_to(folder) for folder in shown):
            return super().send_head()
        else:
            self.send_error(404)
        return None

    def _is_addressed(self) -> bool:
        """False for a web site whose name leads to this address: it must not read the page."""
        return self.headers.get("Host") in self.server.names

    def _begin(self, content: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _stream(self) -> None:
        self._begin("text/event-stream")
        sent: dict[str, str] = {}
        while True:
            with self.server.changed:
                self.server.changed.wait_for(lambda: self.server.sections != sent, _SILENCE)  # noqa: B023
                new = {name: text for name, text in self.server.sections.items() if sent.get(name) != text}
            for name, text in new.items():
                lines = "".join(f"data: {line}\n" for line in text.splitlines())
                self.wfile.write(f"event: {name}\n{lines}\n".encode(errors="replace"))
            if not new:
                self.wfile.write(b":\n\n")
            sent |= new


def show() -> None:
    """Serve the page until Ctrl-C, at the usual port, or at a free one if that is in use."""
    for port in (_PORT, 0):
        with contextlib.suppress(OSError):
            server = _Dashboard(port)
            break
    else:
        raise errors.ConfigError("there is no free TCP port", "close a program that listens")
    farm: dict[str, Mapping[str, Any]] = {}
    with contextlib.suppress(errors.UtvmError):
        for address in coordinator_address().split(","):
            threading.Thread(target=_follow, args=(address, farm), daemon=True).start()
    with server:
        OUT.print(f"http://127.0.0.1:{server.server_port}/ until Ctrl-C; {access_note(anyone=False)}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while True:
            runs = [_describe(*run) for run in progress.newest_runs(_RUNS) if "tests" in run[1]]
            values = {"runs": sorted(runs, key=lambda run: not run["running"])[:_SHOWN], "night": _last_night()}
            server.update({**values, "farm": sorted(farm.items()), "history": _read_history(tuple(history_times()))})
            time.sleep(_INTERVAL)


def _describe(folder: Path, state: Mapping[str, Any], is_running: bool) -> dict[str, Any]:
    report = Path(state["report"])
    # The server shows reports of this checkout or project only.
    is_shown = report.is_relative_to(work()) and report.is_file()
    return {
        **state,
        "running": is_running,
        "verdict": state.get("verdict") or ("running" if is_running else "cut off"),
        "counts": Counter(state.get("tests", {}).values()),
        "logs": str(folder),
        "href": "/" + quote(str(report.relative_to(work()))) if is_shown else "",
    }


def _last_night() -> dict[str, Any] | None:
    """Return the newest nightly run, with the outcomes of each test on its boards in their order."""
    for folder in sorted((work() / "reports" / "nightly" / "logs").glob("*Z-*"), reverse=True):
        with contextlib.suppress(OSError, ValueError):
            night = _describe(folder, *progress.read(folder))
            outcomes: dict[str, dict[str, str]] = {}
            # A job's health check and earlier tries come before its suites; their folders sort by time.
            for path in sorted(folder.glob(f"*/**/{progress.FILE}"), key=lambda path: path.parent.name):
                label = path.relative_to(folder).parts[0]
                for test, outcome in progress.read(path.parent)[0].get("tests", {}).items():
                    outcomes.setdefault(test, {})[label] = outcome
            rows = sorted(outcomes.items(), key=lambda row: (_HARMLESS.issuperset(row[1].values()), row[0]))
            return {**night, "outcomes": dict(rows)}
    return None


def _follow(address: str, farm: dict[str, Mapping[str, Any]]) -> None:
    """Ask a coordinator for its places and queue, again and again."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
            with FarmClient(address, work() / "logs" / "labgrid.log", lambda _: None, install=False) as client:
                while True:
                    farm[address] = client.call("list")
                    time.sleep(_FARM_INTERVAL)
        except OSError:
            farm[address] = {"problem": "no coordinator answers; farm.up starts one"}
        except errors.UtvmError as error:
            farm[address] = {"problem": str(error)}
        time.sleep(_FARM_PAUSE)


@functools.lru_cache(1)
def _read_history(_times: tuple[int, ...]) -> dict[str, Any] | None:
    """Return the boards with their last days, and the newest changes; None without a history."""
    try:
        with store.open_history(project.history_file()) as history:
            (newest,) = history.execute("select max(started) from run").fetchone()
            if newest is None:
                return None
            boards = [(board, board.days[-_DAYS:]) for board in exports.board_rows(history, newest)]
            return {"boards": boards, "changes": changes(history, newest_night(history))[:_CHANGES]}
    except errors.ConfigError:
        return None
