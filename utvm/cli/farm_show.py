# SPDX-License-Identifier: Apache-2.0
"""``farm.list``, ``farm.quarantine`` and ``farm.heal``."""

from collections import Counter
from pathlib import Path
from typing import Any

from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.cli import output, progress
from utvm.cli.root_hil import run_suites
from utvm.errors import ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.farm.client import FarmClient, coordinator_address
from utvm.hil.nightly.runner import HEALTH
from utvm.history.exports import gauge
from utvm.selection import BoardSelection, PlaceChoice, ReportChoice, SuiteChoice

_ALL = "all"
_STATES = ("free", "held", "away", "quarantine")


def _call(method: str, *, install: bool = True, **arguments: object) -> list[dict[str, Any]]:
    """Call all coordinators; return the replies, and print why others do not answer. Raises without a reply."""
    replies, failures, log = list[dict[str, Any]](), list[UtvmError](), output.logs_of("farm") / "labgrid.log"
    with progress.print_steps() as say:
        for address in coordinator_address().split(","):
            try:
                with FarmClient(address, log, say, install=install) as client:
                    replies.append(client.call(method, **arguments))
            except UtvmError as error:
                failures.append(error)
    if not replies:
        raise max(failures, key=lambda failure: failure.exit_code)
    for failure in failures:
        # With several sites, only one has the board.
        if not isinstance(failure, ConfigError):
            output.OUT.print(f"warning: left out: {failure.message}")
    return replies


def _list_all(*, install: bool = True) -> dict[str, list[Any]]:
    replies = _call("list", install=install)
    return {key: [entry for reply in replies for entry in reply[key]] for key in ("places", "waiting")}


def list_places(summary: bool, metrics: str) -> None:
    """Print the boards of a farm, or their number in each state."""
    check_writable(metrics)
    places = _list_all(install=False)
    if summary or metrics:
        _summarise(places, metrics)
        return
    output.OUT.results(places)
    for place in places["places"]:
        tags, state = place["tags"], state_of(place)
        remark = {"held": f" by {place['holder']}", "quarantine": f": {place['comment']}"}.get(state, "")
        board = ", ".join(tags[name] for name in ("board", "kind") if name in tags)
        host = tags.get("host", "an unknown host")
        output.OUT.print(printable(f"{place['place']}  {board}, at {host}: {state}{remark}"))


def _summarise(places: dict[str, Any], metrics: str) -> None:
    """Print the number of boards in each state and the queue; ``metrics`` is a file for Prometheus."""
    counts = dict(Counter(map(state_of, places["places"])))
    if metrics:
        states = [({"state": state}, counts.get(state, 0)) for state in _STATES]
        text = gauge("utvm_farm_boards", "Boards of the farm by state.", states)
        text += gauge("utvm_farm_waiting", "Runs that wait for a board.", [({}, len(places["waiting"]))])
        write_whole(Path(metrics), text)
    output.OUT.results({"boards": counts, "waiting": places["waiting"]})
    output.OUT.print(
        f"{len(places['places'])} boards: {', '.join(f'{n} {state}' for state, n in sorted(counts.items()))}"
    )
    for position, waiting in enumerate(places["waiting"], 1):
        tags = ", ".join(f"{name}={value}" for name, value in waiting["wants"].items())
        output.OUT.print(printable(f"{position}. in line: {waiting['holder']}, for {tags}"))


def take_out(place: str, why: str) -> None:
    _call("mark", place=place, health="bad", comment=why)
    output.OUT.print(printable(f"{place} is in quarantine: {why}"))


def heal_boards(place: str) -> ExitCode:
    """Free expired leases; check quarantined boards, and return those that pass to the farm.

    Args:
        place: the board; ``all`` for those quarantined automatically; empty for none.

    Returns:
        The worst exit code of the checks.
    """
    freed = [lease for reply in _call("reap") for lease in reply["freed"]]
    for lease in freed:
        output.OUT.print(printable(f"freed {lease['place']}, held by {lease['holder']}"))
    output.OUT.print(f"{len(freed)} boards freed")
    if not place:
        return ExitCode.PASSED
    places = [board for board in _list_all()["places"] if board["tags"].get("health") == "bad"]
    bad = [board for board in places if (board["judged"] if place == _ALL else board["place"] == place)]
    if place != _ALL and not bad:
        raise ConfigError(f"{place} is not in quarantine", "./inv farm.list shows them")
    codes = [_heal(board) for board in bad]
    if not codes:
        output.OUT.print("no board is in quarantine")
    return max(codes, default=ExitCode.PASSED)


def _heal(board: dict[str, Any]) -> ExitCode:
    """Check a board as often as its host requires, until it fails."""
    name = board["place"]
    where = PlaceChoice("farm", tags=f"name={name},health=bad")
    for _ in range(board["well_after"]):
        try:
            code = run_suites(BoardSelection(board["tags"]["board"]), SuiteChoice(HEALTH), ReportChoice(), where)
        except ProvisionError as error:
            output.OUT.print(printable(f"{name}: {error.message}"))
            code = ExitCode.INFRASTRUCTURE
        if code is not ExitCode.PASSED:
            break
    else:
        _call("mark", place=name, health="ok", comment="")
    output.OUT.print(printable(f"{name} is {'well again' if code is ExitCode.PASSED else 'still in quarantine'}"))
    return code


def state_of(place: dict[str, Any]) -> str:
    if place["tags"].get("health", "ok") != "ok":
        return "quarantine"
    if place["holder"]:
        return "held"
    return "free" if place["present"] else "away"
