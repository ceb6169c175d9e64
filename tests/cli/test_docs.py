# SPDX-License-Identifier: Apache-2.0
"""The documentation: links lead to pages, command lines parse, the site needs no network."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from invoke.exceptions import Exit

import tasks
from docs.site import build as docs_site
from utvm import boards, errors
from utvm.cli.program import Inv
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Path, str]:
    """Every page of the site, generated pages included, by its path in the repository."""
    folder = tmp_path_factory.mktemp("pages")
    docs_site.gather(folder)
    return {path.relative_to(folder): path.read_text("utf-8") for path in folder.rglob("*.md")}


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page: its headings in the form of Markdown's tools."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_pages_and_headings(pages: Mapping[Path, str]) -> None:
    checked = 0
    for page, text in pages.items():
        for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", _FENCE.sub("", text)):
            name, _, anchor = link.partition("#")
            path = Path(os.path.normpath(page.parent / name)) if name else page
            assert path in pages or (ROOT / path).exists(), f"{page}: {link}"
            assert not anchor or anchor in _anchors(pages[path]), f"{page}: {link}"
            checked += 1
    assert checked > 100


def _command_lines(text: str) -> Iterator[str]:
    """Yield our command lines in a page's code, without comments."""
    for language, code in _FENCE.findall(text):
        if language in ("sh", "console", ""):
            for line in code.replace("\\\n", " ").splitlines():
                for part in re.split(r"&&|;|\|", line.partition(" #")[0]):
                    words = part.strip().removeprefix("$ ")
                    if re.match(r"(\S*/inv|utvm) ", words) and not re.search(r"[<>…\[]", words):
                        yield words


def test_command_lines_parse(pages: Mapping[Path, str]) -> None:
    checked = 0
    for page, text in pages.items():
        if page.name == "CHANGELOG.md":
            continue
        for line in _command_lines(text):
            words = [word for word in shlex.split(line)[1:] if word not in ("--yes", "--no-install")]
            program = Inv(groups={}, name="inv", namespace=docs_site.namespace(), version="1")
            try:
                program.create_config()
                program.parse_core(["inv", *words])
                program.parse_collection()
                program.parse_tasks()
            except Exit as error:
                assert not error.code, f"{page}: {line}: {error.message}"
            checked += 1
    assert checked > 60


def test_every_command_has_a_section(pages: Mapping[Path, str]) -> None:
    commands = pages[Path("docs/commands.md")]
    for context in tasks.namespace.to_contexts():
        assert f"\n## {context.name}\n" in commands
        assert all(text for _, text in context.help_tuples())
    assert commands.count("`-j, --json") > 20


def test_every_board_has_a_memory_map(pages: Mapping[Path, str]) -> None:
    sections = dict(section.split("\n", 1) for section in pages[Path("docs/maps.md")].split("\n## ")[1:])
    assert list(sections) == [name for name in boards.names() if name != "host"]
    # RM0385, memory map: flash on AXIM, its mirror on ITCM, the DTCM.
    for text in ("flash at 0x08000000, 1,024 KiB", "flash-itcm at 0x00200000, 1,024 KiB", "dtcm at 0x20000000, 64 KiB"):
        assert text in sections["stm32f746"]
    assert "◀ mirrors flash<" in sections["stm32f746"] and "◀ data<" in sections["stm32f746"]
    # UM1974 and UM2179: a pin of the Arduino connector, an LED.
    assert "D0 PG9" in sections["stm32f746"] and ">PG9</text>" in sections["stm32f746"]
    assert "LD1 green `PC7`" in sections["nucleo-l4r5zi"]
    assert "Connectors: none; QEMU emulates a logic image" in sections["mps2-an385"]


def test_page_of_errors_has_every_class(pages: Mapping[Path, str]) -> None:
    page = pages[Path("docs/errors.md")]
    kinds = [errors.UtvmError, *errors.UtvmError.__subclasses__(), errors.DoesNotFitError]
    kinds = [kind for kind in kinds if kind.__module__ == errors.__name__]
    assert len(kinds) > 7
    for kind in kinds:
        assert f"| `{kind.__name__}` | {(kind.__doc__ or '').splitlines()[0]} |" in page
    assert "| `ConfigError` | An invalid file, option or model path. | 2 |" in page


@pytest.mark.nightly
def test_tutorial_runs() -> None:
    shutil.rmtree(ROOT / "build" / "tutorial", ignore_errors=True)
    blocks = [code for language, code in _FENCE.findall(_TUTORIAL.read_text("utf-8")) if language == "sh"]
    lines = "\n".join(blocks)
    completed = subprocess.run(["sh", "-eux"], cwd=ROOT, input=lines, text=True, capture_output=True, check=False)
    assert completed.returncode == 0, completed.stdout[-3000:] + completed.stderr[-3000:]
    assert len(blocks) > 6
    assert "20 of 20 samples agree with host, bit for bit" in completed.stdout
    assert "PASSED" in completed.stdout.splitlines()[-1]
