# SPDX-License-Identifier: Apache-2.0
"""The commands ``farm.*``: boards that are shared by many, on many hosts."""

from invoke.context import Context

from utvm.cli import task

_VIRTUAL = "virtual boards to offer, comma-separated; a name given twice offers two"
_EXPORT = {
    "virtual": _VIRTUAL,
    "name": "name of this host in the farm (default: its host name)",
    "address": "SSH address of this host for others, HOST or HOST:PORT (default: its host name)",
}
_PAGE = "docs/farm.md"


@task(
    runs="farm_hosting:run_farm",
    example="farm.up --virtual stm32f746,host",
    page=_PAGE,
    in_checkout=True,
    help={
        **_EXPORT,
        "port": "TCP port of 127.0.0.1 for the coordinator",
        "anyone": "let all users of this computer take boards: labgrid has no passwords (default: only you)",
    },
)
def up(
    _: Context, virtual: str = "", name: str = "", address: str = "", port: int = 20408, anyone: bool = False
) -> None:
    """Run a farm's coordinator on this computer and offer its boards, until Ctrl-C."""


@task(
    runs="farm_hosting:export_boards",
    example="farm.export --through first --virtual stm32f746",
    page=_PAGE,
    in_checkout=True,
    help={
        **_EXPORT,
        "through": "SSH name of the host that runs farm.up, for a coordinator that only that host reaches",
        "port": "with --through: TCP port of the coordinator there",
    },
)
def export(
    _: Context, through: str = "", virtual: str = "", name: str = "", address: str = "", port: int = 20408
) -> None:
    """Offer this computer's boards to a farm, directly or through ssh, until Ctrl-C."""


@task(
    runs="farm_show:list_places",
    name="list",
    example="farm.list",
    page=_PAGE,
    json=True,
    in_checkout=True,
    help={
        "summary": "count boards that are free, held, away or in quarantine, and list who waits",
        "metrics": "with --summary: also write this file, in Prometheus's text format",
    },
)
def list_(_: Context, summary: bool = False, metrics: str = "") -> None:
    """List the boards of the farm at LG_COORDINATOR, by default 127.0.0.1:20408: host, state and holder."""


@task(
    runs="farm_show:take_out",
    example="farm.quarantine desk-stm32f746-1 --why 'its LED smokes'",
    page=_PAGE,
    in_checkout=True,
    positional=["place"],
    help={"place": "board, by its name in farm.list", "why": "reason, shown to others"},
)
def quarantine(_: Context, place: str, why: str = "taken out by hand") -> None:
    """Put a board into quarantine: no run gets it until it passes farm.heal."""


@task(
    runs="farm_show:heal_boards",
    example="farm.heal desk-stm32f746-1",
    page=_PAGE,
    in_checkout=True,
    positional=["place"],
    file_optional=True,
    help={"place": "board in quarantine; all: those not taken out by hand (default: only free expired leases)"},
)
def heal(_: Context, place: str) -> None:
    """Free boards whose lease has expired; return a board from quarantine if it passes the suite health."""
