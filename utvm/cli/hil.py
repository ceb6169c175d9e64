"""What ``hil`` and ``nightly`` do."""

import os
from collections.abc import Sequence
from pathlib import Path

from utvm import boards, hil
from utvm.boards import PATH_VARIABLE, split_name
from utvm.cli.opening import Where
from utvm.environment.places.errand import Errand, Target
from utvm.environment.places.here import Kind, checked, kind_here
from utvm.errors import ConfigError, ExitCode, ProvisionError
from utvm.hil import nightly
from utvm.hil.plugin import REPORT_ROOT
from utvm.hil.report import logs_beside
from utvm.hil.suites import check_names, check_wish
from utvm.probe.choice import wish

NIGHTLY_ROOT = REPORT_ROOT / "nightly"


def run_suites(where: Where, suites: str, report_dir: str, place: str) -> ExitCode:
    """Run suites on a board.

    Args:
        suites: names of suites, separated by commas; empty for all.
        report_dir: directory of all reports; empty for ``build/reports``.
        place: where to run; empty for here.

    Raises:
        ConfigError: no such board, suite or place, or switches that exclude each other.
        ProbeError: the physical board that was asked for is not plugged in.
        ProvisionError: the place cannot be had, or what ran there came to no end of its own.
        KeyboardInterrupt: interrupted before the run had begun, or in another place.
    """
    kind = wish(where.physical, where.virtual)
    # Wrong words on the command line are answered before a run begins and a report is written.
    target = Target(boards.load_any(where.board), kind, where.serial)
    check_wish(target.board, kind, where.serial)
    names = _words(suites)
    check_names(names)
    root = Path(report_dir).resolve() if report_dir else REPORT_ROOT
    other = _other_place(place)
    if other is None:
        return hil.run(where.board, kind, serial=where.serial, suites=names, report_root=root)
    return _run_elsewhere(other, where, target, names, root)


def _other_place(place: str) -> Kind | None:
    """Return the place that is meant; None where that is here."""
    here = kind_here()
    if place in ("", here):
        return None
    if here != "host":
        raise ConfigError(
            f"this is a place of its own, {here}: from here there is no way to {place}", "leave --in out"
        )
    return checked(place, "--in says where to run")


def _run_elsewhere(kind: Kind, where: Where, target: Target, suites: Sequence[str], report_root: Path) -> ExitCode:
    from utvm.environment.places.elsewhere import ELSEWHERE

    name, settings = split_name(where.board)
    board = (Path(name).resolve(), settings) if "/" in name else (where.board,)
    folders = [Path(folder).resolve() for folder in os.environ.get(PATH_VARIABLE, "").split(":") if folder]
    errand = Errand(
        words=(
            ("hil",),
            ("--board=", *board),
            *((("--physical",),) if where.physical else ()),
            *((("--virtual",),) if where.virtual else ()),
            *(((f"--serial={where.serial}",),) if where.serial else ()),
            *(((f"--suite={','.join(suites)}",),) if suites else ()),
            *((("--board-path=", *_between(":", folders)),) if folders else ()),
            ("--report-dir=", report_root),
        ),
        target=target,
        fills=(report_root, logs_beside(report_root)),
    )
    code = ELSEWHERE[kind].run(errand)
    try:
        return ExitCode(code)
    except ValueError:
        raise ProvisionError(f"the run in {kind} came to no end of its own: exit code {code}") from None


def _between(mark: str, folders: Sequence[Path]) -> list[str | Path]:
    """Return folders with a mark between them."""
    return [part for folder in folders for part in (mark, folder)][1:]


def run_nightly(config: str, only: str, jobs: int, report_dir: str) -> ExitCode:
    """Run the suites on every board of a list.

    Args:
        config: the list; empty for the project's own.
        only: names of boards, separated by commas; empty for all.
        jobs: how many boards at once; 0 for as many as the machine carries.
        report_dir: directory of all nightly reports; empty for ``build/reports/nightly``.

    Raises:
        ConfigError: the list is wrong, or names what there is not; then nothing has been started.
    """
    if jobs < 0:
        raise ConfigError(f"--jobs is {jobs}", "give 1 or more; without it, as many as the machine carries")
    turns = nightly.load(Path(config) if config else nightly.PROJECT_LIST)
    root = Path(report_dir).resolve() if report_dir else NIGHTLY_ROOT
    return nightly.run(nightly.select(turns, _words(only)), jobs=jobs or nightly.jobs_carried(), report_root=root)


def _words(text: str) -> Sequence[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
