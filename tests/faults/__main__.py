# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.faults run`` and ``python -m tests.faults page``."""

import argparse
import contextlib
import datetime
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.faults import page
from tests.faults.campaign import Campaign, Result, as_line, chosen, header
from tests.faults.places import PLACES
from tests.faults.surroundings import made
from utvm.base.process.signals import raise_on_signals

_OWN_MOUNTS = "UTVM_FAULTS_MOUNTS"
_FINE = ("", "answer")


def _told(result: Result) -> str:
    where = f"{result.deed} at {result.moment}, {result.board}, {result.suite}, {result.place}"
    found = [*result.orphans, *result.stale_locks, *(["a broken next run"] if result.next_run not in _FINE else [])]
    struck = "" if result.landed else " (nothing to strike)"
    mark = "RED" if result.red else "   "
    told = f"{mark} {result.number:5} {result.kind}, {where}: {result.ending}{struck} ({result.seconds} s)"
    return "; ".join((told, *found))


def _run(arguments: argparse.Namespace) -> int:
    until = arguments.until and datetime.datetime.strptime(arguments.until, "%H:%M").time()
    said, first = _begun(arguments)
    print(f"seed {said['seed']}", flush=True)
    red = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="utvm-faults-"))
        out = stack.enter_context(arguments.out.open("a"))
        table = chosen(said["places"], said.get("boards", []))
        around = stack.enter_context(made(Path(folder), said["places"], usb=any(row.what == "usb" for row in table)))
        campaign = stack.enter_context(Campaign(around, said["seed"], said["every"], table))
        for _ in range(said["busy"]):
            stack.enter_context(_busy())
        for result in campaign.results(range(first, arguments.first + arguments.count)):
            out.write(as_line(result))
            out.flush()
            red += result.red
            print(_told(result), flush=True)
            if until and datetime.datetime.now().time() >= until:
                break
    return 1 if red else 0


def _begun(arguments: argparse.Namespace) -> tuple[Mapping[str, Any], int]:
    """Begin a file of results, or go on with it: return what it was begun with, and the next number."""
    if arguments.out.exists():
        said, *results = map(json.loads, arguments.out.read_text(encoding="utf-8").splitlines())
        return said, results[-1]["number"] + 1 if results else arguments.first
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(10**6)
    boards = arguments.boards.split(",") if arguments.boards else []
    said = header(seed, arguments.every, arguments.places.split(","), boards, arguments.busy)
    arguments.out.write_text(as_line(said), encoding="utf-8")
    return said, arguments.first


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Keep a processor busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def main() -> int:
    """Strike runs, or write the page of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="strike runs; exit code 1 when one is red")
    run.add_argument("--count", type=int, default=1000)
    run.add_argument("--first", type=int, default=0, help="number of the first injection, to repeat one")
    run.add_argument("--seed", type=int, default=None, help="what injections are drawn from; default: any")
    run.add_argument("--every", type=int, default=1, help="how often to make a run that nobody strikes")
    run.add_argument("--places", default="host", help=f"where to: some of {', '.join(PLACES)}")
    run.add_argument("--boards", default="", help="which, with commas between; default: all in the table")
    run.add_argument("--busy", type=int, default=0, help="how many processes keep the computer busy meanwhile")
    run.add_argument("--until", default="", help="HH:MM: begin no injection after that")
    run.add_argument("--out", type=Path, required=True, help="file of results; goes on with one")
    run.set_defaults(do=_run)
    written = commands.add_parser("page", help="write docs/reliability.md")
    written.add_argument("results", type=Path, nargs="+")
    written.set_defaults(do=lambda arguments: page.write(arguments.results))
    arguments = parser.parse_args()
    # Whoever ends a campaign leaves nothing of it, also where Ctrl-C is ignored, as in the background.
    raise_on_signals()
    if arguments.do is _run and _OWN_MOUNTS not in os.environ:
        # The small disk is ours alone, and gone however we end.
        os.environ[_OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", "tests.faults", *sys.argv[1:]])
    done: int = arguments.do(arguments)
    return done


if __name__ == "__main__":
    sys.exit(main())
