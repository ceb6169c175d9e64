# SPDX-License-Identifier: Apache-2.0
"""Jobs in a hosted CI: each starts with an empty disk, and has the results of a shared one."""

import http.server
import json
import re
import shutil
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.history.hosted import HostedCI, Job

_SERVICES = pytest.mark.parametrize("service", ["github", pytest.param("gitlab", marks=pytest.mark.nightly)])
_SUITE = "def test_a():\n    assert {}\n"


def _git(*words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
    return subprocess.check_output(command, text=True).strip()


def _commit(text: str) -> str:
    Path("hil/test_models.py").write_text(_SUITE.format(text))
    _git("add", "-A")
    _git("commit", "-qm", text)
    return _git("rev-parse", "HEAD")


def _runs(job: Job) -> set[str]:
    with sqlite3.connect(job.folder / "build/history.sqlite") as history:
        return {run_id for (run_id,) in history.execute("select run_id from run")}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as ``init`` writes it, with one board and one test, in git, as the current folder."""
    folder = tmp_path / "project"
    assert inv("init", str(folder)).returncode == 0
    monkeypatch.chdir(folder)
    Path("utvm.yaml").write_text("boards:\n  - {board: host}\n")
    _git("init", "-q", ".")
    return folder


def _change(test: str, last: str, first: str) -> str:
    return f"| test, models::test_{test} | PROCESS host | passed | failed | {last[:8]}..{first[:8]} |"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Webhook"

    def do_POST(self) -> None:
        """Receive a message, but refuse the first one."""
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        if (status := self.server.statuses.pop(0)) == 200:
            self.server.texts.append(text)
        self.send_response(status)
        self.end_headers()


class _Webhook(http.server.HTTPServer):
    def __init__(self) -> None:
        self.texts, self.statuses = list[str](), [403, 200, 200]
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.mark.slow
@_SERVICES
def test_history_is_that_of_a_single_disk(service: str, project: Path, tmp_path: Path) -> None:
    """A breaks, B breaks while A is red, A recovers: three messages. The webhook refuses the first, once."""
    with _Webhook() as webhook:
        run = getattr(HostedCI(tmp_path / "hosted", f"http://127.0.0.1:{webhook.server_port}/"), service)
        nights, commits = list[Job](), list[str]()
        # The third night comes two commits after the second.
        for a, b in ((1, "1 == 1"), (0, "1 == 1"), (0, "1 == 2"), (0, "1 == 3"), (1, "1 == 3")):
            commits.append(_commit(f"{a}\n\ndef test_b():\n    assert {b}"))
            if b != "1 == 2":
                nights.append(run(project, commits[-1]))
        webhook.shutdown()
    before, good, broken, bad, _ = commits
    assert [night.passed for night in nights] == [True, False, False, False]
    assert [_change("a", before, good) in night.summary for night in nights] == [False, True, True, False]
    assert [_change("b", good, bad) in night.summary for night in nights] == [False, False, True, True]
    assert "](https://x.org/" in nights[0].summary.splitlines()[0]
    subjects = [re.findall("^nightly run .*?: (.*)", text, re.M) for text in webhook.texts]
    assert subjects == [["1 broken, 1 still failing", "1 broken"], ["1 recovered, 1 still failing"]]
    first, second = (re.findall("^(broken|recovered): models::test_(.) on host", text, re.M) for text in webhook.texts)
    assert (first, second) == ([("broken", "b"), ("broken", "a")], [("recovered", "a")])
    for number, night in enumerate(nights):
        (report,) = night.folder.glob("build/reports/nightly/[0-9]*")
        shutil.copytree(report, f"build/one-disk/{number}")
    assert "4 runs added" in inv("history.import", "build/one-disk").stdout
    disk = inv("history.changes", "--json").stdout
    shutil.copy(nights[-1].folder / "build/history.sqlite", "build/history.sqlite")
    hosted = inv("history.changes", "--json").stdout
    assert json.loads(hosted) == json.loads(disk) and good in hosted
    bisected = inv("history.bisect", "models::test_b")
    assert f"first bad: {broken}\n" in bisected.stdout, bisected.stdout + bisected.stderr


@pytest.mark.nightly
@_SERVICES
def test_parallel_jobs_lose_no_run_and_requests_have_a_base(service: str, project: Path, tmp_path: Path) -> None:
    run = getattr(HostedCI(tmp_path / "hosted"), service)
    good, bad = _commit("1 == 1"), "2" * 40
    run(project, good, "push")
    _commit("1 == 2")
    pushed = list[Job]()
    both = [threading.Thread(target=lambda: pushed.append(run(project, bad, "push"))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(_runs(pushed[-1])) == 3
    # Based on the bad commit, a request changes nothing; based on the good one, it breaks the test.
    assert _change("a", good, bad) not in run(project, "5" * 40, "push", base=bad).summary
    assert _change("a", good, bad) in run(project, "6" * 40, "push", base=good).summary
