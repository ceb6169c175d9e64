"""What ``hil`` and ``nightly`` do."""

from collections.abc import Sequence
from pathlib import Path

from utvm import boards, hil
from utvm.errors import ConfigError, ExitCode
from utvm.hil import nightly
from utvm.hil.plugin import REPORT_ROOT
from utvm.hil.suites import check_wish
from utvm.probe.choice import wish

NIGHTLY_ROOT = REPORT_ROOT / "nightly"


def run_suites(board: str, physical: bool, virtual: bool, serial: str, suites: str, report_dir: str) -> ExitCode:
    """Run suites on a board.

    Args:
        suites: names of suites, separated by commas; empty for all.
        report_dir: directory of all reports; empty for ``build/reports``.

    Raises:
        ConfigError: no such board or suite, or switches that exclude each other.
        ProbeError: the physical board that was asked for is not plugged in.
    """
    kind = wish(physical, virtual)
    # Wrong words on the command line are answered before a run begins and a report is written.
    check_wish(boards.load_any(board), kind, serial)
    root = Path(report_dir).resolve() if report_dir else REPORT_ROOT
    return hil.run(board, kind, serial=serial, suites=_words(suites), report_root=root)


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
