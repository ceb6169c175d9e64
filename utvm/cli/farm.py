# SPDX-License-Identifier: Apache-2.0
"""The commands ``farm.*``: boards that are shared by many, on many hosts."""

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import JsonChoice
from utvm.errors import ExitCode

_FARM = "HOST:PORT of the farm's coordinator (default: LG_COORDINATOR, else 127.0.0.1:20408)"
_VIRTUAL = "virtual boards to offer, comma-separated; one that is named twice is two"
_EXPORT = {
    "virtual": _VIRTUAL,
    "name": "what the farm calls this host (default: its name)",
    "address": "where others log in to this host by ssh (default: its name)",
    "ssh_port": "at which port",
}
_PAGE = "docs/farm.md"


@task(
    example="farm.up --virtual stm32f746,host",
    page=_PAGE,
    in_checkout=True,
    knows_boards=True,
    help={
        **_EXPORT,
        "port": "TCP port of 127.0.0.1 at which the coordinator listens",
        "anyone": "let all users of this computer take boards: labgrid has no passwords (default: only your own)",
    },
)
def up(
    _: Context,
    virtual: str = "",
    name: str = "",
    address: str = "",
    ssh_port: int = 22,
    port: int = 20408,
    anyone: bool = False,
) -> None:
    """Run a farm's coordinator on this computer and offer its boards, until Ctrl-C."""
    from utvm.cli.farm_hosting import run_farm

    run_farm(port, virtual, name, address, ssh_port, anyone=anyone)


@task(
    example="farm.export --farm 127.0.0.1:20408 --virtual stm32f746",
    page=_PAGE,
    in_checkout=True,
    knows_boards=True,
    help={**_EXPORT, "farm": _FARM},
)
def export(
    _: Context, farm: str = "", virtual: str = "", name: str = "", address: str = "", ssh_port: int = 22
) -> None:
    """Offer this computer's boards to a farm, until Ctrl-C."""
    from utvm.cli.farm_hosting import export_boards

    export_boards(farm, virtual, name, address, ssh_port)


@task(
    example="farm.join first --virtual stm32f746",
    page=_PAGE,
    in_checkout=True,
    knows_boards=True,
    positional=["first"],
    help={
        **_EXPORT,
        "first": "where farm.up runs, as ssh calls it",
        "port": "at which the coordinator listens there",
    },
)
def join(
    _: Context,
    first: str,
    virtual: str = "",
    name: str = "",
    address: str = "",
    ssh_port: int = 22,
    port: int = 20408,
) -> None:
    """Offer this computer's boards to the farm of another one, by way of ssh, until Ctrl-C."""
    from utvm.cli.farm_hosting import join_farm

    join_farm(first, port, virtual, name, address, ssh_port)


@task(name="list", example="farm.list", page=_PAGE, in_checkout=True, help={"farm": _FARM})
def list_(_: Context, wanted: JsonChoice, farm: str = "") -> None:
    """Print the boards of a farm: where they are, how they are, and who has them."""
    from utvm.cli.farm_show import list_places

    list_places(wanted, farm)


@task(
    example="farm.status",
    page=_PAGE,
    in_checkout=True,
    help={"farm": _FARM, "metrics": "write it into this file as Prometheus's text, too"},
)
def status(_: Context, wanted: JsonChoice, farm: str = "", metrics: str = "") -> None:
    """Print how many boards of a farm are free, held, away or in quarantine, and who waits."""
    from utvm.cli.farm_show import show_status

    show_status(wanted, farm, metrics)


@task(example="farm.reap", page=_PAGE, in_checkout=True, help={"farm": _FARM})
def reap(_: Context, farm: str = "") -> None:
    """Free the boards whose holders have gone without giving them back."""
    from utvm.cli.farm_show import reap_leases

    reap_leases(farm)


@task(
    example="farm.quarantine desk-stm32f746-1 --why 'its LED smokes'",
    page=_PAGE,
    in_checkout=True,
    positional=["place"],
    help={"place": "the board, as farm.list calls it", "why": "what others are told", "farm": _FARM},
)
def quarantine(_: Context, place: str, why: str = "taken out by hand", farm: str = "") -> None:
    """Take a board out: no run gets it until farm.heal has found it well."""
    from utvm.cli.farm_show import take_out

    take_out(place, why, farm)


@task(
    example="farm.heal desk-stm32f746-1",
    page=_PAGE,
    in_checkout=True,
    positional=["place"],
    help={
        "place": "the board, as farm.list calls it; or all: those that were not taken out by hand",
        "farm": _FARM,
    },
)
def heal(_: Context, place: str, farm: str = "") -> ExitCode:
    """Check boards that are in quarantine, and take back in those that are well."""
    from utvm.cli.farm_show import heal_boards

    return heal_boards(place, farm)
