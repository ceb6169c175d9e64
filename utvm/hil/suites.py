# SPDX-License-Identifier: Apache-2.0
"""Runs suites on a board: those that come with utvm, or somebody's own."""

import os
from pathlib import Path

import pytest

from utvm.base.process.signals import was_interrupted
from utvm.errors import ConfigError, ExitCode, ProvisionError
from utvm.hil import plugin
from utvm.hil.project import select_suites
from utvm.options import words
from utvm.paths import DATA, work
from utvm.selection import BoardSelection, ReportChoice, SuiteChoice, split_name


class _Ending:
    """A pytest plugin object that keeps the run's own exit code: pytest has other meanings for some numbers."""

    exit_code: ExitCode | None = None
    accepted = False
    trouble: OSError | MemoryError | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Note that nothing was wrong until here."""
        self.accepted = True

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        """Keep from the terminal what becomes one clear message."""
        if not self.accepted and isinstance(excinfo.value, (OSError, MemoryError)):
            self.trouble = excinfo.value
        return self.trouble is not None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Ask for it before pytest forgets."""
        if config.pluginmanager.has_plugin(plugin.FIXTURES):
            from utvm.hil import fixtures

            self.exit_code = fixtures.exit_code_of(config)


def run(
    choice: BoardSelection,
    reports: ReportChoice = ReportChoice(),
    *,
    suites: SuiteChoice = SuiteChoice(),
) -> ExitCode:
    """Run suites on a board, print progress and verdict, and write the report.

    From the verdict on, Ctrl-C and SIGTERM are ignored: a program that goes on afterwards and is to be interrupted
    calls :func:`utvm.base.process.signals.raise_on_signals`.
    """
    from utvm import boards  # with much behind it, and pytest imports this module in every environment

    boards.load(choice.board)  # pytest without a board would run the suites without our fixtures
    arguments = [
        *_for_pytest(choice, suites),
        *words(choice),
        *words(reports),
        f"--latency-us={choice.latency_us}",
    ]
    ending = _Ending()
    try:
        ended = pytest.main(arguments, plugins=[ending])
        if ending.trouble:
            raise ending.trouble
        if ended == pytest.ExitCode.USAGE_ERROR:
            # It takes a suite that it cannot open for one that is wrong.
            os.close(os.open(os.devnull, os.O_RDONLY))
    except (OSError, MemoryError) as error:
        # It keeps what suites print in files, and may find no folder for them.
        hint = "is there room, and memory, and may files be written, and so many be open?"
        raise ProvisionError(f"a run cannot begin: {str(error) or 'not enough memory'}", hint) from error
    if ending.exit_code is not None:
        return ending.exit_code
    # It ended before a run had begun. What pytest calls wrong usage may be its configuration, interrupted while it
    # was imported.
    if ended == pytest.ExitCode.INTERRUPTED or was_interrupted():
        raise KeyboardInterrupt
    if ended != pytest.ExitCode.USAGE_ERROR:
        return ExitCode.INFRASTRUCTURE
    if ending.accepted and not suites.expressions and "::" not in suites.suite:
        # What the run was asked for has been found here, and nothing else.
        raise ProvisionError("a run cannot begin: pytest cannot read the suites", "may so many files be open?")
    return ExitCode.USAGE


def _unexpanded(variable: str, path: Path) -> str:
    os.environ[variable] = str(path)
    return f"${variable}"


def _for_pytest(choice: BoardSelection, suites: SuiteChoice) -> list[str]:
    """Return pytest's own arguments: which files, and what of its settings is set aside."""
    chosen = select_suites(suites.names)
    settings = [] if chosen.own else [f"--config-file={DATA / 'pyproject.toml'}"]
    remembered = work() / "last-failed" / Path(split_name(choice.board)[0]).resolve().name
    return [
        f"--rootdir={_unexpanded('UTVM_ROOTDIR', chosen.root)}",
        *settings,
        # What is set there is for the project's own tests.
        "--override-ini=addopts=",
        f"--override-ini=cache_dir={_unexpanded('UTVM_LAST_FAILED', remembered)}",
        *suites.expressions,
        f"-p{plugin.__name__}",
        # It would keep every packet for a report that we do not show; the run has a log of its own.
        "-pno:logging",
        *map(_argument, (str(chosen.root / path) for path in chosen.paths)),
    ]


def _argument(suite: str) -> str:
    file, colons, test = suite.partition("::")
    if "[" in file:
        file = os.path.relpath(file)
    if "[" in file:
        raise ConfigError(f"{file}: pytest takes no [ in the path of a suite", "rename it, or start in it")
    return file + colons + test
