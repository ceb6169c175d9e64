# SPDX-License-Identifier: Apache-2.0
"""The page of words says where each thing is; the page of the log, what each branch says."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator

from utvm.base.log import BRANCHES
from utvm.paths import ROOT


@functools.cache
def _bound() -> tuple[set[tuple[str, str]], Counter[str]]:
    """Names that the product's files bind, with the files, and public classes with how many there are."""
    names, classes = set(), Counter[str]()
    for path in (ROOT / "utvm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= {(str(path.relative_to(ROOT)), name) for name in _names_bound_by(node)}
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name] += 1
    return names, classes


def test_each_word_is_where_the_page_says() -> None:
    rows = re.findall(r"^\| ([\w -]+) \| .* \| (`.*`) \|$", (ROOT / "docs" / "words.md").read_text(), re.MULTILINE)
    words = [word for word, _ in rows]
    assert words == sorted(set(words))
    assert [
        word for word, places in rows for place in re.findall("`(.*?)`", places) if not (ROOT / place).exists()
    ] == []


def test_no_name_in_the_code_has_a_word_that_is_not_used() -> None:
    table = (ROOT / "docs" / "words.md").read_text().partition("## Words that utvm does not use")[2]
    unused = {word for row in re.findall(r"^\| ([a-z, ]+) \|", table, re.MULTILINE)[1:] for word in row.split(", ")}
    assert len(unused) > 8
    assert [name for name in sorted(_bound()[0]) if unused & set(re.findall("[a-z]+", name[1].lower()))] == []


def _names_bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def test_the_walks_through_the_house_go_past_what_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    places = set(re.findall(r"`(utvm/[\w./]+)`", page))
    assert len(places) > 40
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []


def test_the_page_on_security_names_tests_that_there_are() -> None:
    places = set(re.findall(r"`(tests/[\w./]+)`", (ROOT / "docs" / "security.md").read_text()))
    assert len(places) > 15
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []


def test_no_two_classes_share_a_name() -> None:
    classes = _bound()[1]
    assert len(classes) > 300
    assert [name for name, times in classes.items() if times > 1] == []


def test_the_page_of_the_log_has_every_branch() -> None:
    named = re.findall(r"^\| `(utvm\.[\w.]+)` \|", (ROOT / "docs" / "log.md").read_text(), re.MULTILINE)
    assert named == list(BRANCHES)
