# SPDX-License-Identifier: Apache-2.0
"""The documentation's site in a real browser: it is built, and searched, without a network."""

import subprocess
from pathlib import Path

import pytest

from tests.pages.browser import Browser
from utvm.paths import ROOT


@pytest.mark.nightly
def test_the_site_is_built_and_searched_without_a_network(browser: Browser, tmp_path: Path) -> None:
    said = subprocess.run([ROOT / "inv", "docs.site", "--output", tmp_path / "site"], check=False)
    assert said.returncode == 0
    browser.look(1280, "light")
    browser.open(tmp_path / "site" / "docs" / "errors.html")
    browser.run("document.querySelector('.md-search__input').focus();")
    browser.press(*"quantise")
    found = """
        return new Promise((found) => {
            const look = () => {
                const links = document.querySelectorAll(".md-search-result__link");
                links.length ? found([...links].map((each) => each.href)) : setTimeout(look, 100);
            };
            look();
        });
    """
    assert any("tutorial.html" in link for link in browser.run(found))
    # What is a file is not among them.
    assert browser.run("return performance.getEntriesByType('resource').map((each) => each.name);") == []
