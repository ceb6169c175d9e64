# SPDX-License-Identifier: Apache-2.0
"""A browser and an accessibility checker for the tests of pages."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.browser import Browser, driver
from utvm.base.storage.cache import cache_root


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    with driver(folder) as service:
        assert service.health_match is not None
        session = Browser(f"http://127.0.0.1:{service.health_match[1]}", folder / "profile")
        try:
            yield session
        finally:
            session.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's script, from the wheel with the hash in axe.txt; downloaded once for this user."""
    folder = cache_root() / "axe"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--require-hashes", "--only-binary=:all:", f"--find-links={folder}", f"--dest={folder}"]
    subprocess.run([*pip, *options, "-r", Path(__file__).with_name("axe.txt")], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        return content.read("axe_playwright_python/axe.min.js").decode()
