# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of ``hil_tests/`` on a board."""

from collections.abc import Sequence

import pytest

from utvm.choice import BoardChoice, ReportChoice
from utvm.errors import ConfigError, ExitCode, ProvisionError
from utvm.hil import plugin
from utvm.options import words
from utvm.paths import DATA
from utvm.process import interrupted

DIRECTORY = DATA / "hil_tests"


class _Ending:
    """A pytest plugin object that keeps the run's own exit code: pytest has other meanings for some numbers."""

    exit_code: ExitCode | None = None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Ask for it before pytest forgets."""
        self.exit_code = plugin.exit_code_of(config)


def names() -> tuple[str, ...]:
    """Return the suites there are, sorted."""
    return tuple(sorted(path.stem.removeprefix("test_") for path in DIRECTORY.glob("test_*.py")))


def check_names(suites: Sequence[str]) -> None:
    """Refuse a suite that there is not.

    Raises:
        ConfigError: with the names of those that there are.
    """
    unknown = [suite for suite in suites if suite not in names()]
    if unknown:
        raise ConfigError(f"there is no suite {unknown[0]!r}", f"suites: {', '.join(names())}")


def run(
    choice: BoardChoice,
    reports: ReportChoice = ReportChoice(),
    *,
    suites: Sequence[str] = (),
    latency_us: int = 0,
) -> ExitCode:
    """Run suites on a board, print progress and verdict, and write the report.

    From the verdict on, Ctrl-C and SIGTERM are ignored: a program that goes on afterwards and is to be interrupted
    calls :func:`utvm.process.end_in_order_on_signals`.

    Args:
        suites: names of suites; none means all.
        latency_us: microseconds that each command of a virtual probe takes.

    Raises:
        ConfigError: there is no such suite.
        ProvisionError: the computer does not let pytest begin.
        KeyboardInterrupt: interrupted before the run had begun; later, that is a verdict.
    """
    check_names(suites)
    arguments = [
        f"--rootdir={DATA}",
        f"--config-file={DATA / 'pyproject.toml'}",
        # What is set there is for the project's own tests.
        "--override-ini=addopts=",
        "-pno:cacheprovider",
        # It would keep every packet for a report that we do not show; the run has a log of its own.
        "-pno:logging",
        *words(choice),
        *words(reports),
        f"--latency-us={latency_us}",
        *([str(DIRECTORY / f"test_{suite}.py") for suite in suites] or [str(DIRECTORY)]),
    ]
    ending = _Ending()
    try:
        ended = pytest.main(arguments, plugins=[plugin, ending])
    except OSError as error:
        # It keeps what suites print in files, and may find no folder for them.
        raise ProvisionError(f"a run cannot begin: {error}", "is there room, and may files be written?") from error
    if ending.exit_code is not None:
        return ending.exit_code
    # It ended before a run had begun. What pytest calls wrong usage may be its configuration, interrupted while it
    # was imported.
    if ended == pytest.ExitCode.INTERRUPTED or interrupted():
        raise KeyboardInterrupt
    return ExitCode.USAGE if ended == pytest.ExitCode.USAGE_ERROR else ExitCode.INFRASTRUCTURE
