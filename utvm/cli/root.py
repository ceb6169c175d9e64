# SPDX-License-Identifier: Apache-2.0
"""The commands without a namespace: ``hil``, ``init``, ``nightly``, ``test`` and ``doctor``."""

from invoke.context import Context

from utvm.cli import task
from utvm.selection import BoardSelection, PlaceChoice, ReportChoice, SuiteChoice


@task(runs="root_hil:run_suites", example="hil --board stm32f746 --suite digits", page="README.md")
def hil(_: Context, where: BoardSelection, suites: SuiteChoice, reports: ReportChoice, place: PlaceChoice) -> None:
    """Run the hardware-in-the-loop suites on a board and report the verdict."""


@task(
    runs="root_init:write_project",
    example="init demo",
    page="docs/own-project.md",
    positional=["directory"],
    help={"directory": "folder to write; it may exist"},
)
def init(_: Context, directory: str) -> None:
    """Create a small project: boards, a model with limits, a test suite, CI."""


@task(
    runs="root_hil:run_nightly",
    example="nightly --only stm32f746,host",
    page="docs/nightly.md",
    help={
        "config": "list of boards (default: utvm.yaml of the project, else nightly.yaml of utvm)",
        "only": "run only these boards of the list, comma-separated",
        "jobs": "number of boards at once (default: one for each CPU core and GiB of free memory)",
        "report_dir": "folder of all nightly reports (default: build/reports/nightly)",
        "notify": "file for a message on changed verdicts; FORMAT:FILE,... for mail, webhook, slack or matrix",
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
) -> None:
    """Run the suites on every board of a list, several at once, and write one report."""


@task(
    runs="root_hil:run_tests",
    example="test --quick",
    page="CONTRIBUTING.md",
    in_checkout=True,
    help={"quick": "only tests that take under two minutes in total", "nightly": "also fuzzers and soak runs"},
)
def test(_: Context, quick: bool = False, nightly: bool = False) -> None:
    """Run the tests of utvm itself; they need no board."""


@task(runs="root_doctor:examine", example="doctor", page="docs/hosts.md", json=True)
def doctor(_: Context) -> None:
    """Check installed dependencies, and print how to install those that are missing."""
