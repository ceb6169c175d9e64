# SPDX-License-Identifier: Apache-2.0
"""Run suites on a board: bundled or your own."""

import os
from pathlib import Path

import pytest

from utvm.base.process.signals import was_interrupted
from utvm.errors import ConfigError, ExitCode, ProvisionError
from utvm.hil import plugin, project
from utvm.paths import DATA, work
from utvm.selection import BoardSelection, ReportChoice, SuiteChoice, split_name, words


class _OwnExitCode:
    """A pytest plugin object that keeps the run's own exit code, since pytest uses the numbers differently."""

    exit_code: ExitCode | None = None
    accepted = False
    trouble: OSError | MemoryError | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        self.accepted = True

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        """Suppress the traceback of an error that :func:`run` reports."""
        if not self.accepted and isinstance(excinfo.value, (OSError, MemoryError)):
            self.trouble = excinfo.value
        return self.trouble is not None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Read the exit code before pytest discards it."""
        if config.pluginmanager.has_plugin(plugin.FIXTURES):
            from utvm.hil import fixtures

            self.exit_code = fixtures.exit_code_of(config)


def run(
    choice: BoardSelection, reports: ReportChoice = ReportChoice(), *, suites: SuiteChoice = SuiteChoice()
) -> ExitCode:
    """Run suites on a board, print progress and verdict, and write the report.

    From the verdict on, Ctrl-C and SIGTERM are ignored; a program that continues and should be interruptible calls
    :func:`utvm.base.process.signals.raise_on_signals`.
    """
    from utvm import boards  # slow to import, and pytest imports this module in every environment

    boards.load(choice.board)  # pytest without a board would run the suites without our fixtures
    from utvm.hil.nightly.runner import count_parallel_jobs

    more = [f"--latency-us={choice.latency_us}", f"--board-jobs={count_parallel_jobs(suites.jobs)}"]
    arguments = [*_for_pytest(choice, suites), *words(choice), *words(reports), *more]
    outcome = _OwnExitCode()
    try:
        status = pytest.main(arguments, plugins=[outcome])
        if outcome.trouble:
            raise outcome.trouble
        if status == pytest.ExitCode.USAGE_ERROR:
            # pytest reports a suite that it cannot open as a usage error.
            os.close(os.open(os.devnull, os.O_RDONLY))
    except (OSError, MemoryError) as error:
        # pytest's capture needs temporary files.
        hint = "check free disk space, memory, permissions and the limit of open files"
        raise ProvisionError(f"a run cannot begin: {str(error) or 'not enough memory'}", hint) from error
    if outcome.exit_code is not None:
        return outcome.exit_code
    # pytest ended before the run began. Its usage error may be an interruption while it imported its
    # configuration.
    if status == pytest.ExitCode.INTERRUPTED or was_interrupted():
        raise KeyboardInterrupt
    if status != pytest.ExitCode.USAGE_ERROR:
        return ExitCode.INFRASTRUCTURE
    if outcome.accepted and not suites.expressions and "::" not in suites.suite:
        # The suites exist and nothing else was selected.
        raise ProvisionError("a run cannot begin: pytest cannot read the suites", "check the limit of open files")
    return ExitCode.USAGE


def _escape_for_pytest(variable: str, path: Path) -> str:
    os.environ[variable] = str(path)
    return f"${variable}"


def _for_pytest(choice: BoardSelection, suites: SuiteChoice) -> list[str]:
    """Return pytest's arguments: files and overridden settings."""
    suites_found = project.select_suites(suites.names)
    settings = [] if suites_found.own else [f"--config-file={DATA / 'pyproject.toml'}"]
    cache_folder = work() / "last-failed" / Path(split_name(choice.board)[0]).resolve().name
    return [
        f"--rootdir={_escape_for_pytest('UTVM_ROOTDIR', suites_found.root)}",
        *settings,
        # Set for the project's own tests.
        "--override-ini=addopts=",
        f"--override-ini=cache_dir={_escape_for_pytest('UTVM_LAST_FAILED', cache_folder)}",
        *suites.expressions,
        f"-p{plugin.__name__}",
        # pytest would keep every packet for a report we do not show; the run has its own log.
        "-pno:logging",
        *map(_argument, (str(suites_found.root / path) for path in suites_found.paths)),
    ]


def _argument(suite: str) -> str:
    file, colons, test = suite.partition("::")
    if "[" in file:
        file = os.path.relpath(file)
    if "[" in file:
        raise ConfigError(f"{file}: pytest takes no [ in the path of a suite", "rename it, or start in it")
    return file + colons + test
