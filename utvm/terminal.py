# SPDX-License-Identifier: Apache-2.0
"""The terminal, as rich writes to it: whatever a stranger called something, it is shown and does nothing."""

from typing import Any

from rich.console import Console
from rich.text import Text

from utvm.names import printable_lines


class Terminal(Console):
    """A console that writes escape sequences in the words it is given as what they are."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, emoji=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Make of a string, printed or in a table, what is shown."""
        return super().render_str(printable_lines(text), **settings)
