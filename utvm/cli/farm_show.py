# SPDX-License-Identifier: Apache-2.0
"""What the commands do that look at a farm, and those that take boards out and in."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.cli.choices import JsonChoice
from utvm.cli.output import OUT, check_json, logs_of, write_json
from utvm.cli.progress import telling
from utvm.cli.root_hil import run_suites
from utvm.errors import ConfigError, ExitCode, ProvisionError
from utvm.farm.client import FarmClient, coordinator_address
from utvm.hil.nightly.runner import HEALTH
from utvm.history.exports import gauge
from utvm.selection import BoardSelection, PlaceChoice, ReportChoice, SuiteChoice

_ALL = "all"
_STATES = ("free", "held", "away", "quarantine")


@contextlib.contextmanager
def asked(farm: str) -> Iterator[FarmClient]:
    """Have a session with a farm's coordinator, for the length of a ``with`` block."""
    with (
        telling("farm") as say,
        FarmClient(coordinator_address(farm), logs_of("farm") / "labgrid.log", say) as client,
    ):
        yield client


def list_places(wanted: JsonChoice, farm: str) -> None:
    """Print the boards of a farm."""
    check_json(wanted)
    with asked(farm) as client:
        found = client.call("list")
    if write_json(wanted, found):
        return
    for each in found["places"]:
        tags, state = each["tags"], _state(each)
        remark = {"held": f" by {each['holder']}", "quarantine": f": {each['comment']}"}.get(state, "")
        what = ", ".join(tags[name] for name in ("board", "kind") if name in tags)
        OUT.print(printable(f"{each['place']}  {what}, at {tags.get('host', 'no host of ours')}: {state}{remark}"))


def show_status(wanted: JsonChoice, farm: str, metrics: str) -> None:
    """Print how many boards are in which state, and who waits.

    Args:
        metrics: a file for the numbers, as Prometheus reads them; empty for none.
    """
    check_json(wanted)
    check_writable(metrics)
    with asked(farm) as client:
        found = client.call("list")
    counts = dict(Counter(_state(each) for each in found["places"]))
    if metrics:
        states = [({"state": state}, counts.get(state, 0)) for state in _STATES]
        text = gauge("utvm_farm_boards", "Boards of the farm by state.", states)
        text += gauge("utvm_farm_waiting", "Runs that wait for a board.", [({}, len(found["waiting"]))])
        write_whole(Path(metrics), text)
    if write_json(wanted, {"boards": counts, "waiting": found["waiting"]}):
        return
    OUT.print(f"{len(found['places'])} boards: {', '.join(f'{n} {state}' for state, n in sorted(counts.items()))}")
    for position, each in enumerate(found["waiting"], 1):
        wish = ", ".join(f"{name}={value}" for name, value in each["wants"].items())
        OUT.print(printable(f"{position}. in line: {each['holder']}, for {wish}"))


def reap_leases(farm: str) -> None:
    """Free the boards whose lease is past its deadline, and say which."""
    with asked(farm) as client:
        freed = client.call("reap")["freed"]
    for each in freed:
        OUT.print(printable(f"freed {each['place']}, which {each['holder']} had"))
    OUT.print(f"{len(freed)} boards freed")


def take_out(place: str, why: str, farm: str) -> None:
    """Put a board into quarantine."""
    with asked(farm) as client:
        client.call("mark", place=place, health="bad", comment=why)
    OUT.print(printable(f"{place} is in quarantine: {why}"))


def heal_boards(place: str, farm: str) -> ExitCode:
    """Run health checks on boards that are in quarantine, and take back in those that pass.

    Args:
        place: the board; ``all`` for those that were not taken out by hand.

    Returns:
        The worst of the checks.
    """
    with asked(farm) as client:
        found = [each for each in client.call("list")["places"] if each["tags"].get("health") == "bad"]
    bad = [each for each in found if (each["judged"] if place == _ALL else each["place"] == place)]
    if place != _ALL and not bad:
        raise ConfigError(f"{place} is no board in quarantine", "./inv farm.list shows what there is")
    codes = [_heal(each, farm) for each in bad]
    if not codes:
        OUT.print("no board is to be healed")
    return max(codes, default=ExitCode.PASSED)


def _heal(board: dict[str, Any], farm: str) -> ExitCode:
    """Check a board as often as its host says, until it does not pass."""
    name = board["place"]
    where = PlaceChoice("farm", farm=farm, place=name, tags="health=bad")
    for _ in range(board["well_after"]):
        try:
            code = run_suites(BoardSelection(board["tags"]["board"]), SuiteChoice(HEALTH), ReportChoice(), where)
        except ProvisionError as error:
            OUT.print(printable(f"{name}: {error.message}"))
            code = ExitCode.INFRASTRUCTURE
        if code is not ExitCode.PASSED:
            break
    else:
        with asked(farm) as client:
            client.call("mark", place=name, health="ok", comment="")
    OUT.print(printable(f"{name} is {'well again' if code is ExitCode.PASSED else 'still in quarantine'}"))
    return code


def _state(each: dict[str, Any]) -> str:
    """Return how a board is, in a word: in the order in which it matters to who wants it."""
    if each["tags"].get("health", "ok") != "ok":
        return "quarantine"
    if each["holder"]:
        return "held"
    return "free" if each["present"] else "away"
