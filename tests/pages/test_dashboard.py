# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser, while a nightly run goes on beside it."""

import contextlib
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.browser import Browser
from tests.pages.test_pages import CHECK, SCREENS, SCREENSHOTS
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_SUITE = """
import time
from pathlib import Path

def test_first(): pass

def test_that_waits():
    while not Path({!r}).exists():
        time.sleep(0.05)

def test_that_fails():
    assert "<b>1</b>" == "2"
"""
_TEXT = "return document.getElementById(arguments[0]).innerText;"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "hil").mkdir(parents=True)
    (folder / "utvm.yaml").write_text("boards:\n- board: host\n  suites: [gate]\n")
    (folder / "hil" / "test_gate.py").write_text(_SUITE.format(str(tmp_path / "go on")))
    return folder


@contextlib.contextmanager
def _running(command: str, project: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([ROOT / "inv", command], cwd=project, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def address(project: Path) -> Iterator[str]:
    with _running("dashboard", project) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found
        yield found[0]


def _await(browser: Browser, section: str, text: str) -> str:
    """Return a section's text once it contains a text."""
    deadline = time.monotonic() + 40
    while text not in (content := browser.run(_TEXT, section)):
        assert time.monotonic() < deadline, f"{text!r} is not in {content!r}"
        time.sleep(0.1)
    return content


def test_page_follows_a_nightly_run(browser: Browser, axe: str, project: Path, address: str, tmp_path: Path) -> None:
    browser.set_screen(1280, "light")
    browser.go(address)
    assert "No nightly run yet" in _await(browser, "night", "starts one")
    with _running("nightly", project) as night:
        text = _await(browser, "runs", "test_that_waits")
        assert re.search(r"running PROCESS host\s+1 of 3 tests, 1 passed;.*\s+hil/test_gate.py::test_that_waits", text)
        assert re.search(r"gate::test_first\s+✓", _await(browser, "night", "gate::test_first"))
        assert re.search(r"verdict\s+…", browser.run(_TEXT, "night"))
        (tmp_path / "go on").touch()
        _await(browser, "night", "gate::test_that_fails")
        assert night.wait(120) == 1
    # Without loading the page again.
    assert re.search(r"gate::test_that_fails\s+F", _await(browser, "night", "failed"))
    assert "3 of 3 tests, 2 passed, 1 failed" in _await(browser, "runs", "failed PROCESS host")
    assert "host" in _await(browser, "history", "PROCESS host")
    browser.run(axe)
    for width, scheme in SCREENS:
        browser.set_screen(width, scheme)
        assert browser.run("return document.documentElement.scrollWidth;") <= width
        browser.screenshot(SCREENSHOTS / f"dashboard-{width}-{scheme}.png")
        assert browser.run(CHECK) == []
    # A night's own reports are shown, other files are not.
    (report,) = browser.run("return [...document.querySelectorAll('#night p a')].map((link) => link.href);")
    with urllib.request.urlopen(report) as answer:
        assert "<h1>" in answer.read().decode()
    assert _status(f"{address}history.sqlite") == _status(f"{address}reports/%2e%2e/history.sqlite") == 404
    assert _status(address, "POST") == 501


def test_web_site_with_a_name_for_this_address_is_refused(address: str) -> None:
    assert _status(address) == 200
    for path in ("", "events", "reports/"):
        assert _status(f"{address}{path}", host="dashboard.example") == 403


def _status(address: str, method: str = "GET", host: str = "") -> int:
    request = urllib.request.Request(address, method=method, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
