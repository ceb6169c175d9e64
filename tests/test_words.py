# SPDX-License-Identifier: Apache-2.0
"""The page of words names where each thing is, and the page of the log has every branch."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from utvm.base.log import BRANCHES
from utvm.paths import ROOT


@functools.cache
def _defined_names(*folders: str) -> tuple[set[tuple[str, str]], Counter[str]]:
    """Return the names that the folders' files define, with the files, and their public classes with their number."""
    names, classes = set(), Counter[str]()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= {(str(path.relative_to(ROOT)), name) for name in _names_in(node)}
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name] += 1
    return names, classes


def test_each_word_has_an_existing_path() -> None:
    rows = re.findall(r"^\| ([\w -]+) \| .* \| (`.*`) \|$", (ROOT / "docs" / "words.md").read_text(), re.MULTILINE)
    words = [word for word, _ in rows]
    assert words == sorted(set(words))
    assert [word for word, paths in rows for path in re.findall("`(.*?)`", paths) if not (ROOT / path).exists()] == []


@functools.cache
def _unused_words() -> set[str]:
    table = (ROOT / "docs" / "words.md").read_text().partition("## Words that utvm does not use")[2]
    return {word for row in re.findall(r"^\| ([a-z, ]+) \|", table, re.MULTILINE)[1:] for word in row.split(", ")}


@pytest.mark.slow
def test_no_name_contains_an_unused_word() -> None:
    assert len(_unused_words()) > 8
    names = sorted(_defined_names("utvm")[0])
    assert [name for name in names if _unused_words() & set(re.findall("[a-z]+", name[1].lower()))] == []


@pytest.mark.slow
def test_no_name_of_the_tests_contains_an_unused_word() -> None:
    """A test's name may have "each" in front of a noun."""
    wrong = []
    for path, name in sorted(_defined_names("tests", "hil_tests", "benchmarks", "models", "examples")[0]):
        permitted = {"each"} if name.startswith("test_") else set()
        if (_unused_words() - permitted) & set(re.findall("[a-z]+", name.lower())):
            wrong.append((path, name))
    assert wrong == []


def _names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def test_paths_of_the_architecture_page_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    paths = set(re.findall(r"`(utvm/[\w./]+)`", page))
    assert len(paths) > 40
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_tests_of_the_security_page_exist() -> None:
    paths = set(re.findall(r"`(tests/[\w./]+)`", (ROOT / "docs" / "security.md").read_text()))
    assert len(paths) > 15
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_no_two_classes_share_a_name() -> None:
    classes = _defined_names("utvm")[1]
    assert len(classes) > 300
    assert [name for name, times in classes.items() if times > 1] == []


def test_page_of_the_log_has_every_branch() -> None:
    named = re.findall(r"^\| `(utvm\.[\w.]+)` \|", (ROOT / "docs" / "log.md").read_text(), re.MULTILINE)
    assert named == list(BRANCHES)
