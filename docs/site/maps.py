# SPDX-License-Identifier: Apache-2.0
"""The site's page of memory maps: a picture of each board, from the board's file."""

import math
from pathlib import Path

from jinja2 import FileSystemLoader

from utvm import boards
from utvm.base.text.templates import templates_of
from utvm.boards import Board
from utvm.pages import format_bytes

_GAP = 20
_LEAST = 24  # Height of a region, for its line of text.


def memory_maps() -> str:
    """Return the page in Markdown, with a picture in SVG for each board that has memory of its own."""
    known = [board for board in map(boards.load, boards.names()) if board.memory]
    template = templates_of(FileSystemLoader(Path(__file__).parent)).get_template("maps.md.j2")
    return template.render(boards=[_draw(board) for board in known])


def _draw(board: Board) -> dict[str, object]:
    rows, y, end = [], 4, -1
    for region in sorted(board.memory, key=lambda region: region.address):
        has_gap = bool(rows) and region.address != end
        y += _GAP if has_gap else 0
        height = _LEAST + round(3 * max(0.0, math.log2(region.size / 4096)))
        uses = ", ".join(use for use in ("code", "data", "stack") if getattr(board.layout, use) == region.name)
        uses = f"mirrors {region.alias_of}" if region.alias_of else uses
        row = {"region": region, "y": y, "height": height, "gap": has_gap, "size": format_bytes(region.size)}
        rows.append({**row, "uses": uses})
        y, end = y + height, region.end
    names = {"name": board.name, "title": board.title, "line": board.line, "pins": _console_pins(board)}
    return {**names, "rows": rows, "height": y + 4}


def _console_pins(board: Board) -> str:
    """Return the pins that a shared port connects to the console; empty if the numbers have none."""
    numbers = board.port.numbers if board.port else {}
    if {"gpio", "pin"} <= numbers.keys():
        # As in stm32_usart.c: ports of pins are 0x400 apart, and the pin after the one that sends receives.
        port = chr(ord("A") + ((numbers["gpio"] & 0xFFFF) >> 10))
        return f"P{port}{numbers['pin']} (sends) and P{port}{numbers['pin'] + 1} (receives)"
    if {"pin_txd", "pin_rxd"} <= numbers.keys():
        return f"P0.{numbers['pin_txd']:02} (sends) and P0.{numbers['pin_rxd']:02} (receives)"
    return ""
