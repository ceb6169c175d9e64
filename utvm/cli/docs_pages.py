# SPDX-License-Identifier: Apache-2.0
"""The pages of the site that are generated: all commands, and all kinds of errors."""

import sys
from typing import cast

from invoke.collection import Collection

from utvm import errors
from utvm.base.text.templates import templates_of
from utvm.errors import UtvmError
from utvm.paths import DATA


def namespace() -> Collection:
    """All commands, as in ``tasks.py``."""
    sys.path.insert(0, str(DATA))
    try:
        return cast(Collection, __import__("tasks").namespace)
    finally:
        del sys.path[0]


def commands() -> str:
    """The page of all commands, in Markdown."""
    known = namespace()
    contexts = sorted(known.to_contexts(), key=lambda context: str(context.name))
    template = templates_of("utvm.cli").get_template("commands.md.j2")
    return template.render(commands=[(known[str(context.name)], context) for context in contexts], cell=_cell)


def error_kinds() -> str:
    """The page of the error classes, in Markdown."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, UtvmError)]
    return templates_of("utvm.cli").get_template("errors.md.j2").render(kinds=kinds)


def _cell(text: object) -> str:
    return " ".join(str(text or "").split()).replace("|", "\\|").replace("<", "&lt;")
