# SPDX-License-Identifier: Apache-2.0
"""The commands without a namespace: ``hil``, ``init``, ``nightly``, ``test`` and ``doctor``."""

from invoke.context import Context

from utvm.cli import task
from utvm.cli.choices import JsonChoice
from utvm.errors import ExitCode
from utvm.selection import BoardSelection, PlaceChoice, ReportChoice, SuiteChoice


@task(example="hil --board stm32f746 --suite digits", page="README.md")
def hil(
    _: Context, where: BoardSelection, suites: SuiteChoice, reports: ReportChoice, place: PlaceChoice
) -> ExitCode:
    """Run the hardware-in-the-loop suites on a board and report the verdict."""
    from utvm.cli.root_hil import run_suites

    return run_suites(where, suites, reports, place)


@task(
    example="init demo",
    page="docs/own-project.md",
    positional=["directory"],
    help={"directory": "where to write it; it may exist"},
)
def init(_: Context, directory: str) -> None:
    """Write a small project of your own: boards, a model with its limits, a suite, CI."""
    from utvm.cli.root_init import write_project

    write_project(directory)


@task(
    example="nightly --only stm32f746,host",
    page="docs/nightly.md",
    knows_boards=True,
    help={
        "config": "list of boards (default: the project's utvm.yaml, else utvm's nightly.yaml)",
        "only": "only these boards of the list, comma-separated",
        "jobs": "boards at once (default: one for each core, and each with 1 GiB of free memory)",
        "report_dir": "folder of all nightly reports (default: build/reports/nightly)",
        "notify": "write a message into this file if the verdict is not that of the night before",
    },
)
def nightly(
    _: Context, config: str = "", only: str = "", jobs: int = 0, report_dir: str = "", notify: str = ""
) -> ExitCode:
    """Run the suites on every board of a list, several at once, and report on all of them in one place."""
    from utvm.cli.root_hil import run_nightly

    return run_nightly(config, only, jobs, report_dir, notify)


@task(
    example="test --quick",
    page="CONTRIBUTING.md",
    in_checkout=True,
    help={"quick": "only what takes under two minutes", "nightly": "also what takes long: fuzzers, soak runs"},
)
def test(_: Context, quick: bool = False, nightly: bool = False) -> ExitCode:
    """Run the project's own tests, which need no board: everything, or less, or more."""
    from utvm.cli.root_test import run_tests

    return run_tests(quick, nightly)


@task(example="doctor", page="README.md")
def doctor(_: Context, json: JsonChoice) -> ExitCode:
    """Print what this machine has, what it lacks, and how to get it."""
    from utvm.cli.root_doctor import examine

    return examine(json)
