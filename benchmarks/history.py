# SPDX-License-Identifier: Apache-2.0
"""Measures a year of nights in a history: its size, and the time of each query.

    python benchmarks/history.py [BOARDS [NIGHTS]]

Three hundred tests and six models a board and night; 100 boards and 365 nights are 10,950,000 outcomes. Runs are added
as ``hil`` adds them. Times are of the processor, which other programs may use, too. Each query runs twice, and the
second time counts.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from utvm.history.changes import changes, flaky, last_good, newest_night, slowest, trend
from utvm.history.exports import write_pages
from utvm.history.store import add, format_time, open_history

_TESTS, _MODELS = 300, 6
_FIRST = 1_767_229_200  # 2026-01-01 01:00 UTC


def _report(night: int, board: int, generator: random.Random) -> dict[str, Any]:
    started = format_time(_FIRST + 86_400 * night + board)
    tests = [
        {
            "id": f"suite_{test % 20}::test_number_{test}",
            "duration_s": 0.25,
            "message": "",
            **_outcome(test, night, generator),
        }
        for test in range(_TESTS)
    ]
    failed = any(test["outcome"] == "failed" for test in tests)
    return {
        "run_id": f"{started.replace('-', '').replace(':', '')[:-1]}.000Z-{board:04x}",
        "started": started,
        "source": {"commit": f"{night // 2:040x}", "dirty": False},
        "board": {"id": f"board{board % 10}", "kind": "virtual", "serial": f"{board:06d}"},
        "tests": tests,
        "models": [
            {
                "name": f"model{model}",
                "executor": "host-driven",
                "outputs_sha256": f"{model:064x}",
                "instructions": 136_682 + 1000 * model + 7 * (night // 60),
                "flash_bytes": 12_432 + night // 90,
                "ram_bytes": 11_280,
                "accuracy": 0.9875,
            }
            for model in range(_MODELS)
        ],
        "verdict": "failed" if failed else "passed",
        "trouble": "",
    }


def _outcome(test: int, night: int, generator: random.Random) -> dict[str, str]:
    number = generator.random()
    if test % 12 == 0:
        return {"outcome": "skipped"}
    if number < 0.0005 or (test == 7 and number < 0.05) or (test == 42 and 200 <= night < 210):
        return {"outcome": "failed", "message": "assert 3 == 4"}
    return {"outcome": "infrastructure" if number < 0.0007 else "passed"}


def main(boards: int, nights: int) -> dict[str, float]:
    """Create a history and query it; return seconds by query, and its bytes."""
    generator, figures = random.Random(1), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder, open_history(Path(folder) / "history.sqlite", create=True) as history:
        for night in range(nights):
            begin = time.process_time()
            for board in range(boards):
                add(history, _report(night, board, generator))
            figures["add a night"] = time.process_time() - begin
        history.execute("pragma wal_checkpoint(truncate)")
        since, month = newest_night(history), newest_night(history) - 30 * 86_400
        queries: dict[str, Callable[[], object]] = {
            "changes since the last night": lambda: changes(history, since),
            "changes of a month": lambda: changes(history, month),
            "trend of a figure on all boards": lambda: trend(history, "model3", "instructions"),
            "flaky in a month": lambda: flaky(history, month),
            "slowest tests of a night": lambda: slowest(history, since),
            "the pages of a night": lambda: write_pages(history, Path(folder) / "pages", Path(folder)),
            "last good of a test on all boards": lambda: last_good(history, "test_number_42"),
        }
        for name, query in queries.items():
            query()
            begin = time.process_time()
            query()
            figures[name] = time.process_time() - begin
        figures["bytes"] = sum(path.stat().st_size for path in Path(folder).glob("history.sqlite*"))
    return figures


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]]
    for name, value in main(*(arguments or [10]), *([365] if len(arguments) < 2 else [])).items():
        print(f"{name:34} {value:,.0f}" if name == "bytes" else f"{name:34} {value * 1000:10.1f} ms")
