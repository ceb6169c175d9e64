# SPDX-License-Identifier: Apache-2.0
"""The terminal, through rich: untrusted text is shown without effect."""

import os
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from utvm.base.text.quoting import printable_lines
from utvm.errors import ExitCode

_WIDE = 10_000
"""Columns where there is no terminal: each row of a table is one line, as grep expects."""


class Terminal(Console):
    """A console that shows escape sequences in its text literally."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, emoji=False, **settings)
        if "width" not in settings and not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = _WIDE

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print; long table cells wrap, and numbers stay whole."""
        for table in objects:
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
                self._keep_numbers_whole(table)
        super().print(*objects, **settings)

    def _keep_numbers_whole(self, table: Table) -> None:
        columns = [column for column in table.columns if column.justify == "right"]
        if not columns:
            return
        whole = table.__rich_measure__(self, self.options.update(width=10_000)).maximum
        for column in columns:
            words = (word for cell in (column.header, *column.cells) for word in self._plain(cell).split())
            column.min_width = max(map(len, words), default=0)
            if whole > self.width:
                column.width = column.min_width  # so that only text columns shrink

    def _plain(self, cell: object) -> str:
        return self.render_str(cell).plain if isinstance(cell, str) else str(cell)

    def on_broken_pipe(self) -> None:
        """Exit silently if the reader has gone: rich's exit code would mean a failed test."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(int(ExitCode.INFRASTRUCTURE)) from None

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable_lines(text), **settings)
