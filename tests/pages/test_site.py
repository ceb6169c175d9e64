# SPDX-License-Identifier: Apache-2.0
"""The documentation site in a real browser, without a network: search, accessibility, narrow screens."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.pages.browser import Browser
from utvm.paths import ROOT

pytestmark = pytest.mark.nightly

_VIOLATIONS = """;
    return axe.run(document, {resultTypes: ["violations"]}).then((result) =>
        result.violations.map((violation) => [violation.id, violation.nodes[0].html]));
"""
_RESULTS = """
    return new Promise((done) => {
        let last = "", repeats = 0, tries = 0;
        const poll = () => {
            const links = [...document.querySelectorAll("a.md-search-result__link")].map((link) => link.pathname);
            repeats = links.length && links.join() === last ? repeats + 1 : 0;
            last = links.join();
            repeats > 4 || ++tries > 100 ? done(links) : setTimeout(poll, 100);
        };
        poll();
    });
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    subprocess.run([ROOT / "inv", "docs.site", "--output", folder], check=True)
    return folder


def _pages(site: Path) -> list[Path]:
    """All pages but the one for missing pages, whose links begin at the server's root."""
    return sorted(set(site.rglob("*.html")) - {site / "404.html"})


def test_search_finds_the_page_for_nine_of_ten_queries(browser: Browser, site: Path) -> None:
    queries = yaml.safe_load((ROOT / "docs" / "site" / "queries.yaml").read_text())
    browser.set_screen(1280, "light")
    missed = {}
    for query, page in queries.items():
        browser.open(site / "docs" / "errors.html")
        browser.run("document.querySelector('.md-search__input').focus();")
        browser.press(*query)
        results = list(dict.fromkeys(browser.run(_RESULTS)))[:3]
        if not any(result.endswith("/" + page.replace(".md", ".html")) for result in results):
            missed[query] = results
    assert len(missed) <= len(queries) // 10, missed
    # Only files are loaded.
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name);") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_an_accessibility_violation(browser: Browser, axe: str, site: Path, scheme: str) -> None:
    browser.set_screen(1400, "dark" if scheme == "dark" else "light")
    violations = {}
    for page in _pages(site):
        browser.open(page)
        if scheme == "dark":
            assert browser.run("return document.body.dataset.mdColorScheme;") == "slate"
        if result := browser.run(axe + _VIOLATIONS):
            violations[str(page.relative_to(site))] = result
    assert violations == {}


@pytest.mark.parametrize("width", [360, 800])
def test_no_page_is_wider_than_the_screen(browser: Browser, site: Path, width: int) -> None:
    browser.set_screen(width, "light")
    for page in _pages(site):
        browser.open(page)
        assert browser.run("return document.documentElement.scrollWidth;") <= width, page
