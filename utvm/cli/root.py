# SPDX-License-Identifier: Apache-2.0
"""The commands without a namespace: ``hil``, ``init``, ``nightly``, ``test`` and ``doctor``."""

from invoke.context import Context

from utvm.cli import task
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
    help={"directory": "folder to write; it may exist"},
)
def init(_: Context, directory: str) -> None:
    """Create a small project: boards, a model with limits, a test suite, CI."""
    from utvm.cli.root_init import write_project

    write_project(directory)


@task(
    example="nightly --only stm32f746,host",
    page="docs/nightly.md",
    help={
        "config": "list of boards (default: utvm.yaml of the project, else nightly.yaml of utvm)",
        "only": "run only these boards of the list, comma-separated",
        "jobs": "boards at once (default: one for each CPU core and GiB of free memory)",
        "report_dir": "folder of all nightly reports (default: build/reports/nightly)",
        "notify": "write a message to this file if the verdict differs from the last night's",
        "advisories": "report which advisories in this folder apply to locked packages (see env.audit)",
    },
)
def nightly(
    _: Context,
    config: str = "",
    only: str = "",
    jobs: int = 0,
    report_dir: str = "",
    notify: str = "",
    advisories: str = "",
) -> ExitCode:
    """Run the suites on every board of a list, several at once, and write one report."""
    from utvm.cli.root_hil import run_nightly

    return run_nightly(config, only, jobs, report_dir, notify, advisories)


@task(
    example="test --quick",
    page="CONTRIBUTING.md",
    in_checkout=True,
    help={"quick": "only tests that take under two minutes in total", "nightly": "also fuzzers and soak runs"},
)
def test(_: Context, quick: bool = False, nightly: bool = False) -> ExitCode:
    """Run the tests of utvm itself; they need no board."""
    from utvm.cli.root_test import run_tests

    return run_tests(quick, nightly)


@task(example="doctor", page="docs/hosts.md", json=True)
def doctor(_: Context) -> ExitCode:
    """Check installed dependencies, and print how to install those that are missing."""
    from utvm.cli.root_doctor import examine

    return examine()
