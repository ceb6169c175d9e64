# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: three widths, light and dark, keyboard only, and no network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pytest

from hil_tests.programs import handwritten
from tests.pages.browser import Browser
from tests.pages.samples import run_that_failed, write_all
from utvm import boards
from utvm.compiler import compile_model, load
from utvm.firmware import Firmware, build
from utvm.hil import report
from utvm.paths import ROOT
from utvm.session.evaluation import Row, draw

pytestmark = pytest.mark.slow

SCREENSHOTS = ROOT / "build" / "screenshots"
SCREENS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (768, "light"), (360, "dark"))
_MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"
_MOST = 300_000
CHECK = """
    return axe.run(document).then((result) => result.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html)));
"""
_OUTCOMES = """
    const visible = [...document.querySelectorAll(".tests li")].filter((item) => item.checkVisibility());
    return visible.map((item) => item.dataset.outcome);
"""
_STATUS = "return document.querySelector('[role=status]').textContent;"


@pytest.fixture(scope="module")
def firmware() -> Firmware:
    return build(boards.load("stm32f746"), [handwritten("twice", "  y[0] = 2 * x[0];\n  return 0;")])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, firmware: Firmware) -> Mapping[str, Path]:
    return write_all(tmp_path_factory.mktemp("pages"), firmware, compile_model(load(_MODEL)))


@pytest.mark.parametrize("name", ["failed", "passed", "nightly", "compile", "profile"])
def test_page_is_accessible_at_every_width(browser: Browser, pages: Mapping[str, Path], axe: str, name: str) -> None:
    assert pages[name].stat().st_size < _MOST
    browser.open(pages[name])
    browser.run(axe)
    for width, scheme in SCREENS:
        browser.set_screen(width, scheme)
        # Wider parts scroll in a frame of their own.
        assert browser.run("return document.documentElement.scrollWidth;") <= width
        browser.screenshot(SCREENSHOTS / f"{name}-{width}-{scheme}.png")
        # At the middle width, only the layout differs.
        if width != 768:
            assert browser.run(CHECK) == [], f"{width} px, {scheme}"


def test_names_are_not_broken_without_need(browser: Browser, pages: Mapping[str, Path]) -> None:
    many = """const parts = (cell) => [...cell.childNodes].filter((node) => node.textContent.trim());
        const cells = [...document.querySelectorAll(".cards td[data-label]")];
        return cells.filter((cell) => parts(cell).length > 1).map((cell) => cell.textContent);"""
    lines = """return [...document.querySelectorAll("td.name, .cards .id")].map((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map((line) => line.top)).size; });"""
    broken = """const found = [], range = document.createRange();
        for (const cell of document.querySelectorAll("td.name, td.word")) {
            const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            while (texts.nextNode()) {
                const words = texts.currentNode.textContent.split(/[\\s-]+/).filter((word) => word);
                range.selectNodeContents(texts.currentNode);
                const lines = new Set([...range.getClientRects()].map((line) => line.top)).size;
                if (words.length && lines > words.length) found.push(words.join(" "));
            }
        }
        return found;"""
    for name in ("failed", "nightly", "compile", "profile"):
        browser.open(pages[name])
        # In a card, each node would be a column of its own, a few letters wide.
        assert browser.run(many) == []
        browser.set_screen(1280, "light")
        assert set(browser.run(lines)) <= {1}, name
        # In a table, before the switch to cards, names of models, boards and kinds are not broken, either.
        browser.set_screen(768, "light")
        assert browser.run("return document.documentElement.scrollWidth;") <= 768
        assert browser.run(broken) == [], name


def test_comparison_page_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    picture = tmp_path / "compare.svg"
    models = ("digits.onnx", "/home/somebody/models/" + "größe" * 20 + "網絡" * 20 + ".onnx")
    boards_ = ("stm32f746", "/home/somebody/boards/" + "nucleo-" * 9)
    picture.write_text(draw([Row(m, b, 999_999_999_999, "instructions", 1, 2, 0.5) for m in models for b in boards_]))
    browser.open(picture)
    texts = """const all = [...document.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
        return all.map((box) => [box.left, box.right, box.top, box.bottom, box.height]);"""
    for width, least in ((360, 10), (1280, 13)):
        browser.set_screen(width, "light")
        boxes = browser.run(texts)
        assert all(left >= 0 and right <= min(width, 640) for left, right, *_ in boxes)
        assert least <= min(height for *_, height in boxes) and max(height for *_, height in boxes) < 30
        side = [(a, b) for a in boxes for b in boxes if a is not b and a[0] < b[1] and b[0] < a[1]]
        assert not [a for a, b in side if a[2] + 3 < b[3] and b[2] + 3 < a[3]], "one over another"


def test_checker_finds_errors(browser: Browser, pages: Mapping[str, Path], axe: str) -> None:
    browser.set_screen(1280, "light")
    browser.open(pages["passed"])
    browser.run("document.querySelector('.note, p').style.color = '#4a8f68'; document.title = '';")
    browser.run(axe)
    assert {violation.partition(":")[0] for violation in browser.run(CHECK)} == {"color-contrast", "document-title"}


def test_links_lead_to_files(browser: Browser, pages: Mapping[str, Path]) -> None:
    night = pages["nightly"].parent / "stm32f746" / "index.html"
    links: list[str] = []
    for page in (*pages.values(), night):
        browser.open(page)
        links = browser.run("return [...document.links].map((link) => link.getAttribute('href'));")
        assert links, page
        for link in links:
            path, _, part = link.partition("#:~:text=")
            assert link == "#main" or (page.parent / path).is_file(), f"{page}: {link}"
            assert not part or unquote(part) in (page.parent / path).read_text(), link
    assert any(link.endswith("openocd.log") for link in links)
    browser.open(pages["failed"])
    tests = browser.run("return [...document.querySelectorAll('.tests .name a')].map((link) => link.href);")
    assert len(set(tests)) == 100


def test_report_page_filters_tests_by_keyboard(browser: Browser, pages: Mapping[str, Path]) -> None:
    browser.set_screen(1280, "light")
    browser.open(pages["failed"])
    assert set(browser.run(_OUTCOMES)) == {"passed", "skipped", "failed", "infrastructure", "error"}
    assert browser.run(_STATUS) == "100 tests"
    browser.run("document.querySelector('[type=search]').focus();")
    browser.press(*"stride wrong")
    assert browser.run(_OUTCOMES) == ["failed"]
    assert browser.run(_STATUS) == "1 of 100 tests"
    browser.run("document.querySelector('[type=search]').select();")
    browser.press("\ue017")  # Delete
    assert browser.run(_STATUS) == "100 tests"
    # Tab goes on to the outcomes: passed, failed, skipped, error, infrastructure; then folding.
    browser.press("\ue004", "\ue004", " ")
    assert set(browser.run(_OUTCOMES)) == {"failed"}
    browser.press("\ue004", " ")
    assert set(browser.run(_OUTCOMES)) == {"failed", "skipped"}
    browser.press("\ue004", "\ue004", "\ue004", " ")
    assert browser.run(_OUTCOMES) == []
    assert browser.run("return document.activeElement.textContent;") == "Unfold all"
    browser.press(" ")
    assert set(browser.run(_OUTCOMES)) == {"failed", "skipped"}


def test_page_runs_only_its_own_script(browser: Browser, pages: Mapping[str, Path], tmp_path: Path) -> None:
    browser.open(pages["failed"])
    assert browser.run("return performance.getEntriesByType('resource').length;") == 0
    browser.screenshot(tmp_path / "picture.png")
    injected = "<script>document.title = 'taken over';</script><img alt='' src='picture.png'>"
    text = pages["failed"].read_text().replace("</main>", f"{injected}</main>")
    page = tmp_path / "page.html"
    for guarded in (True, False):
        page.write_text(text if guarded else text.replace("Content-Security-Policy", "nothing"))
        browser.open(page)
        assert browser.run("return document.title;").startswith("No verdict") == guarded
        assert (browser.run("return document.images[0].naturalWidth;") == 0) == guarded
        assert not browser.run("return document.querySelector('.controls').hidden;")


def test_large_page_is_shortened_with_a_note(tmp_path: Path, firmware: Firmware) -> None:
    page = report.write_report(run_that_failed(firmware, 5000), tmp_path) / "index.html"
    assert page.stat().st_size < _MOST
    text = page.read_text()
    assert "4,403 more tests passed, were skipped or were not run; report.json has them all." in text
    assert "characters omitted; see junit.xml" in text
    assert text.count('data-outcome="infrastructure"') == 1
