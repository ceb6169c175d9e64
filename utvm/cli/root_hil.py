# SPDX-License-Identifier: Apache-2.0
"""``hil``, ``nightly`` and ``test``: the commands that run pytest."""

import contextlib
import dataclasses
import functools
import os
import pkgutil
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from utvm import boards, drivers, selection
from utvm.base.process.signals import raise_on_signals, was_interrupted
from utvm.base.storage.files import check_folder, check_writable
from utvm.boards import PATH_VARIABLE, Board
from utvm.cli import output
from utvm.cli.output import print_steps
from utvm.environment.remote import RemoteCommand, RemoteLocation
from utvm.errors import ConfigError, ExitCode, ProvisionError
from utvm.hil import limits, nightly, plugin, report
from utvm.hil import suites as hil_suites
from utvm.hil.project import load_project, select_suites
from utvm.paths import INSTALLED, ROOT, need_checkout, project
from utvm.probe.choice import NotPluggedIn
from utvm.probe.usb import Probe
from utvm.probe.virtual import UsbKind
from utvm.provenance.location import LocationKind, current_kind, parse_kind
from utvm.selection import BoardFolders, BoardSelection, FarmChoice, PlaceChoice, ReportChoice, SuiteChoice

_MARKS = {"quick": "not slow and not nightly", "usual": "not nightly", "nightly": ""}
_TAKES = {"quick": "two minutes", "usual": "18 minutes", "nightly": "hours"}  # On two idle cores.

# One process more than cores: tests often wait for machines and containers. Tests of one file stay together to
# share fixtures. tests/conftest.py defines the order.
_SPREAD = ("-n", str(min((os.cpu_count() or 1) + 1, 5)), "--dist", "loadfile", "--no-loadscope-reorder")

_EXIT_CODES = {0: ExitCode.PASSED, 1: ExitCode.FAILED, 5: ExitCode.FAILED}  # pytest's 5: no tests


def run_suites(
    where: BoardSelection,
    suites: SuiteChoice,
    reports: ReportChoice,
    place: PlaceChoice,
    other: RemoteLocation | None = None,
) -> ExitCode:
    """Run suites on a board.

    Args:
        other: the remote location; by default that of ``place``.
    """
    if suites.reruns not in range(6):
        raise ConfigError(f"--reruns is {suites.reruns}", "give 0 to 5")
    # Reject a wrong command line before a run begins and a report is written.
    where, suites, place = _with_project_defaults(where, suites, place)
    board = boards.load(where.board)
    select_suites(suites.names)
    check_folder(plugin.report_root(reports))
    with contextlib.ExitStack() as stack:
        other = other or _find_location(place, board, stack)
        if other is None:
            FarmChoice(tags=place.tags).require_farm()
        usb = _check_usb(board, where, place.usb, other) if place.usb else None
        probe = None if usb else _find_probe(board, where, other)
        if other is None:
            return ExitCode(_repeat(lambda: hil_suites.run(where, reports, suites=suites), suites.reruns))
        if usb and not where.serial:
            where = dataclasses.replace(where, serial=board.model.serial_number)
        elif probe:
            # A machine of its own has no other probe.
            where = dataclasses.replace(where, serial=probe.serial_number if other.has_usb else probe.selector)
        root = plugin.report_root(reports)
        before = set(root.glob("*/report.json"))
        command = RemoteCommand((), board, where, probe, usb)
        command = _complete_command(command, other, dataclasses.replace(suites, reruns=0), reports)
        code = _repeat(functools.partial(other.run, command), suites.reruns)
        if why := limits.remember_new(root, before):
            output.OUT.print(f"warning: {why}")
    with ProvisionError.on(ValueError, f"the run in {place.in_} was cut off: exit code {code}"):
        return ExitCode(code)


def _repeat(run: Callable[[], int], reruns: int) -> int:
    """Run; repeat a run that has no verdict and was not interrupted, at most ``reruns`` times."""
    while (code := run()) == ExitCode.INFRASTRUCTURE and reruns and not was_interrupted():
        reruns -= 1
        output.OUT.print("no verdict; running again")
        raise_on_signals()
    return code


def _with_project_defaults(
    where: BoardSelection, suites: SuiteChoice, place: PlaceChoice
) -> tuple[BoardSelection, SuiteChoice, PlaceChoice]:
    """Return the selection; without a board, the first of the project's list."""
    content = None if where.board else load_project()
    if content is None:
        return where, suites, place
    entry = content.boards[0]
    folder = project() or Path()
    name = str((folder / entry.board).resolve()) if "/" in entry.board else entry.board
    fields = {field: value for field, value in vars(where).items() if value != getattr(BoardSelection(), field)}
    return (
        dataclasses.replace(selection.narrow(BoardSelection, entry), **{"board": name, **fields}),
        suites if suites.suite else dataclasses.replace(suites, suite=",".join(entry.suites or ())),
        place if place.in_ else dataclasses.replace(place, in_=entry.place),
    )


def _find_probe(board: Board, where: BoardSelection, place: RemoteLocation | None) -> Probe | None:
    """Return the probe on this computer's USB that drives the board; None if it is driven otherwise."""
    if place is not None and place.chooses_board:
        return None
    try:
        return drivers.choose(board, where).probe
    except NotPluggedIn:
        if place is None or not place.has_usb or not where.serial:
            raise
        return None  # it may be on the location's own USB


def _check_usb(board: Board, where: BoardSelection, usb: str, place: RemoteLocation | None) -> UsbKind:
    """Check that a virtual probe of the board can be plugged into a location's USB."""
    known: UsbKind | None = next((kind for kind in get_args(UsbKind) if kind == usb), None)
    if known is None:
        raise ConfigError(f"--usb {usb} is not a probe", f"give one of {', '.join(get_args(UsbKind))}")
    if place is None or not place.has_usb:
        raise ConfigError("--usb needs a location with its own USB", "use it with --in vm")
    if not board.virtual.model or where.kind == "physical":
        raise ConfigError("--usb is the probe of a virtual board that is a software model", "leave it out")
    return known


def _find_location(choice: PlaceChoice, board: Board, stack: contextlib.ExitStack) -> RemoteLocation | None:
    """Return the remote location, or None for this one. The stack ends its progress."""
    here, place = current_kind(), choice.in_
    if not place and here == "host" and (tool := _find_missing_tool(board)):
        output.OUT.print(f"{tool} is not installed here: running in a container (--in host: here)")
        place = "docker"
    if place in ("", here):
        return None
    if here != "host":
        raise ConfigError(f"this runs in {here}, where {place} is not available", "leave --in out")
    if place != "docker":
        need_checkout(f"--in {place}")
    kind = parse_kind(place, "--in says where to run")
    return remote_location(kind, choice, stack.enter_context(print_steps()))


def _find_missing_tool(board: Board) -> str:
    """Return a missing tool of the board that only a container has: there is an engine, and inv installs nothing."""
    can_install = not INSTALLED and shutil.which("dpkg-query")
    if can_install or not ("DOCKER_HOST" in os.environ or shutil.which("docker")):
        return ""
    needed = [board.compiler.data.prefix + "gcc", *(["openocd"] if board.virtual.model else [])]
    return next((tool for tool in needed if shutil.which(tool) is None), "")


def remote_location(kind: LocationKind, choice: PlaceChoice, say: Callable[[str], None]) -> RemoteLocation:
    """Return the remote location of a kind. To add one: a class with ``run``, a row here, a ``LocationKind``.

    Args:
        say: receives each step before a command runs there, and an empty string when it begins.
    """
    # Import only the module of this kind: imports are slow, and warn if Docker or Vagrant is missing.
    places: dict[LocationKind, tuple[str, tuple[PlaceChoice, ...]]] = {
        "docker": ("utvm.environment.container:InContainer", ()),
        "vm": ("utvm.environment.machine.machine:InMachine", ()),
        "farm": ("utvm.farm.location:InFarm", (choice,)),
    }
    name, arguments = places[kind]
    location: RemoteLocation = pkgutil.resolve_name(name)(say, *arguments)
    return location


def _complete_command(
    command: RemoteCommand, other: RemoteLocation, suites: SuiteChoice, reports: ReportChoice
) -> RemoteCommand:
    where = command.selection
    if other.chooses_board:
        where = dataclasses.replace(where, kind="auto", serial="", wait=0.0)
    root = plugin.report_root(reports)
    suites_selected = select_suites(suites.names)
    if suites_selected.own:
        suites = dataclasses.replace(suites, suite=",".join(f"./{path}" for path in suites_selected.paths))
    return dataclasses.replace(
        command,
        words=(
            ("hil",),
            *selection.parts(where),
            *selection.parts(suites),
            *selection.parts(BoardFolders(os.environ.get(PATH_VARIABLE, ""))),
            *selection.parts(ReportChoice(str(root))),
        ),
        output_folders=(root, report.logs_beside(root)),
        cwd=suites_selected.root if suites_selected.own else None,
    )


def run_nightly(config: str, only: str, jobs: int, report_dir: str, notify: str, advisories: str) -> ExitCode:
    """Run the suites on every board of a list.

    Args:
        only: names of boards, separated by commas; empty for all.
        jobs: number of boards in parallel; 0 for as many as the machine can run.
        notify: file for a message on tests that broke or recovered; empty for none.
        advisories: folder of advisories for locked packages; empty for none.
    """
    jobs = nightly.count_parallel_jobs(jobs)
    check_writable(*(path for _, path in nightly.parse_targets(notify)))
    jobs_listed = nightly.load(Path(config) if config else nightly.default_list())
    root = Path(report_dir).resolve() if report_dir else plugin.report_root(ReportChoice()) / "nightly"
    jobs_selected = nightly.select(jobs_listed, SuiteChoice(only).names)
    audit = None
    if advisories:
        from utvm.environment.audit import report_on

        audit = report_on(Path(advisories))
    return nightly.run(jobs_selected, jobs=jobs, report_root=root, notify=notify, advisories=audit)


def run_tests(quick: bool, nightly: bool) -> ExitCode:
    if quick and nightly:
        raise ConfigError("--quick and --nightly exclude each other", "give one, or neither")
    kind = "quick" if quick else "nightly" if nightly else "usual"
    output.OUT.print(f"the {kind} tests take {_TAKES[kind]} on two idle cores")
    os.chdir(ROOT)
    # Some tests start a command hundreds of times: compile its modules once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return _EXIT_CODES.get(int(pytest.main(["-m", _MARKS[kind], *_SPREAD])), ExitCode.INFRASTRUCTURE)
