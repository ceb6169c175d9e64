# SPDX-License-Identifier: Apache-2.0
"""For mkdocs: docstrings name things as Sphinx does, ``:func:`name```, which Markdown shows as it stands."""

import re
from typing import Any

_ROLE = re.compile(r":(?:py:)?(?:attr|class|data|exc|func|meth|mod):(?=<code>)")


def on_page_content(html: str, **_: Any) -> str:
    """Return a page's HTML without those words."""
    return _ROLE.sub("", html)
