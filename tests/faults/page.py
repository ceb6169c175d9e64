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


_RESULTS = "## Results: "


def write(results: Sequence[Path]) -> int:
    """Write the results of one or several campaigns to the page."""
    campaigns = [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in results]
    heading = f"{_RESULTS}{', '.join(sorted({place for campaign in campaigns for place in campaign[0]['places']}))}\n"
    _, *sections = re.split(f"^(?={_RESULTS})", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    others = [section.rstrip("\n") + "\n" for section in sections if not section.startswith(heading)]
    PAGE.write_text("\n".join((head(), *others, f"{heading}\n{_results(campaigns)}")), encoding="utf-8")
    return 0


def head() -> str:
    """Return the part of the page that depends on the table only."""
    descriptions = "\n".join(f"- `{name}`: {meaning}" for name, meaning in endings().items())
    answers = "the right one passes, exit code 0; the wrong one fails, exit code 1"
    return _HEAD.format(answers=answers, endings=descriptions, table=_table(_rows(), _KINDS))


_KINDS = ("fault", "location", "actions", "boards", "allowed results")


def _rows() -> list[tuple[str, ...]]:
    return [
        (row.name, row.place, *(", ".join(column) for column in (row.actions, row.boards, row.may))) for row in rows()
    ]


def _results(campaigns: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    results = [result for campaign in campaigns for result in campaign[1:]]
    landed = [result for result in results if result["landed"]]
    checked = [result for result in results if result["next_run"]]
    parts = [*(_summary(campaign[0], campaign[1:]) for campaign in campaigns)]
    parts += [
        f"\n**{len(landed)} of {len(results)} injections took effect**; in the others, the target had already ended.",
        f"After {len(checked)} of them an undisturbed run of the same board followed; every run started with the",
        "files that earlier runs had left.\n",
        _table(
            [
                ("misreported", str(sum(not result["right"] for result in results))),
                *((what, str(_count_leftovers(results, words))) for what, words in _LEFT.items()),
                ("stale locks", str(sum(len(result["stale_locks"]) for result in results))),
                ("broken next runs", str(sum(result["next_run"] != "answer" for result in checked))),
            ],
            ("error", "count"),
        ),
        "",
        _table(_places_and_boards(results), ("location", "board", "injections", "effective", "red")),
        "",
        _table(
            [_row(row, results) for row in rows() if row.place in {result["place"] for result in results}],
            ("fault", "location", "injections", "effective", "results", "red"),
        ),
    ]
    if any(_red(result) for result in results):
        parts += ["\nRed injections; later commits corrected their causes:\n"]
        parts += [_describe(campaign[0], result) for campaign in campaigns for result in campaign[1:] if _red(result)]
    return "\n".join(parts) + "\n"


# Parts of the messages of locations; all others are about processes, containers and hosts.
_LEFT = {"leases left after their deadline": " is held by ", "boards given to two": " was given to two", "orphans": ""}


def _count_leftovers(results: Sequence[Mapping[str, Any]], words: str) -> int:
    others = [text for text in _LEFT.values() if text and text != words]
    left = (text for result in results for text in result["orphans"])
    return sum(words in text and (bool(words) or not any(other in text for other in others)) for text in left)


def _summary(header: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    loads = [result["load"] for result in results]
    busy = f", {header['busy']} processes of load" if header["busy"] else ""
    places, (count, effective, red) = ", ".join(header["places"]), _counts(results)
    return (
        f"- {header['date']}, commit {header['commit'][:7]}, seed {header['seed']}, in {places}: "
        f"{count} injections, {effective} effective, {red} red; on {header['machine']}, Python {header['python']}, "
        f"load average {min(loads, default=0)} to {max(loads, default=0)}{busy}"
    )


def _places_and_boards(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    keys = sorted({(result["place"], result["board"]) for result in results})
    return [
        (*key, *_counts([result for result in results if (result["place"], result["board"]) == key])) for key in keys
    ]


def _counts(results: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    return str(len(results)), str(sum(result["landed"] for result in results)), str(sum(map(_red, results)))


def _row(row: Row, results: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    injections = [result for result in results if (result["kind"], result["place"]) == (row.name, row.place)]
    endings = Counter(result["ending"] for result in injections)
    text = ", ".join(f"{name} {count}" for name, count in endings.most_common())
    count, landed, red = _counts(injections)
    return row.name, row.place, count, landed, text, red


def _red(result: Mapping[str, Any]) -> bool:
    return (
        not result["right"]
        or bool(result["orphans"] or result["stale_locks"])
        or result["next_run"] not in ("", "answer")
    )


def _describe(header: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    errors = ", ".join(filter(None, (*result["orphans"], *result["stale_locks"], result["next_run"])))
    target = (
        f"{result['action']} at {result['moment']}, {result['board']} in {result['place']}, suite {result['suite']}"
    )
    injection = f"seed {header['seed']}, {result['number']}: {result['kind']} ({target})"
    return f"- {injection}: {result['ending']}{f'; {errors}' if errors else ''}"


def _table(lines: Sequence[tuple[str, ...]], titles: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, ("---",) * len(titles), *lines))
