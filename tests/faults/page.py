# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reliability.md: the table of what a run may say of which fault, and what a campaign has found."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults.table import Row, endings, rows
from utvm.paths import ROOT

PAGE = ROOT / "docs" / "reliability.md"

_HEAD = """# What a run says when something breaks

<!-- Written by `python -m tests.faults page`: do not edit. -->

A run of a suite is struck at a random moment: a process of its is killed or stopped, a disk is full, a
connection is cut, the clock jumps, the probe is pulled out. Whatever it says then has to be so: a suite that a
board passes is never said to have failed, nor one that it fails to have passed, neither by exit code nor last
line nor report, of no test. Nothing may be left: no process, no lock, and the next run has to work.

    .venv/bin/python -m tests.faults run --count 1000 --out build/faults.jsonl
    .venv/bin/python -m tests.faults page build/faults.jsonl

runs a campaign and writes this page of it. It takes root, for a small disk that fills. `--seed` repeats a
campaign, `--first N --count 1` one injection of it. What is struck is drawn from the seed, and the moment as a
part of the time that it is there in a run that nobody strikes, and a tenth more. `./inv test` strikes a few,
`./inv test --nightly` 1,000.

## What is right

The suites have an answer that is known: {answers}. A run
that is struck ends in one of these ways:

{endings}

Which of them are right stands in one table, `tests/faults/table.yaml`:

{table}

The clock that jumps is a library that is loaded before the C library, and adds an hour to what the wall clock
says. The probe on USB is on a bus that is a folder; OpenOCD drives our model of the board. A connection is cut in
the kernel (`ss -K`). What fills is a disk in memory. Runs in a container and in the virtual machine are not struck
yet.
"""


def write(results: Sequence[Path]) -> int:
    """Write the page of what one or several campaigns have found."""
    campaigns = [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in results]
    PAGE.write_text(f"{head()}\n{_found(campaigns)}", encoding="utf-8")
    return 0


def head() -> str:
    """Return the part of the page that follows from the table alone."""
    meant = "\n".join(f"- `{name}`: {meaning}" for name, meaning in endings().items())
    answers = "the right one passes, exit code 0; the wrong one fails, exit code 1"
    return _HEAD.format(answers=answers, endings=meant, table=_table(_words(), _KINDS))


_KINDS = ("kind of fault", "deeds", "boards", "right endings")


def _words() -> list[tuple[str, ...]]:
    return [(row.name, ", ".join(row.deeds), ", ".join(row.boards), ", ".join(row.may)) for row in rows()]


def _found(campaigns: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    done = [result for campaign in campaigns for result in campaign[1:]]
    parts = ["## What was found\n"]
    parts += [_of(campaign[0], len(campaign) - 1) for campaign in campaigns]
    landed = [one for one in done if one["landed"]]
    checked = [one for one in done if one["next_run"]]
    parts += [
        f"\n**{len(done)} injections**; {len(done) - len(landed)} found nothing to strike: it had ended.",
        f"{len(checked)} were followed by a run of the same board that nobody struck; all others, too, ran with",
        "what those before them had left.\n",
        _table(
            [
                ("misreported", str(sum(not one["right"] for one in done))),
                ("orphans", str(sum(len(one["orphans"]) for one in done))),
                ("stale locks", str(sum(len(one["stale_locks"]) for one in done))),
                ("broken next runs", str(sum(one["next_run"] != "answer" for one in checked))),
            ],
            ("what must not be", "how often"),
        ),
        "",
        _table([_line(row, done) for row in rows()], ("kind of fault", "injections", "struck", "endings", "red")),
    ]
    if red := [one for one in done if _red(one)]:
        parts += ["\nRed, by number:\n", *(_told(one) for one in red)]
    return "\n".join(parts) + "\n"


def _of(header: Mapping[str, Any], count: int) -> str:
    return (
        f"- {header['date']}, seed {header['seed']}: {count} injections on {header['machine']}, Python "
        f"{header['python']}"
    )


def _line(row: Row, done: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    own = [one for one in done if one["kind"] == row.name]
    struck = Counter(one["ending"] for one in own)
    said = ", ".join(f"{name} {count}" for name, count in struck.most_common())
    return row.name, str(len(own)), str(sum(one["landed"] for one in own)), said, str(sum(map(_red, own)))


def _red(one: Mapping[str, Any]) -> bool:
    return not one["right"] or bool(one["orphans"] or one["stale_locks"]) or one["next_run"] not in ("", "answer")


def _told(one: Mapping[str, Any]) -> str:
    more = ", ".join(filter(None, (*one["orphans"], *one["stale_locks"], one["next_run"])))
    where = f"{one['deed']} at {one['moment']}, {one['board']}, suite {one['suite']}"
    return f"- {one['number']}: {one['kind']} ({where}): {one['ending']}{f'; {more}' if more else ''}"


def _table(lines: Sequence[tuple[str, ...]], titles: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, ("---",) * len(titles), *lines))
