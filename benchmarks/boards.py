# SPDX-License-Identifier: Apache-2.0
"""Measures all boards of nightly.yaml: suites, models, and the speed of memory writes through their debug ports.

Run: ``.venv/bin/python benchmarks/boards.py [BOARD]...``. It writes benchmarks/boards.json, from which
``./inv docs.site --pages`` generates docs/boards.md; with names, the other boards keep their measurements. One board
runs at a time, so that none waits for another. A board that does not pass is left out; the exit code is that of the
nightly run.
"""

import argparse
import datetime
import json
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.boards_page import MEASUREMENTS, MeasuredBoard, MeasuredModel, Measurements
from utvm.base.storage.config import load_yaml
from utvm.boards import Board
from utvm.drivers import attach
from utvm.hil import nightly
from utvm.hil.figures import present_figures
from utvm.hil.schemas import read_report
from utvm.selection import BoardKind

_MEANS = {
    "kind": "VIRTUAL boards are software models, PHYSICAL ones are hardware, a PROCESS is a program on the computer",
    "tests passed": "over all suites; most skipped tests need a feature that the board lacks, as its report says",
    "suites": "host wall time of all suites, with starting, compiling and linking, and whatever is cached; for "
    "a virtual board it is the speed of its emulation, not of a chip",
    "memory writes": "the best of several writes through the debug port, in host wall time; a virtual probe and "
    "an emulator add no delay, so it is the speed of the connection, not of a chip; memory_writes.py "
    "measures with the delay of a real probe",
}
_MOST_WRITTEN = 128 * 1024
_TRIES = 5  # the best counts: other programs on the machine only slow it down


def main() -> int:
    """Measure boards and write the data file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("boards", nargs="*", metavar="BOARD", help="only these; by default all of nightly.yaml")
    jobs = nightly.select(nightly.load(nightly.default_list()), parser.parse_args().boards)
    earlier = load_yaml(MEASUREMENTS, Measurements, "remove it, and measure all boards").boards
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exit_code = nightly.run(jobs, jobs=1, report_root=folder)
        latest = folder / "latest"
        results = json.loads((latest / "nightly.json").read_text(encoding="utf-8"))["boards"]
        passed = [pair for pair in zip(jobs, results, strict=True) if pair[1]["verdict"] == "passed"]
        measured = {job.board.full_name: measure(job, result, latest, folder) for job, result in passed}
    known = {job.board.full_name for job in nightly.load(nightly.default_list())}
    combined = {name: board for name, board in {**earlier, **measured}.items() if name in known}
    measurements = Measurements(
        machine=f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}",
        means=_MEANS,
        boards=dict(sorted(combined.items())),
    )
    MEASUREMENTS.write_text(json.dumps(measurements.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
    print(f"wrote {MEASUREMENTS.name}; ./inv docs.site --pages generates the page")
    return int(exit_code)


def measure(job: nightly.Job, result: dict[str, Any], reports: Path, logs: Path) -> MeasuredBoard:
    """Return the figures of one board: from its report, and from writing its memory."""
    board = job.board
    report = read_report(reports / result["report"])
    has_port = "debug port" in board.capabilities
    return MeasuredBoard(
        date=f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        kind=result["kind"],
        passed=result["counts"]["passed"],
        skipped=result["counts"]["skipped"],
        suites_s=result["suites_s"],
        memory_write_kib_s=round(write_speed(board, result["kind"], logs), 1) if has_port else None,
        models=tuple(
            MeasuredModel(
                name=model["name"],
                executor=model["executor"],
                figures={figure.name: model[figure.name] for figure in present_figures([model])},
            )
            for model in result["models"]
        ),
        tools=report["environment"]["place"]["tools"],
    )


def write_speed(board: Board, kind: BoardKind, logs: Path) -> float:
    """Return KiB/s of writes to the region for data, compared after reading back."""
    region = board.region(board.layout.data)
    data = random.Random(1).randbytes(min(region.size, _MOST_WRITTEN))
    seconds = []
    with attach(board, kind, log_directory=logs / "memory-writes") as connection:
        connection.reset(halt=True)
        for _ in range(_TRIES):
            connection.write_memory(region.address, bytes(len(data)))
            began = time.perf_counter()
            connection.write_memory(region.address, data)
            seconds.append(time.perf_counter() - began)
            if connection.read_memory(region.address, len(data)) != data:
                raise SystemExit(f"{board.name}: memory does not hold what was written")
    return len(data) / 1024 / min(seconds)


if __name__ == "__main__":
    sys.exit(main())
