# SPDX-License-Identifier: Apache-2.0
"""The site's page of memory maps and pinouts: pictures of each board, from the board's file."""

import math
from pathlib import Path

from jinja2 import FileSystemLoader

from utvm import boards
from utvm.base.text.templates import templates_of
from utvm.boards import Board
from utvm.boards.parts import Pinout
from utvm.pages import format_bytes

_GAP = 20
_LEAST = 24  # Height of a region, for its line of text.


def memory_maps() -> str:
    """Return the page in Markdown, with pictures in SVG of each board that has memory of its own."""
    known = [board for board in map(boards.load, boards.names()) if board.memory]
    template = templates_of(FileSystemLoader(Path(__file__).parent)).get_template("maps.md.j2")
    return template.render(boards=[_draw(board) for board in known])


def _draw(board: Board) -> dict[str, object]:
    rows, y, end = [], 4, -1
    for region in sorted(board.memory, key=lambda region: region.address):
        has_gap = bool(rows) and region.address != end
        y += _GAP if has_gap else 0
        height = _LEAST + round(3 * max(0.0, math.log2(region.size / 4096)))
        row = {"region": region, "y": y, "height": height, "gap": has_gap, "size": format_bytes(region.size)}
        rows.append({**row, "uses": board.uses_of(region)})
        y, end = y + height, region.end
    return {"board": board, "pinout": board.pinout or Pinout(note="not described"), "rows": rows, "height": y + 4}
