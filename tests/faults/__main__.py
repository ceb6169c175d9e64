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
from tests.faults.campaign import Campaign, Result, create_header, select_rows, to_line
from tests.faults.places import PLACES
from tests.faults.surroundings import surroundings_in
from utvm.base.process.signals import raise_on_signals

_OWN_MOUNTS = "UTVM_FAULTS_MOUNTS"
_FINE = ("", "answer")


def _describe(result: Result) -> str:
    target = f"{result.action} at {result.moment}, {result.board}, {result.suite}, {result.place}"
    errors = [*result.orphans, *result.stale_locks, *(["a broken next run"] if result.next_run not in _FINE else [])]
    note = "" if result.landed else " (nothing to strike)"
    mark = "RED" if result.red else "   "
    text = f"{mark} {result.number:5} {result.kind}, {target}: {result.ending}{note} ({result.seconds} s)"
    return "; ".join((text, *errors))


def _run(arguments: argparse.Namespace) -> int:
    until = arguments.until and datetime.datetime.strptime(arguments.until, "%H:%M").time()
    header, first = _open_results(arguments)
    print(f"seed {header['seed']}", flush=True)
    red = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="utvm-faults-"))
        out = stack.enter_context(arguments.out.open("a"))
        table = select_rows(header["places"], header.get("boards", []))
        around = stack.enter_context(
            surroundings_in(Path(folder), header["places"], usb=any(row.what == "usb" for row in table))
        )
        campaign = stack.enter_context(Campaign(around, header["seed"], header["every"], table))
        for _ in range(header["busy"]):
            stack.enter_context(_busy())
        for result in campaign.results(range(first, arguments.first + arguments.count)):
            out.write(to_line(result))
            out.flush()
            red += result.red
            print(_describe(result), flush=True)
            if until and datetime.datetime.now().time() >= until:
                break
    return 1 if red else 0


def _open_results(arguments: argparse.Namespace) -> tuple[Mapping[str, Any], int]:
    """Create a file of results, or continue it; return its header and the next number."""
    if arguments.out.exists():
        header, *results = map(json.loads, arguments.out.read_text(encoding="utf-8").splitlines())
        return header, results[-1]["number"] + 1 if results else arguments.first
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(10**6)
    boards = arguments.boards.split(",") if arguments.boards else []
    header = create_header(seed, arguments.every, arguments.places.split(","), boards, arguments.busy)
    arguments.out.write_text(to_line(header), encoding="utf-8")
    return header, arguments.first


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Keep one processor busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def main() -> int:
    """Run a campaign, or write its page."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="inject faults; exit code 1 if a result is red")
    run.add_argument("--count", type=int, default=1000)
    run.add_argument("--first", type=int, default=0, help="number of the first injection")
    run.add_argument("--seed", type=int, default=None, help="seed of the random choices; default: random")
    run.add_argument("--every", type=int, default=1, help="number of injections per undisturbed run")
    run.add_argument("--places", default="host", help=f"locations, with commas between: {', '.join(PLACES)}")
    run.add_argument("--boards", default="", help="boards, with commas between; default: all in the table")
    run.add_argument("--busy", type=int, default=0, help="number of processes that keep the computer busy")
    run.add_argument("--until", default="", help="HH:MM: start no injection afterwards")
    run.add_argument("--out", type=Path, required=True, help="file of results; an existing one is continued")
    run.set_defaults(do=_run)
    write = commands.add_parser("page", help="write docs/reliability.md")
    write.add_argument("results", type=Path, nargs="+")
    write.set_defaults(do=lambda arguments: page.write(arguments.results))
    arguments = parser.parse_args()
    # A signal ends all processes of a campaign, also in the background, where Ctrl-C is ignored.
    raise_on_signals()
    if arguments.do is _run and _OWN_MOUNTS not in os.environ:
        # The mount of the small disk is private to this process, and ends with it.
        os.environ[_OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", "tests.faults", *sys.argv[1:]])
    code: int = arguments.do(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
