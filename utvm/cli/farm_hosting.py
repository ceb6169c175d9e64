# SPDX-License-Identifier: Apache-2.0
"""``farm.up`` and ``farm.export``: boards of this computer in a farm."""

import contextlib
import platform
import re
from collections import Counter

from utvm import boards, drivers, errors, selection
from utvm.base.process.peer import access_note
from utvm.base.text.quoting import printable
from utvm.cli.output import OUT, logs_of
from utvm.farm.client import coordinator_address
from utvm.farm.hosted import Host, OfferedBoard, coordinator, coordinator_tunnel, export
from utvm.hil.project import quarantine
from utvm.paths import work
from utvm.probe.choice import ids_of, match_of
from utvm.probe.usb import detect

_LAST_PORT = 65535


def run_farm(port: int, virtual: str, name: str, address: str, *, anyone: bool) -> None:
    if not 0 < port <= _LAST_PORT:
        raise errors.ConfigError(f"--port goes from 1 to {_LAST_PORT}")
    host = parse_host(name, address)
    offers = boards_to_offer(host.name, virtual)
    logs, listen, state = logs_of("farm.up"), f"127.0.0.1:{port}", work() / "farm" / str(port)
    with coordinator(port, state, logs / "coordinator.log", _say, anyone=anyone) as service:
        _say(f"coordinator: {listen}; {access_note(anyone=anyone)}")
        export(listen, host, offers, logs, _say, service.check)


def export_boards(through: str, virtual: str, name: str, address: str, port: int) -> None:
    """Offer this computer's boards to a coordinator, directly or through ssh, until Ctrl-C."""
    if through.startswith("-"):
        raise errors.ConfigError(f"{through!r} is not a host name for ssh", "give HOST or USER@HOST")
    host = parse_host(name, address)
    offers, logs = boards_to_offer(host.name, virtual), logs_of("farm.export")
    tunnel = coordinator_tunnel(through, port) if through else contextlib.nullcontext(coordinator_address())
    if not through and "," in coordinator_address():
        raise errors.ConfigError("LG_COORDINATOR names several coordinators", "a host offers its boards to one")
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
        raise errors.ConfigError("there is no board to offer", "plug one in, or give --virtual stm32f746")
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
        raise errors.ConfigError(f"--address {address}: its port is not from 1 to {_LAST_PORT}", "HOST or HOST:PORT")
    rules = quarantine()
    own = platform.node()
    return Host(name or own, computer or own, int(port or 22), rules.bad_after, rules.well_after)


def _say(line: str) -> None:
    if line:
        OUT.print(printable(line))
