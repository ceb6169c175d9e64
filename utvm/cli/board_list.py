# SPDX-License-Identifier: Apache-2.0
"""``board.list``: hundreds of boards in a second, with few imports."""

from utvm import boards, errors
from utvm.cli.choices import ModelChoice
from utvm.cli.output import OUT
from utvm.drivers import drivers_for


def list_boards(fits: str, run_python: bool, set_: list[str]) -> None:
    """List boards; with the path of a model in ``fits``, its memory on each of them."""
    if fits:
        from utvm.cli.board_show import list_fitting

        list_fitting(ModelChoice(fits, run_python, tuple(set_)))
        return
    own = boards.project_names()
    records, rows, broken = [], [], []
    for name in boards.names():
        try:
            board = boards.load(name)
        except errors.ConfigError as error:
            broken.append(error.message)
            continue
        probes = [f"{probe.kind} {probe.vendor:04x}:{probe.product:04x}" for probe in board.probes]
        drivers = [driver.name for driver in drivers_for(board)]
        origin = "utvm" if name in own else str(board.directory)
        rows.append((name, board.title, ", ".join(probes) or "none", ", ".join(drivers), origin))
        record = {"name": name, "title": board.title, "probes": probes, "reached_by": drivers}
        records.append({**record, "folder": str(board.directory)})
    OUT.table(("board", "title", "probes (USB vendor:product)", "reached by", "from"), rows=rows)
    for message in broken:
        OUT.print(f"broken: {message}")
    OUT.results({"boards": records, "broken": broken})
