# SPDX-License-Identifier: Apache-2.0
"""Changes that mkdocs makes to each page: roles, accessibility, weights and keywords of the search."""

import re
from pathlib import Path
from typing import Any

import yaml

# Docstrings name things as Sphinx does, :func:`name`, which Markdown shows as it stands.
_ROLE = re.compile(r":(?:py:)?(?:attr|class|data|exc|func|meth|mod):(?=<code>)")
# Weights in search results: pages that mention everything come after the page about a subject.
_WEIGHTS = {"CHANGELOG.md": 0.1, "docs/api.md": 0.3, "docs/errors.md": 0.5, "docs/commands.md": 0.6}
_KEYWORDS = yaml.safe_load(Path(__file__).with_name("keywords.yaml").read_text(encoding="utf-8"))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set a page's weight and keywords in search results."""
    page.meta["search"] = {"boost": _WEIGHTS.get(page.file.src_uri, 1)}
    page.meta["tags"] = _KEYWORDS.get(page.file.src_uri, [])
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Remove roles, and make empty header cells plain cells."""
    return _ROLE.sub("", html).replace("<th></th>", "<td></td>")
