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
line nor report, of no test. Nothing may be left: no process, no container, no lock, and the next run has to work.

    .venv/bin/python -m tests.faults run --count 1000 --out build/faults.jsonl
    .venv/bin/python -m tests.faults run --count 100 --places docker --out build/docker.jsonl
    .venv/bin/python -m tests.faults page build/*.jsonl

runs campaigns and writes this page of them. That takes root, for a small disk that fills. `--seed` repeats a
campaign, `--first N --count 1` one injection of it; `--busy 8` keeps the computer busy meanwhile; with a file of
results that is there it goes on. What is struck is drawn from the seed, and the moment as a part of the time that
it is there in a run that nobody strikes. Of twenty runs on the host nineteen begin in a copy of a process that has
modules and templates loaded, which spares a second; the others, and those in other places, begin as `./inv` does.
`./inv test` strikes a few on the board `host`, `./inv test --nightly` 1,000 on all of them, and some in containers
and in the virtual machine.

## What is right

The suites have an answer that is known: {answers}. A run
that is struck ends in one of these ways:

{endings}

Which of them are right stands in one table, `tests/faults/table.yaml`:

{table}

The clock that jumps is a library that is loaded before the C library, and adds an hour to what the wall clock
says. The probe on USB is on a bus that is a folder; OpenOCD drives our model of the board. A connection is cut in
the kernel (`ss -K`). What fills is a disk in memory. Containers are those of an engine of the campaign's own, and
the machine is one of its own, emulated where there is no KVM that works. An engine or a libvirt that ends is not
among the kinds. No board here is a physical one: `host` is a process on this computer, QEMU emulates `mps2-an500`
and `netduinoplus2`, and `stm32f746` is our software model behind the real OpenOCD.
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


_KINDS = ("kind of fault", "place", "deeds", "boards", "right endings")


def _words() -> list[tuple[str, ...]]:
    return [
        (row.name, row.place, *(", ".join(each) for each in (row.deeds, row.boards, row.may))) for row in rows()
    ]


def _found(campaigns: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    done = [result for campaign in campaigns for result in campaign[1:]]
    landed = [one for one in done if one["landed"]]
    checked = [one for one in done if one["next_run"]]
    parts = ["## What was found\n", *(_of(campaign[0], campaign[1:]) for campaign in campaigns)]
    parts += [
        f"\n**{len(landed)} injections struck**, of {len(done)}: the others found nothing, as it had ended.",
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
        _table(_places_and_boards(done), ("place", "board", "injections", "struck", "red")),
        "",
        _table(
            [_line(row, done) for row in rows() if row.place in {one["place"] for one in done}],
            ("kind of fault", "place", "injections", "struck", "endings", "red"),
        ),
    ]
    if any(_red(one) for one in done):
        parts += ["\nRed; what a campaign has found is mended in the commits after it:\n"]
        parts += [_told(campaign[0], one) for campaign in campaigns for one in campaign[1:] if _red(one)]
    return "\n".join(parts) + "\n"


def _of(header: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> str:
    loads = [one["load"] for one in done]
    busy = f", {header['busy']} processes keeping it busy" if header["busy"] else ""
    places, (count, struck, red) = ", ".join(header["places"]), _counts(done)
    return (
        f"- {header['date']}, commit {header['commit'][:7]}, seed {header['seed']}, in {places}: "
        f"{count} injections, {struck} struck, {red} red; on {header['machine']}, Python {header['python']}, "
        f"load average {min(loads, default=0)} to {max(loads, default=0)}{busy}"
    )


def _places_and_boards(done: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    keys = sorted({(one["place"], one["board"]) for one in done})
    return [(*key, *_counts([one for one in done if (one["place"], one["board"]) == key])) for key in keys]


def _counts(own: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    return str(len(own)), str(sum(one["landed"] for one in own)), str(sum(map(_red, own)))


def _line(row: Row, done: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    own = [one for one in done if (one["kind"], one["place"]) == (row.name, row.place)]
    struck = Counter(one["ending"] for one in own)
    said = ", ".join(f"{name} {count}" for name, count in struck.most_common())
    count, landed, red = _counts(own)
    return row.name, row.place, count, landed, said, red


def _red(one: Mapping[str, Any]) -> bool:
    return not one["right"] or bool(one["orphans"] or one["stale_locks"]) or one["next_run"] not in ("", "answer")


def _told(header: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    more = ", ".join(filter(None, (*one["orphans"], *one["stale_locks"], one["next_run"])))
    where = f"{one['deed']} at {one['moment']}, {one['board']} in {one['place']}, suite {one['suite']}"
    named = f"seed {header['seed']}, {one['number']}: {one['kind']} ({where})"
    return f"- {named}: {one['ending']}{f'; {more}' if more else ''}"


def _table(lines: Sequence[tuple[str, ...]], titles: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, ("---",) * len(titles), *lines))
