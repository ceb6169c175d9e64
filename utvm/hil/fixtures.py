# SPDX-License-Identifier: Apache-2.0
"""The part of :mod:`utvm.hil.plugin` that needs a board: the run and the suites' fixtures.

A test marked ``needs("debug port")`` is skipped on a board without one; the report says so.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from utvm import boards, compiler, drivers, errors, selection
from utvm.base.log import configure, log_folder, log_into
from utvm.base.process.signals import raise_on_signals
from utvm.firmware import Firmware, compile_for
from utvm.hil import figures, plugin, project, report, results
from utvm.hil.display import Display, standard_output
from utvm.hil.run import HilRun
from utvm.paths import project as own_project
from utvm.session import RunResult, Session, application, board_holder, rpc
from utvm.session.application import read_image

_RUN = pytest.StashKey[HilRun]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the board and replace pytest's terminal reporter."""
    try:
        _configure(config)
    except errors.ConfigError as error:
        if error.exit_code is not errors.ExitCode.USAGE:
            pytest.exit(f"error: {error}", returncode=int(error.exit_code))
        raise pytest.UsageError(str(error)) from error
    except OSError as error:
        # For example, too many open files.
        pytest.exit(f"error: a run cannot begin: {error}", returncode=int(errors.ExitCode.INFRASTRUCTURE))


def _configure(config: pytest.Config) -> None:
    option = config.option
    if folders := selection.build_record(selection.BoardFolders, vars(option)).board_path:
        boards.set_board_path(folders)
    choice = dataclasses.replace(
        selection.build_record(selection.BoardSelection, vars(option)), latency_us=option.latency_us
    )
    if not choice.board:
        raise errors.ConfigError("--board is missing", f"boards: {', '.join(boards.names())}")
    board = boards.load(choice.board)
    config.stash[plugin.BOARD] = board
    config.addinivalue_line("markers", "needs(capability): skip the test on a board without this capability")
    if option.collectonly or option.showfixtures or option.show_fixtures_per_test:
        return
    raise_on_signals()
    # One suite that cannot be loaded does not stop the others.
    option.continue_on_collection_errors = True
    started = datetime.datetime.now(datetime.timezone.utc)
    run_id = report.new_run_id(started)
    reports = plugin.report_root(selection.build_record(selection.ReportChoice, vars(option)))
    logs = report.logs_beside(reports) / run_id
    _begin_log(config, logs)
    display = Display(standard_output())
    holder = board_holder.BoardHolder(board, choice, logs, display.line)
    run = HilRun(holder, display, run_id=run_id, started=started, report_root=reports)
    run.boards = option.board_jobs
    config.stash[_RUN] = run
    config.pluginmanager.register(run, "utvm-run")
    config.pluginmanager.unregister(name="terminalreporter")


def _begin_log(config: pytest.Config, folder: Path) -> None:
    """Write the run's log; pytest's log options still apply."""
    stack = contextlib.ExitStack()
    configure("", "")
    stack.enter_context(log_into(log_folder(folder)))
    config.add_cleanup(stack.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that need a capability the board lacks."""
    run = config.stash.get(_RUN, None)
    # Listing tests does not choose between physical and virtual.
    capabilities = run.holder.capabilities if run else drivers.capabilities_of(config.stash[plugin.BOARD])
    for item in items:
        # A copy, because add_marker changes the list being iterated.
        for mark in list(item.iter_markers("needs")):
            if mark.args[0] not in capabilities:
                item.add_marker(pytest.mark.skip(reason=f"not on this board: it has no {mark.args[0]}"), append=False)


def exit_code_of(config: pytest.Config) -> errors.ExitCode | None:
    """Exit code of the run; None if it ended before a verdict."""
    run = config.stash.get(_RUN, None)
    return run.exit_code if run else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize ``project_model`` with the project's models."""
    if "project_model" in metafunc.fixturenames:
        try:
            models = project.project_models()
        except errors.ConfigError as error:
            raise pytest.UsageError(str(error)) from error
        metafunc.parametrize("project_model", models, ids=[model.name for model in models])


@pytest.fixture
def board(request: pytest.FixtureRequest) -> drivers.Connection:
    """The open board, without breakpoints, halted at reset."""
    return request.config.stash[_RUN].holder.reset_board()


@pytest.fixture(scope="session")
def compile_for_board(request: pytest.FixtureRequest) -> Callable[..., compiler.Library]:
    """Compiles a model for the board. Keywords: ``name``, and those of :class:`utvm.compiler.CompileOptions`."""
    board = request.config.stash[plugin.BOARD]

    def compile_for_board(model: compiler.Model, *, name: str | None = None, **options: Any) -> compiler.Library:
        return compile_for(board, model, compiler.CompileOptions(**options), name)

    return compile_for_board


class Images:
    """Links images for the board of the run."""

    def __init__(self, holder: board_holder.BoardHolder) -> None:
        self._holder = holder

    def __call__(self, libraries: Sequence[compiler.Library]) -> Firmware:
        """Link libraries, the runtime and the board's port; raises as :meth:`BoardHolder.link`."""
        return self._holder.link(libraries)

    def elf(self, path: str | Path) -> Firmware:
        """Read your own image; raises as :func:`utvm.session.application.read_image`.

        Args:
            path: relative to the project folder, or to the current folder outside a project.
        """
        return read_image(self._holder.board, (own_project() or Path()) / path)


@pytest.fixture(scope="session")
def firmware(request: pytest.FixtureRequest) -> Images:
    """Links libraries, the runtime and the board's port into an image for ``session``; ``elf`` reads your own."""
    return Images(request.config.stash[_RUN].holder)


@pytest.fixture
def flash(request: pytest.FixtureRequest) -> Callable[[Firmware], application.Application]:
    """Flashes your own image and returns it, halted at reset."""
    holder = request.config.stash[_RUN].holder
    return lambda image: application.Application(holder.reset_board(), image)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Callable[[Firmware], Session]:
    """Flashes an image and returns a session on it, waiting for a request.

    A board that already waits with that image is not reset. Use ``board`` too in a test that needs a reset.
    """
    return request.config.stash[_RUN].holder.session


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., rpc.RpcBoard]]:
    """Puts libraries on the board behind the RPC server, through one of its pipes, until the test ends."""
    holder = request.config.stash[_RUN].holder
    with contextlib.ExitStack() as stack:

        def start(libraries: Sequence[compiler.Library], pipe: str = "") -> rpc.RpcBoard:
            return stack.enter_context(holder.serve(libraries, pipe))

        yield start


@pytest.fixture
def record_model(request: pytest.FixtureRequest) -> Callable[..., results.ModelResult]:
    """Adds the runs of a model to the report; arguments as :func:`utvm.hil.figures.summarise`."""

    def record(
        name: str, image: Firmware, runs: Sequence[RunResult], *, executor: str, labels: Sequence[int] | None = None
    ) -> results.ModelResult:
        result = figures.summarise(name, image, runs, executor=executor, labels=labels)
        request.config.stash[_RUN].record_model(result)
        return result

    return record


@pytest.fixture
def record_statistics(request: pytest.FixtureRequest) -> Callable[[str, Mapping[str, int | str]], None]:
    """Adds the board's counters to the report under a name."""

    def record(name: str, values: Mapping[str, int | str]) -> None:
        request.config.stash[_RUN].record_statistics(name, values)

    return record
