# SPDX-License-Identifier: Apache-2.0
"""``history.bisect``: git bisect in its own worktree, with one run of ``hil`` per step."""

import json
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from utvm.base.process import service
from utvm.base.process.interpreter import python_command
from utvm.base.process.run import run_tool
from utvm.cli.output import OUT
from utvm.errors import ConfigError, ProvisionError
from utvm.hil.project import history_file
from utvm.history import bisect_step, store
from utvm.history.changes import changes, last_good
from utvm.history.values import figure_of
from utvm.options import words
from utvm.paths import ROOT, project
from utvm.selection import FarmChoice

_FIRST = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit$", re.MULTILINE)
_POLL_SECONDS = 0.2


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


def bisect(what: str, board: str, where: FarmChoice) -> None:
    where.require_farm()
    question = _of_figure(what, board) if ":" in what.replace("::", "") else _of_test(what, board)
    if question.good == question.bad:
        raise ConfigError(
            f"{what} was good and bad at commit {question.good[:12]}", "history.changes --flaky lists such tests"
        )
    OUT.print(f"good: {question.good[:12]}, bad: {question.bad[:12]}, on {question.board}")
    output = _bisect(question, where)
    match = _FIRST.search(output)
    if match is None:
        raise ConfigError(
            f"git names no first bad commit of {what}: {' '.join(output.split())[-300:]}",
            "commits without a verdict are skipped; is the good one an ancestor of the bad one?",
        )
    OUT.print(f"first bad: {match[1]}")
    OUT.print(_git(project() or ROOT, "log", "-1", "--format=%an, %as: %s", match[1]).strip())


def _of_test(what: str, board: str) -> Question:
    with store.open_history(history_file()) as history:
        states = [state for state in last_good(history, what, board) if state.good and state.bad]
    if not states:
        raise ConfigError(f"{what} never passed before it failed", "history.trend shows when it last passed")
    state = states[0]
    return Question(state.name, state.good or "", state.bad or "", test=state.test)


def _of_figure(what: str, board: str) -> Question:
    model, _, figure = what.partition(":")
    with store.open_history(history_file()) as history:
        figure = figure_of(history, model, figure)
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
        value = history.execute(
            "select value from figure join series using (series) join board using (board) join run using (run)"
            " where model = ? and figure = ? and name = ? and commit_ = ? order by figure.started desc limit 1",
            (model, figure, change.board.split()[1], change.last),
        ).fetchone()[0]
    key = (change.board.split()[1], change.last or "", change.first or "")
    return Question(*key, model=model, figure=figure, value=json.dumps(value))


def _bisect(question: Question, where: FarmChoice) -> str:
    root = project() or ROOT
    with tempfile.TemporaryDirectory(prefix="utvm-bisect-") as folder:
        tree, reports = Path(folder) / "tree", Path(folder) / "reports"
        _git(root, "worktree", "add", "--detach", str(tree), question.bad)
        try:
            _git(tree, "bisect", "start", question.bad, question.good)
            # A project's commits are tested with this utvm, commits of utvm with themselves.
            sources = str(ROOT if project() else tree)
            goal = (question.test or question.model, question.figure, question.value)
            step = python_command(bisect_step.__file__, str(reports), *goal)
            hil = python_command("utvm", "hil", "--board", question.board, f"--report-dir={reports}", root=sources)
            hil += words(where)
            if question.test:
                suite, _, test = question.test.partition("::")
                hil += ["--suite", suite, "-k", test.partition("[")[0]]
            log = Path(folder) / "log.txt"
            run = ["git", "bisect", "run", *step, *hil]
            with service.Subprocess("git bisect", run, log=log, error=ProvisionError, cwd=tree) as job:
                while job.running:
                    time.sleep(_POLL_SECONDS)
            return log.read_text(encoding="utf-8", errors="replace")
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *words: str) -> str:
    return run_tool(["git", *words], cwd=folder, error=ConfigError, hint="are the commits in this repository?")
