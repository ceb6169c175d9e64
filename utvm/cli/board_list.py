# SPDX-License-Identifier: Apache-2.0
"""What ``board.list`` prints: hundreds of boards in a second, for which it imports little."""

from typing import Any

from rich.table import Table

from utvm import boards
from utvm.cli.choices import JsonChoice
from utvm.cli.output import OUT, check_json, write_json
from utvm.drivers import drivers_for
from utvm.errors import ConfigError


def list_boards(wanted: JsonChoice) -> None:
    """Print the boards: the project's, and those in folders of the user's own."""
    check_json(wanted)
    own = boards.project_names()
    found: list[dict[str, Any]] = []
    broken: list[ConfigError] = []
    for name in boards.names():
        try:
            board = boards.load(name)
        except ConfigError as error:
            broken.append(error)
            continue
        found.append(
            {
                "name": name,
                "title": board.title,
                "probes": [f"{probe.kind} {probe.vendor:04x}:{probe.product:04x}" for probe in board.probes],
                "reached_by": [driver.name for driver in drivers_for(board)],
                "folder": str(board.directory),
            }
        )
    if write_json(wanted, {"boards": found, "broken": [wrong.message for wrong in broken]}):
        return
    table = Table("board", "what it is", "probes (USB vendor:product)", "reached by", "from", box=None)
    for each in found:
        probes, ways = ", ".join(each["probes"]), ", ".join(each["reached_by"])
        origin = "utvm" if each["name"] in own else each["folder"]
        table.add_row(each["name"], each["title"], probes or "none", ways, origin)
    OUT.print(table)
    for wrong in broken:
        OUT.print(f"broken: {wrong.message}")
