# SPDX-License-Identifier: Apache-2.0
"""Tables in a narrow terminal: nothing is cut off."""

import io

from rich.table import Table

from utvm.terminal import Terminal


def test_a_table_that_is_too_wide_is_folded_and_its_numbers_stay_whole() -> None:
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
