# SPDX-License-Identifier: Apache-2.0
"""The history's pages in a real browser at three widths: small, accessible, with valid links, and served."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.cli.running import inv
from tests.history.reports import BAD, GOOD, project, report_of, write
from tests.pages.browser import Browser
from tests.pages.conftest import axe, browser
from utvm.history import record
from utvm.paths import ROOT

__all__ = ["axe", "browser", "project"]

_SCREENS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (768, "light"), (360, "dark"))
_CHECK = """
    return axe.run(document).then((result) => result.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html)));
"""


def _month() -> list[dict[str, Any]]:
    """Three boards for twenty-five nights: a commit makes a model slower, a test breaks, a board is lost."""
    nights = []
    for day in range(1, 26):
        commit = GOOD if day < 25 else BAD
        for board in ("stm32f746", "mps2-an500", "a-board-of-ours-with-a-name-that-is-long"):
            tests = {"test_a": "passed", "test_b[parameter-1]": "failed" if day == 25 else "passed", "test_c": "passed"}
            if day in (7, 8) and board == "mps2-an500":
                tests["test_c"] = "infrastructure"
            if day == 9:
                tests["test_c"] = "failed"
            figures = {"digits": {"instructions": 879_703 + 12 * (day == 25)}, "other": {"instructions": 5 + day // 9}}
            nights.append(report_of(day, commit, tests=tests, models=figures, board=board))
    return nights


@pytest.fixture
def pages(project: Path) -> Path:
    nights = _month()
    for night in nights[-3:]:
        night["environment"]["place"]["lease"] = {"place": "desk-1", "holder": "desk/somebody"}
    assert record(project / "build" / "history.sqlite", *nights) == ""
    write(project, *nights[24:27], *nights[-3:])
    for page in ("20261125T010000.000Z-", "20261109T010000.000Z-"):
        for folder in (project / "build" / "reports").glob(f"{page}*"):
            (folder / "index.html").write_text("<!doctype html><title>report</title>")
    completed = inv("history.export", "--format", "pages")
    assert completed.returncode == 0, completed.stderr
    assert re.fullmatch(rf"{project}/build/history/index.html: 8 pages\n", completed.stdout)
    return project / "build" / "history"


@pytest.mark.slow
def test_pages_are_accessible_and_their_links_work(browser: Browser, axe: str, pages: Path) -> None:
    reports = 0
    for page in ("index.html", "board-1.html", "model-1.html", "test-2.html"):
        browser.open(pages / page)
        browser.run(axe)
        for width, scheme in _SCREENS:
            browser.set_screen(width, scheme)
            assert browser.run("return document.documentElement.scrollWidth;") <= width
            browser.screenshot(ROOT / "build" / "screenshots" / f"history-{page}-{width}.png")
            if width != 768:
                assert browser.run(_CHECK) == [], f"{page}, {width} px, {scheme}"
        assert browser.run("return performance.getEntriesByType('resource').length;") == 0
        for link in browser.run("return [...document.links].map((link) => link.getAttribute('href'));"):
            assert link == "#main" or (pages / link).is_file(), f"{page}: {link}"
            reports += "reports" in link
    assert reports > 1


_DRAG = """
    const place = document.querySelector(".u-over"), box = place.getBoundingClientRect();
    const mouse = (kind, part, clicks) => place.dispatchEvent(new MouseEvent(kind, {
        clientX: box.left + part * box.width, clientY: box.top + 20, bubbles: true, detail: clicks,
        movementX: 1, movementY: 1, view: window }));
    const shown = () => charts[0].chart.scales.x.max - charts[0].chart.scales.x.min;
    const all = shown();
    mouse("mousemove", 0.25); mouse("mousedown", 0.25); mouse("mousemove", 0.75); mouse("mouseup", 0.75);
    return new Promise((done) => setTimeout(() => {
        const some = shown();
        mouse("dblclick", 0.5, 2);
        setTimeout(() => done([some / all, shown() / all]), 100);
    }, 100));
"""


@pytest.mark.slow
def test_chart_is_zoomed_in_and_out(browser: Browser, pages: Path) -> None:
    browser.open(pages / "model-1.html")
    browser.set_screen(1280, "light")
    some, again = browser.run(_DRAG)
    assert (round(some, 2), again) == (0.5, 1)
    label = browser.run("return document.querySelector('.chart').getAttribute('aria-label');")
    assert label == "instructions on 3 boards, between 879,703 and 879,715"


def test_pages_show_changes_uptime_and_failures(pages: Path) -> None:
    index = (pages / "index.html").read_text()
    slowest = index.partition("<h2>Slowest tests</h2>")[2].partition("</table>")[0]
    assert slowest.count("<tr") == 1 + 9 and slowest.count(">0.25 s</td>") == 18
    assert slowest.count('<path class="course" d="M0 3.0H') == 9
    assert 'header class="failed"' in index
    assert index.count("+12 (+0.00 %)") == 3
    assert re.search(r"it::test_b\[parameter-1\].*?chip failed.*?3 of 3", index, re.DOTALL)
    assert re.search(r"it::test_c</a>.*?chip passed.*?chip flaky.*?0 of 3", index, re.DOTALL)
    assert index.count('class="infrastructure"/>') == 2
    assert "92.00 %" in index  # 23 of 25 runs
    board = next(path.read_text() for path in pages.glob("board-*") if "<h1>VIRTUAL mps2-an500" in path.read_text())
    assert board.count("<path class=") == 10
    failure = board.partition("<h2>Last failure</h2>")[2].partition("</section>")[0]
    assert "it::test_b[parameter-1], 2026-11-25 01:00:00 UTC" in failure and "it said 3</pre>" in failure
    assert board.count("desk-1: desk/somebody") == 1 and 'data-label="lease">none<' in board
    assert 'aria-label="instructions of other (host-driven): 2 steps"' in board
    flaky = next(path.read_text() for path in pages.glob("test-*") if "<h1>it::test_c" in path.read_text())
    sentence = re.search("flaky on VIRTUAL stm32f746 with a probability of (.*?) %.*? ([0-9]+) times", flaky, re.DOTALL)
    # Even odds: 1/25 for an unknown failure rate; 24 * (0.01 * 0.99 ** 23 + 0.99 * 0.01 ** 23) / 2 for a stable test.
    assert sentence and sentence.groups() == ("29.58", "23") and flaky.count(">20261109T010000.000Z-") == 3
    test = next(path.read_text() for path in pages.glob("test-*") if "test_b" in path.read_text())
    assert test.count("last passed: 2026-11-24 01:00:00 UTC") == 3
    assert "it said 3" in test
    assert max(path.stat().st_size for path in pages.iterdir()) < 300_000


@pytest.mark.slow
def test_pages_are_served_to_this_computer(pages: Path, project: Path) -> None:
    command = [sys.executable, "-m", "utvm", "history.export", "--format", "pages", "--serve", "0"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            url = server.stdout.readline().partition(" ")[0]
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url, timeout=20) as response:
                assert response.read() == (pages / "index.html").read_bytes()
            # A run that ends later is shown.
            assert record(project / "build" / "history.sqlite", report_of(26, board="newcomer")) == ""
            server.stdout.readline()
            with urllib.request.urlopen(url, timeout=20) as response:
                assert b"VIRTUAL newcomer" in response.read()
        finally:
            server.terminate()
            assert server.wait(20) == 3


def test_empty_history_and_invalid_folder_are_refused(project: Path) -> None:
    assert "no history yet" in inv("history.export", "--format", "pages").stderr
    write(project, report_of(1))
    assert inv("history.import", "build").returncode == 0
    (project / "file").touch()
    assert inv("history.export", "--format", "pages", "--output", "file").returncode == 2
