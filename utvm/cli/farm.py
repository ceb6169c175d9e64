# SPDX-License-Identifier: Apache-2.0
"""Functions of ``commands/farm.yaml``, and a command for one board run at its host in a farm.

The latter copies the files of the command there and back.
"""

import contextlib
import dataclasses
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm import boards, drivers, paths, selection
from utvm.base.process.peer import access_note
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.cli.choices import TuneChoice
from utvm.cli.output import OUT, STDOUT, logs_of, print_steps
from utvm.cli.root_hil import run_suites
from utvm.environment.remote import RemoteCommand
from utvm.errors import ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.farm.client import FarmClient, coordinator_address
from utvm.farm.hosted import Host, OfferedBoard, coordinator, coordinator_tunnel, export
from utvm.farm.location import InFarm
from utvm.hil.nightly.runner import HEALTH
from utvm.hil.project import quarantine
from utvm.history.exports import gauge
from utvm.paths import work
from utvm.probe.choice import ids_of, match_of
from utvm.probe.usb import detect
from utvm.selection import BoardSelection, PlaceChoice, ReportChoice, SuiteChoice

_LAST_PORT = 65535
_ALL = "all"
_STATES = ("free", "held", "away", "quarantine")


def run_farm(port: int, virtual: str, name: str, address: str, *, anyone: bool) -> None:
    if not 0 < port <= _LAST_PORT:
        raise ConfigError(f"--port goes from 1 to {_LAST_PORT}")
    host = parse_host(name, address)
    offers = boards_to_offer(host.name, virtual)
    logs, listen, state = logs_of("farm.up"), f"127.0.0.1:{port}", work() / "farm" / str(port)
    with coordinator(port, state, logs / "coordinator.log", _say, anyone=anyone) as service:
        _say(f"coordinator: {listen}; {access_note(anyone=anyone)}")
        export(listen, host, offers, logs, _say, service.check)


def export_boards(through: str, virtual: str, name: str, address: str, port: int) -> None:
    """Offer this computer's boards to a coordinator, directly or through ssh, until Ctrl-C."""
    if through.startswith("-"):
        raise ConfigError(f"{through!r} is not a host name for ssh", "give HOST or USER@HOST")
    host = parse_host(name, address)
    offers, logs = boards_to_offer(host.name, virtual), logs_of("farm.export")
    tunnel = coordinator_tunnel(through, port) if through else contextlib.nullcontext(coordinator_address())
    if not through and "," in coordinator_address():
        raise ConfigError("LG_COORDINATOR names several coordinators", "a host offers its boards to one")
    with tunnel as coordinator_here:
        export(coordinator_here, host, offers, logs, _say)


def boards_to_offer(host: str, virtual: str) -> tuple[OfferedBoard, ...]:
    """Return the boards that this computer offers: plugged-in and requested virtual ones.

    Args:
        host: name of this computer in the farm.
        virtual: comma-separated names; a repeated name is several boards.
    """
    offers = list(_plugged_in(host))
    counts: Counter[str] = Counter()
    for name in filter(None, map(str.strip, virtual.split(","))):
        board = boards.load(name)
        # A program on this computer is not a virtual board; its driver decides.
        kind = "process" if drivers.choose(board, selection.BoardSelection()).kind == "process" else "virtual"
        if kind == "virtual":
            drivers.choose(board, selection.BoardSelection(kind="virtual"))
        counts[board.full_name] += 1
        place = _place_name(host, board.full_name, str(counts[board.full_name]))
        offers.append(OfferedBoard(place, drivers.BoardIdentity(board.full_name, kind), board.cpu))
    if not offers:
        raise ConfigError("there is no board to offer", "plug one in, or give --virtual stm32f746")
    return tuple(offers)


def _plugged_in(host: str) -> list[OfferedBoard]:
    """Return the boards at this computer's probes; ambiguous ones are left out with a message."""
    known, offers = boards.probe_boards(), []
    for probe in detect([ids for board in known for ids in ids_of(board)]).probes:
        candidates = [board for board in known if match_of(board, probe)]
        if probe.virtual or probe.problem or not probe.serial_number or len(candidates) != 1:
            names = " or ".join(board.name for board in candidates)
            _say(f"left out: {probe.full_name}: {probe.problem or f'it may be {names}'}")
            continue
        (board,) = candidates
        place = _place_name(host, board.name, probe.serial_number)
        identity = drivers.BoardIdentity(board.name, "physical", serial=probe.serial_number)
        offers.append(OfferedBoard(place, identity, board.cpu))
    return offers


def _place_name(*parts: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts))


def parse_host(name: str, address: str) -> Host:
    """Return this host; ``address`` is HOST, HOST:PORT, or [ADDRESS]:PORT of IPv6 (RFC 3986, 3.2.2)."""
    match = re.fullmatch(r"\[([^]]*)\](?::(.*))?|([^:]*):([^:]*)", address)
    computer, port = (match[1] or match[3], match[2] or match[4]) if match else (address, "")
    if port and not (port.isdecimal() and 0 < int(port) <= _LAST_PORT):
        raise ConfigError(f"--address {address}: its port is not from 1 to {_LAST_PORT}", "HOST or HOST:PORT")
    rules = quarantine()
    own = platform.node()
    return Host(name or own, computer or own, int(port or 22), rules.bad_after, rules.well_after)


def _say(line: str) -> None:
    if line:
        OUT.print(printable(line))


def _call(method: str, *, install: bool = True, **arguments: object) -> list[dict[str, Any]]:
    """Call all coordinators; return the replies, and print why others do not answer. Raises without a reply."""
    replies, failures, log = list[dict[str, Any]](), list[UtvmError](), logs_of("farm") / "labgrid.log"
    with print_steps() as say:
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
            OUT.print(f"warning: left out: {failure.message}")
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
    OUT.results(places)
    for place in places["places"]:
        tags, state = place["tags"], state_of(place)
        remark = {"held": f" by {place['holder']}", "quarantine": f": {place['comment']}"}.get(state, "")
        board = ", ".join(tags[name] for name in ("board", "kind") if name in tags)
        host = tags.get("host", "an unknown host")
        OUT.print(printable(f"{place['place']}  {board}, at {host}: {state}{remark}"))


def _summarise(places: dict[str, Any], metrics: str) -> None:
    """Print the number of boards in each state and the queue; ``metrics`` is a file for Prometheus."""
    counts = dict(Counter(map(state_of, places["places"])))
    if metrics:
        states = [({"state": state}, counts.get(state, 0)) for state in _STATES]
        text = gauge("utvm_farm_boards", "Boards of the farm by state.", states)
        text += gauge("utvm_farm_waiting", "Runs that wait for a board.", [({}, len(places["waiting"]))])
        write_whole(Path(metrics), text)
    OUT.results({"boards": counts, "waiting": places["waiting"]})
    OUT.print(f"{len(places['places'])} boards: {', '.join(f'{n} {state}' for state, n in sorted(counts.items()))}")
    for position, waiting in enumerate(places["waiting"], 1):
        tags = ", ".join(f"{name}={value}" for name, value in waiting["wants"].items())
        OUT.print(printable(f"{position}. in line: {waiting['holder']}, for {tags}"))


def take_out(place: str, why: str) -> None:
    _call("mark", place=place, health="bad", comment=why)
    OUT.print(printable(f"{place} is in quarantine: {why}"))


def heal_boards(place: str) -> ExitCode:
    """Free expired leases; check quarantined boards, and return those that pass to the farm.

    Args:
        place: the board; ``all`` for those quarantined automatically; empty for none.

    Returns:
        The worst exit code of the checks.
    """
    freed = [lease for reply in _call("reap") for lease in reply["freed"]]
    for lease in freed:
        OUT.print(printable(f"freed {lease['place']}, held by {lease['holder']}"))
    OUT.print(f"{len(freed)} boards freed")
    if not place:
        return ExitCode.PASSED
    places = [board for board in _list_all()["places"] if board["tags"].get("health") == "bad"]
    bad = [board for board in places if (board["judged"] if place == _ALL else board["place"] == place)]
    if place != _ALL and not bad:
        raise ConfigError(f"{place} is not in quarantine", "./inv farm.list shows them")
    codes = [_heal(board) for board in bad]
    if not codes:
        OUT.print("no board is in quarantine")
    return max(codes, default=ExitCode.PASSED)


def _heal(board: dict[str, Any]) -> ExitCode:
    """Check a board as often as its host requires, until it fails."""
    name = board["place"]
    where = PlaceChoice("farm", tags=f"name={name},health=bad")
    for _ in range(board["well_after"]):
        try:
            code = run_suites(BoardSelection(board["tags"]["board"]), SuiteChoice(HEALTH), ReportChoice(), where)
        except ProvisionError as error:
            OUT.print(printable(f"{name}: {error.message}"))
            code = ExitCode.INFRASTRUCTURE
        if code is not ExitCode.PASSED:
            break
    else:
        _call("mark", place=name, health="ok", comment="")
    OUT.print(printable(f"{name} is {'well again' if code is ExitCode.PASSED else 'still in quarantine'}"))
    return code


def state_of(place: dict[str, Any]) -> str:
    if place["tags"].get("health", "ok") != "ok":
        return "quarantine"
    if place["holder"]:
        return "held"
    return "free" if place["present"] else "away"


_WRITES = ("output", "log")
"""Options with a file that a command writes."""


def run_in_farm(
    command: str, farm: selection.FarmChoice, records: Sequence[Any], own: Mapping[str, object]
) -> ExitCode:
    """Run a command at the host of its board.

    Args:
        records: its option records, including a :class:`BoardSelection`.
        own: its other options, by parameter name.
    """
    farm.require_farm()
    paths.need_checkout("--in farm")
    if (search := next((record for record in records if isinstance(record, TuneChoice)), None)) and search.count > 1:
        from utvm.cli.model_tune import tune_together

        tune_together(farm, *records)
        return ExitCode.PASSED
    where = next(record for record in records if isinstance(record, selection.BoardSelection))
    files = {name: str(getattr(record, name)) for record in records for name in _WRITES if hasattr(record, name)}
    files |= {name: str(own[name]) for name in _WRITES if name in own} | {"json": OUT.json_target}
    if files.get("log") == "":
        raise ConfigError("--in farm copies back only files that are named", "give --log FILE")
    outputs = {name: Path(path).resolve() for name, path in files.items() if path not in ("", STDOUT)}
    check_writable(*outputs.values())
    host_records = [
        dataclasses.replace(record, kind="auto", serial="", wait=0.0) if record is where else record
        for record in records
    ]
    words = [word for record in host_records for word in selection.parts(record) if _flag(word) not in outputs]
    words += [("--json",)] if OUT.json_target == STDOUT else []
    words += selection.parts(selection.BoardFolders(os.environ.get(boards.PATH_VARIABLE, "")))
    words += [(_spell(name, value),) for name, value in own.items() if value and name not in _WRITES]
    words += [(f"--{name}=", path) for name, path in outputs.items()]
    board = boards.load(where.board)
    with print_steps() as say:
        code = InFarm(say, farm).run(
            RemoteCommand(((command,), *words), board, where, output_files=tuple(outputs.values()))
        )
    with ProvisionError.on(ValueError, f"the run was cut off: exit code {code}"):
        return ExitCode(code)


def _flag(word: selection.Parts) -> str:
    return str(word[0]).partition("=")[0].lstrip("-")


def _spell(name: str, value: object) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag}={value}"
