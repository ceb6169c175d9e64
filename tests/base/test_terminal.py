# SPDX-License-Identifier: Apache-2.0
"""Tables in a narrow terminal are not cut off."""

import io

from rich.table import Table
from rich.text import Text

from utvm.base.text.terminal import Terminal


def test_wide_table_folds_without_splitting_numbers() -> None:
    table = Table("operator", "makes", box=None)
    table.add_column("instructions", justify="right")
    table.add_row("fused_conv2d_add_relu_of_a_very_long_name", "x" * 60, "123,456,789,012")
    out = io.StringIO()
    Terminal(file=out, width=60, markup=False, soft_wrap=True).print(table)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert "…" not in out.getvalue()
    assert any("123,456,789,012" in line for line in lines)
    assert out.getvalue().count("x") == 60
    assert "".join(line[1:].partition(" ")[0] for line in lines[1:]) == "fused_conv2d_add_relu_of_a_very_long_name"


def test_markup_in_a_cell_is_escaped() -> None:
    table = Table("name", box=None)
    table.add_column("count", justify="right")
    table.add_row("a long name of a model", Text("[/b]"))
    table.add_row("another", "[bold magenta]7[/]")
    out = io.StringIO()
    Terminal(file=out, width=20).print(table)
    assert "[/b]" in out.getvalue()
    # A space on each side of both columns; the column of numbers is as wide as its heading.
    assert max(map(len, out.getvalue().splitlines())) <= 20
    assert "a long name" in out.getvalue()
