# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reliability.md: the allowed results of each fault, and the results of campaigns."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults.table import Row, endings, rows
from utvm.paths import ROOT

PAGE = ROOT / "docs" / "reliability.md"

_HEAD = """# Reliability: fault injection

<!-- Written by `python -m tests.faults page`: do not edit. -->

Fault injection tests whether a run of a suite reports the truth when its environment fails. At a random
moment a process is killed or stopped, a disk fills, a connection is cut, the clock jumps, or the probe is
unplugged. In every case, exit code, last line and report must be correct: a passing suite must never be
reported as failed, nor a failing one as passed. No process, container or lock may remain, and the next run
must work.

    .venv/bin/python -m tests.faults run --count 1000 --out build/faults.jsonl
    .venv/bin/python -m tests.faults run --count 100 --places docker --out build/docker.jsonl
    .venv/bin/python -m tests.faults run --count 220 --places farm --out build/farm.jsonl
    .venv/bin/python -m tests.faults run --count 2000 --places start --out build/start.jsonl
    .venv/bin/python -m tests.faults page build/farm.jsonl

These commands run campaigns and write their results to this page; results of other locations stay. They need
root, for a small disk that fills. `--seed` repeats a campaign, `--first N --count 1` one injection of it;
`--busy 8` adds load; an existing file of results is continued. The seed determines the target and the moment,
as a fraction of the target's lifetime in an undisturbed run. On the host and in a farm, 19 of 20 runs start
as a copy of a process with loaded modules and templates, which saves a second; all others start like `./inv`.
`./inv test` runs a few injections on the board `host`, `./inv test --nightly` 1,000 on all boards, and some
in containers, in the virtual machine and in a farm.

## Allowed results

The suites have a known result: {answers}. A disturbed run ends in one of these ways:

{endings}

One table, `tests/faults/table.yaml`, lists the allowed ones:

{table}

`inv` accepts exit codes 0, 1 and 2 only from a program that also reports how its command ended. Otherwise it
exits with 3 and an explanation, for example if OpenBLAS runs out of memory and calls `exit(1)`. The installed
`utvm`, `python -m utvm` and pytest with `--board` register an exit handler with the C library that turns a
library's `exit()` into exit code 3. In the location `start` a command is limited from its first moment: an
address space of 2 to 600 MB, 3 to 64 files, files of at most 1 MB, streams that are closed or full, a
terminal that hangs up, or the umask 077. The command only prints, is wrong, or runs a suite on `host`.

Limits of the method: clock jumps come from a library that is loaded before the C library and adds an hour to
the wall clock. The USB bus of the probe is simulated by a folder; OpenOCD drives our model of the board. A
connection is cut in the kernel (`ss -K`). The full disk is in memory. A campaign has its own container engine
and virtual machine, emulated without KVM. An engine or libvirt that ends is not tested. The farm is
labgrid's, with two hosts that are local processes and a simulated ssh; another tenant leases its boards now
and then. In "coordinator falls silent", a relay to the coordinator blocks all traffic for 25 s without
closing connections. A lease counts as left if it remains after all deadlines and `farm.heal`; a board was
given to two if two runs, or a run and the other tenant, used it at the same time. No board is physical:
`host` is a process on this computer, QEMU emulates `mps2-an500` and `netduinoplus2`, and `stm32f746` is our
software model behind the real OpenOCD.
"""


_FOUND = "## Results: "


def write(results: Sequence[Path]) -> int:
    """Write the results of one or several campaigns to the page."""
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


_KINDS = ("fault", "location", "actions", "boards", "allowed results")


def _words() -> list[tuple[str, ...]]:
    return [(row.name, row.place, *(", ".join(each) for each in (row.deeds, row.boards, row.may))) for row in rows()]


def _found(campaigns: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    done = [result for campaign in campaigns for result in campaign[1:]]
    landed = [one for one in done if one["landed"]]
    checked = [one for one in done if one["next_run"]]
    parts = [*(_of(campaign[0], campaign[1:]) for campaign in campaigns)]
    parts += [
        f"\n**{len(landed)} of {len(done)} injections took effect**; in the others, the target had already ended.",
        f"After {len(checked)} of them an undisturbed run of the same board followed; every run started with the",
        "files that earlier runs had left.\n",
        _table(
            [
                ("misreported", str(sum(not one["right"] for one in done))),
                *((what, str(_left(done, words))) for what, words in _LEFT.items()),
                ("stale locks", str(sum(len(one["stale_locks"]) for one in done))),
                ("broken next runs", str(sum(one["next_run"] != "answer" for one in checked))),
            ],
            ("error", "count"),
        ),
        "",
        _table(_places_and_boards(done), ("location", "board", "injections", "effective", "red")),
        "",
        _table(
            [_line(row, done) for row in rows() if row.place in {one["place"] for one in done}],
            ("fault", "location", "injections", "effective", "results", "red"),
        ),
    ]
    if any(_red(one) for one in done):
        parts += ["\nRed injections; later commits corrected their causes:\n"]
        parts += [_told(campaign[0], one) for campaign in campaigns for one in campaign[1:] if _red(one)]
    return "\n".join(parts) + "\n"


# What the places say of it begins or goes on so; what else is left are processes, containers and hosts.
_LEFT = {"leases left after their deadline": " is held by ", "boards given to two": " was given to two", "orphans": ""}


def _left(done: Sequence[Mapping[str, Any]], words: str) -> int:
    others = [each for each in _LEFT.values() if each and each != words]
    left = (each for one in done for each in one["orphans"])
    return sum(words in each and (bool(words) or not any(other in each for other in others)) for each in left)


def _of(header: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> str:
    loads = [one["load"] for one in done]
    busy = f", {header['busy']} processes of load" if header["busy"] else ""
    places, (count, struck, red) = ", ".join(header["places"]), _counts(done)
    return (
        f"- {header['date']}, commit {header['commit'][:7]}, seed {header['seed']}, in {places}: "
        f"{count} injections, {struck} effective, {red} red; on {header['machine']}, Python {header['python']}, "
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
