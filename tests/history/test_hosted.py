# SPDX-License-Identifier: Apache-2.0
"""Jobs in a hosted CI: each begins with an empty disk, and answers as if all shared one."""

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
    """A project as ``init`` writes it, with one board and one test, in git; it is the current folder."""
    folder = tmp_path / "project"
    assert inv("init", str(folder)).returncode == 0
    monkeypatch.chdir(folder)
    Path("utvm.yaml").write_text("boards:\n  - {board: host}\n")
    _git("init", "-q", ".")
    return folder


def _change(last: str, first: str) -> str:
    return f"| test, models::test_a | PROCESS host | passed | failed | {last[:8]}..{first[:8]} |"


@pytest.mark.slow
@_SERVICES
def test_three_nights_are_remembered_as_on_one_disk(service: str, project: Path, tmp_path: Path) -> None:
    run = getattr(HostedCI(tmp_path / "hosted"), service)
    nights, commits = list[Job](), list[str]()
    # The second night comes two commits after the first.
    for text in ("1 == 1", "1 == 2", "1 == 3", "1 == 4"):
        commits.append(_commit(text))
        if text != "1 == 2":
            nights.append(run(project, commits[-1]))
    good, broken, bad, _ = commits
    assert [night.passed for night in nights] == [True, False, False]
    assert [_change(good, bad) in night.summary for night in nights] == [False, True, True]
    assert "](https://x.org/" in nights[0].summary.splitlines()[0]
    for number, night in enumerate(nights):
        (report,) = night.folder.glob("build/reports/nightly/[0-9]*")
        shutil.copytree(report, f"build/one-disk/{number}")
    assert "3 runs added" in inv("history.import", "build/one-disk").stdout
    disk = inv("history.changes", "--json").stdout
    shutil.copy(nights[-1].folder / "build/history.sqlite", "build/history.sqlite")
    hosted = inv("history.changes", "--json").stdout
    assert json.loads(hosted) == json.loads(disk) and good in hosted
    bisected = inv("history.bisect", "models::test_a")
    assert f"first bad: {broken}\n" in bisected.stdout, bisected.stdout + bisected.stderr


@pytest.mark.slow
@_SERVICES
def test_news_of_three_nights_are_three_messages(service: str, project: Path, tmp_path: Path) -> None:
    """A breaks, B breaks while A is red, A recovers. What the webhook refuses is in the next message."""
    answers, texts = [403, 200, 200], list[str]()

    class Webhook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
            if (answer := answers.pop(0)) == 200:
                texts.append(text)
            self.send_response(answer)
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Webhook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run = getattr(HostedCI(tmp_path / "hosted", f"http://127.0.0.1:{server.server_port}/"), service)
        for a, b in ((1, 1), (0, 1), (0, 0), (0, 0), (1, 0)):
            job = run(project, _commit(f"{a}\n\ndef test_b():\n    assert {b}"))
            assert job.passed == (a == b == 1)
        server.shutdown()
    subjects = [[line for line in text.splitlines() if line.startswith("nightly run ")] for text in texts]
    found = [[line.partition(": ")[2] for line in lines] for lines in subjects]
    assert found == [["1 broken, 1 still failing", "1 broken"], ["1 recovered, 1 still failing"]]
    names = [re.findall("^(?:broken|recovered): .*", text, re.M) for text in texts]
    assert names == [
        ["broken: models::test_b on host", "broken: models::test_a on host"],
        ["recovered: models::test_a on host"],
    ]


@pytest.mark.nightly
@_SERVICES
def test_jobs_that_begin_at_once_lose_no_run_and_a_request_has_its_base(
    service: str, project: Path, tmp_path: Path
) -> None:
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
    # On top of the bad commit a request changes nothing; on top of the good one it breaks the test.
    assert _change(good, bad) not in run(project, "5" * 40, "push", base=bad).summary
    assert _change(good, bad) in run(project, "6" * 40, "push", base=good).summary
