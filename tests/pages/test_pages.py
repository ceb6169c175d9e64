# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: three widths, light and dark, keyboard only, and no network."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

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
from utvm.session.profile import layers, profile_of, render_models

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


@pytest.mark.parametrize("name", ["failed", "passed", "nightly", "compile", "profile", "compared", "tuned"])
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


_CHOSEN = "return document.querySelectorAll(arguments[0] + ' [data-key].chosen').length;"
_CLICK = "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', {bubbles: true}));"


def test_pictures_and_table_of_a_model_are_linked(browser: Browser, pages: Mapping[str, Path]) -> None:
    browser.set_screen(1280, "light")
    browser.open(pages["profile"])
    parts = (".graph", "svg.plan", ".costs", ".flame", "tbody")
    assert [browser.run(_CHOSEN, part) for part in parts] == [0] * 5
    for part in parts:
        browser.go("about:blank")
        browser.open(pages["profile"])
        browser.run(_CLICK, f"{part} [data-key=conv2] {'td:last-child' if part == 'tbody' else 'rect'}")
        assert browser.run("return location.hash;") == "#layer=conv2"
        # The plan has the layer's output and its workspace.
        assert [browser.run(_CHOSEN, part) for part in parts] == [1, 2, 1, 1, 1], part
        status = browser.run("return document.querySelector('.choice').textContent;")
        assert status.startswith("2 conv2: conv2d_int8, plain C: two pixels in a word, 2,400 instructions, 20.0 %")
    # The address alone, as somebody sends it.
    address = f"{pages['compared'].as_uri()}#layer=pool1"
    browser.go(address)
    assert [browser.run(_CHOSEN, part) for part in (".graph", "tbody")] == [3, 3]
    assert browser.run("return [...document.querySelectorAll('.view')].filter((v) => v.checkVisibility()).length;") == 2


def test_flame_graph_zooms_and_layers_are_sorted_and_found(browser: Browser, pages: Mapping[str, Path]) -> None:
    browser.set_screen(1280, "light")
    browser.open(pages["profile"])
    width = "return Number(document.querySelector('.flame [data-key=pool1] rect')?.getAttribute('width'));"
    # Counts are 1000, 1700, 2400, ...: 1,700 of 12,000.
    assert browser.run(width) == pytest.approx(900 * 1700 / 12_000)
    browser.run(_CLICK, ".flame [data-key=pool1] rect")
    assert browser.run(width) == 900
    browser.run("document.querySelector('[data-whole]').click();")
    assert browser.run(width) == pytest.approx(900 * 1700 / 12_000)
    steps = """const rows = [...document.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility());
        return rows.map((row) => row.cells[0].textContent);"""
    assert browser.run(steps) == ["0", "1", "2", "3", "4"]
    browser.run("[...document.querySelectorAll('th')].find((head) => head.textContent === 'instructions').click();")
    assert browser.run(steps) == ["4", "3", "2", "1", "0"]
    browser.run("document.querySelector('[type=search]').focus();")
    browser.press(*"max_pool")
    assert browser.run(steps) == ["3", "1"]


def test_trace_adds_up_to_the_profile(browser: Browser, pages: Mapping[str, Path], tmp_path: Path) -> None:
    browser.open(pages["profile"])
    browser.download_into(tmp_path)
    browser.run("document.querySelector('[data-trace]').click();")
    trace = tmp_path / "digits_int8.trace.json"
    deadline = time.monotonic() + 30
    while not trace.is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    content = json.loads(trace.read_text())
    slices = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["dur"]) for event in slices][:2] == [("conv1", 1000), ("pool1", 1700)]
    assert slices[-1]["ts"] + slices[-1]["dur"] == sum(event["dur"] for event in slices) == 12_000
    assert content["otherData"]["scale"] == "1 us stands for 1 of: instructions"


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
            assert link.startswith(("#main", "#layer=", "blob:")) or (page.parent / path).is_file(), f"{page}: {link}"
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


def test_page_of_many_layers_is_small(browser: Browser, pages: Mapping[str, Path], tmp_path: Path) -> None:
    library = compile_model(load(_MODEL))
    names = [f"a_network/stage_{number // 10}/block_{number % 10}/relu/output" for number in range(300)]
    calls = [replace(library.calls[n % 5], reads=(names[n - 1],), writes=(name,)) for n, name in enumerate(names)]
    blocks = [replace(library.blocks[n % 5], tensor=name, first=n, last=n + 1) for n, name in enumerate(names)]
    deep = replace(library, calls=tuple(calls), blocks=tuple(blocks))
    view = layers(profile_of(deep, "a board", "instructions", range(1000, 1300)), deep)
    sizes = []
    for models in (1, 2, 3):
        page = tmp_path / f"{models}.html"
        page.write_text(render_models("deep", [view] * models))
        sizes.append(page.stat().st_size)
    assert max(sizes) < 400_000, sizes
    assert "all but the 44 most costly of 300 steps" in page.read_text()
    browser.set_screen(1280, "light")
    browser.open(tmp_path / "1.html")
    assert browser.run("return document.querySelectorAll('tbody tr').length;") == 300
    browser.run(_CLICK, ".plan [data-key='a_network/stage_20/block_5/relu/output']")
    assert browser.run("return location.hash;") == "#layer=" + quote(names[205], safe="")
    status = browser.run("return document.querySelector('.choice').textContent;")
    assert status.startswith(f"205 {names[205]}: ") and "1,205 instructions" in status


def test_large_page_is_shortened_with_a_note(tmp_path: Path, firmware: Firmware) -> None:
    page = report.write_report(run_that_failed(firmware, 5000), tmp_path) / "index.html"
    assert page.stat().st_size < _MOST
    text = page.read_text()
    assert "4,403 more tests passed, were skipped or were not run; report.json has them all." in text
    assert "characters omitted; see junit.xml" in text
    assert text.count('data-outcome="infrastructure"') == 1
