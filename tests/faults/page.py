# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reliability.md: the table of what a run may say of which fault, and what a campaign has found."""

import json
import re
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
    .venv/bin/python -m tests.faults run --count 220 --places farm --out build/farm.jsonl
    .venv/bin/python -m tests.faults run --count 2000 --places start --out build/start.jsonl
    .venv/bin/python -m tests.faults page build/farm.jsonl

runs campaigns and writes this page of them: what was found in other places before stays. That takes root, for a
small disk that fills. `--seed` repeats a campaign, `--first N --count 1` one injection of it; `--busy 8` keeps
the computer busy meanwhile; with a file of results that is there it goes on. What is struck is drawn from the
seed, and the moment as a part of the time that it is there in a run that nobody strikes. Of twenty runs on the
host or in a farm nineteen begin in a copy of a process that has modules and templates loaded, which spares a
second; the others, and those in other places, begin as `./inv` does. `./inv test` strikes a few on the board
`host`, `./inv test --nightly` 1,000 on all of them, and some in containers, in the virtual machine and in a
farm.

## What is right

The suites have an answer that is known: {answers}. A run
that is struck ends in one of these ways:

{endings}

Which of them are right stands in one table, `tests/faults/table.yaml`:

{table}

An exit code is a command's own: `inv` takes 0, 1 and 2 only from a program that says how its command has ended,
and ends with 3 and a sentence where that ends in any other way, as where OpenBLAS, which lacks memory, calls
`exit(1)`. The installed `utvm`, `python -m utvm` and pytest with `--board` have a handler in the C library's list,
which makes 3 of a library's `exit()`. In the place `start` a command, one that only prints, one that is wrong, or
a suite on `host`, has from its first moment on an address space of 2 to 600 MB, 3 to 64 files, files of at most
1 MB, streams that are closed or full, a terminal that goes away or the umask 077.

The clock that jumps is a library that is loaded before the C library, and adds an hour to what the wall clock
says. The probe on USB is on a bus that is a folder; OpenOCD drives our model of the board. A connection is cut
in the kernel (`ss -K`). What fills is a disk in memory. Containers are those of an engine of the campaign's
own, and the machine is one of its own, emulated where there is no KVM that works. An engine or a libvirt that
ends is not among the kinds. The farm is labgrid's, with two hosts that are processes here and an ssh that runs
here what it would run there; somebody else leases its boards meanwhile, now and then. What falls silent is a
relay on the way to the coordinator, for 25 s: it lets nothing through and tells nobody. A lease is left that
still is when all deadlines are past and `farm.heal` has run; a board was given to two where two runs, or a run
and that other one, used it at one time. No board here is a physical one: `host` is a process on this computer,
QEMU emulates `mps2-an500` and `netduinoplus2`, and `stm32f746` is our software model behind the real OpenOCD.
"""


_FOUND = "## What was found in "


def write(results: Sequence[Path]) -> int:
    """Write the page of what one or several campaigns have found."""
    campaigns = [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in results]
    own = f"{_FOUND}{', '.join(sorted({place for campaign in campaigns for place in campaign[0]['places']}))}\n"
    _, *sections = re.split(f"^(?={_FOUND})", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [each.rstrip("\n") + "\n" for each in sections if not each.startswith(own)]
    PAGE.write_text("\n".join((head(), *kept, f"{own}\n{_found(campaigns)}")), encoding="utf-8")
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
    parts = [*(_of(campaign[0], campaign[1:]) for campaign in campaigns)]
    parts += [
        f"\n**{len(landed)} injections struck**, of {len(done)}: the others found nothing, as it had ended.",
        f"{len(checked)} were followed by a run of the same board that nobody struck; all others, too, ran with",
        "what those before them had left.\n",
        _table(
            [
                ("misreported", str(sum(not one["right"] for one in done))),
                *((what, str(_left(done, words))) for what, words in _LEFT.items()),
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


# What the places say of it begins or goes on so; what else is left are processes, containers and hosts.
_LEFT = {
    "leases left after their deadline": " is held by ",
    "boards given to two": " was given to two",
    "orphans": "",
}


def _left(done: Sequence[Mapping[str, Any]], words: str) -> int:
    others = [each for each in _LEFT.values() if each and each != words]
    left = (each for one in done for each in one["orphans"])
    return sum(words in each and (bool(words) or not any(other in each for other in others)) for each in left)


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
