# SPDX-License-Identifier: Apache-2.0
"""The documentation: its links lead somewhere, its command lines are understood, its site needs no network."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from invoke.exceptions import Exit

from utvm.cli import docs_commands, docs_errors, docs_site
from utvm.cli.program import Inv
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Path, str]:
    """Every page of the site by its path in the repository, those that are made of the code, too."""
    folder = tmp_path_factory.mktemp("pages")
    docs_site.gather(folder)
    return {path.relative_to(folder): path.read_text("utf-8") for path in folder.rglob("*.md")}


def _anchors(text: str) -> set[str]:
    """Return what links may lead to in a page: its headings as Markdown's tools call them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_pages_and_headings_that_are_there(pages: Mapping[Path, str]) -> None:
    checked = 0
    for page, text in pages.items():
        for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", _FENCE.sub("", text)):
            name, _, anchor = link.partition("#")
            path = Path(os.path.normpath(page.parent / name)) if name else page
            assert path in pages or (ROOT / path).exists(), f"{page}: {link}"
            assert not anchor or anchor in _anchors(pages[path]), f"{page}: {link}"
            checked += 1
    assert checked > 100


def _lines(text: str) -> Iterator[str]:
    """Yield the command lines of ours in a page's code, without comments."""
    for language, code in _FENCE.findall(text):
        if language in ("sh", "console", ""):
            for line in code.replace("\\\n", " ").splitlines():
                for part in re.split(r"&&|;|\|", line.partition(" #")[0]):
                    words = part.strip().removeprefix("$ ")
                    if re.match(r"(\S*/inv|utvm) ", words) and not re.search(r"[<>…\[]", words):
                        yield words


def test_command_lines_are_understood(pages: Mapping[Path, str]) -> None:
    checked = 0
    for page, text in pages.items():
        if page.name == "CHANGELOG.md":
            continue
        for line in _lines(text):
            words = [word for word in shlex.split(line)[1:] if word not in ("--yes", "--no-install")]
            program = Inv(groups={}, name="inv", namespace=docs_commands.namespace(), version="1")
            try:
                program.create_config()
                program.parse_core(["inv", *words])
                program.parse_collection()
                program.parse_tasks()
            except Exit as error:
                assert not error.code, f"{page}: {line}: {error.message}"
            checked += 1
    assert checked > 60


def test_every_command_has_its_section_and_its_man_page(pages: Mapping[Path, str], tmp_path: Path) -> None:
    commands = pages[Path("docs/commands.md")]
    known = docs_commands.manuals()
    assert docs_commands.write_man(tmp_path) == len(known) + 1 > 40
    for each in known:
        assert f"\n## {each.name}\n" in commands
        man = (tmp_path / "man1" / f"utvm-{each.name.replace('.', '-')}.1").read_text()
        for _, told in each.options:
            assert told and told.replace("-", "\\-") in man
    groff = ["groff", "-man", "-Tutf8", "-ww", *(tmp_path / "man1").iterdir()]
    said = subprocess.run(groff, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_errors_are_read_out_of_the_sources(pages: Mapping[Path, str], tmp_path: Path) -> None:
    (tmp_path / "room.py").write_text(
        "from utvm.errors import ConfigError\n\n"
        'class OwnError(ConfigError):\n    """A file that is damaged.\n\n    More.\n    """\n\n'
        "class PlainError(OwnError):\n    pass\n\n"
        "def read(path, many):\n"
        "    if many:\n"
        '        raise OwnError(f"{path}: cannot | be read" + " today", hint="look | elsewhere")\n'
        '    raise ValueError("not of the tree")\n\n'
        "def parse(path):\n"
        '    raise PlainError("the file is empty", _AGAIN)\n\n'
        '_AGAIN = "write it again"\n'
    )
    meaning = "A file that is damaged."
    assert docs_errors.entries(tmp_path) == (
        docs_errors.ErrorText("room", "the file is empty", meaning, "write it again", 2),
        docs_errors.ErrorText("room", "…: cannot | be read today", meaning, "look | elsewhere", 2),
    )
    # Some that are met every day, from several rooms.
    for words in ("is not installed", "there is no board", "does not fit", "OpenOCD"):
        assert words in pages[Path("docs/errors.md")], words
    assert pages[Path("docs/errors.md")].count("\n| ") > 400
    assert all(entry.cause for entry in docs_errors.entries())


@pytest.mark.nightly
def test_the_tutorial_is_right() -> None:
    shutil.rmtree(ROOT / "build" / "tutorial", ignore_errors=True)
    blocks = [code for language, code in _FENCE.findall(_TUTORIAL.read_text("utf-8")) if language == "sh"]
    lines = "\n".join(blocks)
    said = subprocess.run(["sh", "-eux"], cwd=ROOT, input=lines, text=True, capture_output=True, check=False)
    assert said.returncode == 0, said.stdout[-3000:] + said.stderr[-3000:]
    assert len(blocks) > 6
    assert "20 of 20 samples agree with host, bit for bit" in said.stdout
    assert "PASSED" in said.stdout.splitlines()[-1]
