"""Runs the suites of ``hil_tests/`` on a board."""

from collections.abc import Sequence

import pytest

from utvm.choice import BoardChoice, ReportChoice
from utvm.errors import ConfigError, ExitCode
from utvm.hil import plugin
from utvm.options import words
from utvm.process import interrupted
from utvm.toolchain import ROOT

DIRECTORY = ROOT / "hil_tests"

# Beyond what the plugin decides, pytest may end before a run has begun.
_EXIT_CODES = {
    pytest.ExitCode.OK: ExitCode.PASSED,
    pytest.ExitCode.TESTS_FAILED: ExitCode.FAILED,
    pytest.ExitCode.INTERNAL_ERROR: ExitCode.INFRASTRUCTURE,
    pytest.ExitCode.USAGE_ERROR: ExitCode.USAGE,
    pytest.ExitCode.NO_TESTS_COLLECTED: ExitCode.FAILED,
}


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
        KeyboardInterrupt: interrupted before the run had begun; later, that is a verdict.
    """
    check_names(suites)
    arguments = [
        f"--rootdir={ROOT}",
        f"--config-file={ROOT / 'pyproject.toml'}",
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
    ended = pytest.ExitCode(pytest.main(arguments, plugins=[plugin]))
    # What pytest calls wrong usage may be its configuration, interrupted while it was imported.
    if ended is pytest.ExitCode.INTERRUPTED or (ended is pytest.ExitCode.USAGE_ERROR and interrupted()):
        raise KeyboardInterrupt
    return _EXIT_CODES[ended]
