# SPDX-License-Identifier: Apache-2.0
"""The stages of one run, as pytest hooks: attach the board, follow the tests, release the board, report."""

import dataclasses
import datetime
import logging
import time
from collections.abc import Generator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from utvm.base.log import log_into
from utvm.base.process import signals
from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import require_free_space
from utvm.errors import ConfigError, DoesNotFitError, ExitCode, UtvmError
from utvm.hil import figures, html, limits, progress, project, report, workers
from utvm.hil.display import Display
from utvm.hil.judge import Recorder, judge, judge_loading, loading_failure
from utvm.hil.results import CaseResult, Environment, ModelResult, Outcome, RunReport, Verdict, decide, first_line
from utvm.provenance.location import read_checkout
from utvm.session.board_holder import BoardHolder

_LOG = logging.getLogger("utvm.hil")


class HilRun:
    """A pytest plugin object for one run.

    A test that hits infrastructure trouble gets that outcome. A lost board is attached again so that the other
    tests still run; if that fails, or the board is lost again, the run stops. Either way the run has no verdict.
    """

    def __init__(
        self, holder: BoardHolder, display: Display, *, run_id: str, started: datetime.datetime, report_root: Path
    ) -> None:
        self.holder = holder
        self.boards = 1
        # With the test that recorded it.
        self._models: list[tuple[str, ModelResult]] = []
        self._statistics: list[tuple[str, tuple[str, Mapping[str, int | str]]]] = []
        self._display: Display | workers.Relay = display
        self._workers = workers.Workers()
        self._test = ""
        self._report_root = report_root
        self._run_id = run_id
        self._started = started
        self._began = time.monotonic()
        # Read at the start: later changes of the checkout do not affect the run.
        self._checkout = read_checkout()
        self._environment: Environment | None = None
        self._session: pytest.Session | None = None
        self._recorder = Recorder()
        self._quarantine = content.quarantine if (content := project.load_project()) else ()
        self._cases: list[CaseResult] = []
        self._progress = progress.RunProgress(
            holder.log_directory,
            lambda: holder.console_tail,
            board=holder.identity.full_name,
            started=started.timestamp(),
            report=str(report_root / run_id / "index.html"),
            tests={},
        )
        self._trouble = ""
        self._lost = False
        self._interrupted = False
        self.exit_code: ExitCode | None = None

    def record_model(self, model: ModelResult) -> None:
        self._models.append((self._test, model))
        self._display.line(f"{model.name}: {figures.figures_line(model.figures)}")

    def record_statistics(self, name: str, values: Mapping[str, int | str]) -> None:
        self._statistics.append((self._test, (name, values)))

    # After this hook the run must write a report, and pytest ends a session only if all plugins have started.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Inspect the machine and choose the board; report missing tools before touching it."""
        self._session = session
        signals.raise_lost_interruptions()  # pytest has replaced the hook
        try:
            self._environment = report.describe_environment(self.holder.board)
            self.holder.choose()
            require_free_space((cache_root(), self.holder.log_directory, self._report_root))
        except UtvmError as error:
            if isinstance(error, ConfigError) and error.exit_code is ExitCode.USAGE:
                raise pytest.UsageError(str(error)) from error
            if self._environment is None:
                pytest.exit(f"error: {error}", returncode=int(error.exit_code))
            self._trouble = str(error)
        except (OSError, MemoryError) as error:
            trouble = f"a run cannot begin: {str(error) or 'not enough memory'}"
            if self._environment is None:
                pytest.exit(f"error: {trouble}", returncode=int(ExitCode.INFRASTRUCTURE))
            self._trouble = trouble
        self._print_board()

    def pytest_exception_interact(
        self,
        node: pytest.Item | pytest.Collector,
        call: pytest.CallInfo[object],
        report: pytest.CollectReport | pytest.TestReport,
    ) -> None:
        """Record a suite that cannot be loaded as a test without a verdict."""
        signals.raise_if_interrupted()
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            self._cases.append(loading_failure(report, judge_loading(call.excinfo.value, node.path)))

    def pytest_collectreport(self) -> None:
        """Stop if an import has swallowed an interruption."""
        signals.raise_if_interrupted()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Attach the board before the first test; without a board, run none."""
        if self._trouble:
            return True
        try:
            queue = workers.SuiteQueue(session.items)
            boards = queue.boards(self.boards) if self.holder.identity.kind == "virtual" else 1
            # Before the board: a fork has no copies of the threads that watch it.
            self._workers.start(lambda number, pipe: self._work(session, queue, number, pipe), boards - 1)
            description = self.holder.attach()
        except (UtvmError, OSError) as error:  # For example, too many open files.
            self._workers.close()
            self._trouble = str(error)
            return True
        driver = self.holder.driver
        version = self._known_environment.place.tools.get(driver)
        description += f", {driver} {version}" if version else ""
        self._display.line(f"{description}; {boards} boards share the suites" if boards > 1 else description)
        self._progress.state["total"] = len(session.items) + len(self._cases)
        self._progress.state["board"] = self.holder.identity.full_name
        for case in self._cases:
            self._show_result(case)
        self._display.begin(self._progress.state["total"])
        if boards == 1:
            return None
        try:
            queue.run(session)
            self._receive(wait=True)
        finally:
            self._workers.close()
        return True

    def _work(self, session: pytest.Session, queue: workers.SuiteQueue, number: int, pipe: Connection) -> None:
        """Run suites on a further board, in a fork; the run that forked it receives the results."""
        capture = session.config.pluginmanager.getplugin("capturemanager")
        if capture:
            capture.stop_global_capturing()  # Its files are those of the run.
            capture.start_global_capturing()
        self._display = workers.Relay(pipe)
        self.holder = self.holder.copy(self.holder.log_directory / f"board-{number}", self._display.line)
        try:
            with log_into(self.holder.log_directory):
                self.holder.attach()
                queue.run(session)
        except (UtvmError, OSError) as error:
            self._trouble = str(error)
        except (pytest.Session.Interrupted, pytest.Session.Failed):
            queue.clear()
        except KeyboardInterrupt:
            self._trouble = "a further board was interrupted"
        finally:
            signals.record_signals()
            self.holder.release()
        pipe.send(("end", (self._models, self._statistics, self._trouble, session.shouldstop)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand the report of a test in a fork to the plugins of the run."""
        if isinstance(self._display, workers.Relay):
            self._display.report(report)

    def _receive(self, wait: bool = False) -> None:
        """Add what forks have sent."""
        assert self._session
        for kind, content in self._workers.receive(wait):
            if kind == "line":
                self._display.line(*content)
            elif kind == "show_result":
                self._cases.append(*content)
                self._show_result(*content)
            elif kind == "report":
                self._session.config.hook.pytest_runtest_logreport(report=content[0])
            elif kind == "end":
                models, statistics, trouble, stop = content
                self._models += models
                self._statistics += statistics
                self._trouble = self._trouble or trouble
                self._session.shouldstop = self._session.shouldstop or stop
            elif kind == "exit" and content:
                self._trouble = f"the process of a further board ended with exit code {content}"

    @pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_runtestloop")
    def pytest_after_runtestloop(self) -> Generator[None, object, object]:
        """Protect the clean-up after the last test from interruptions; report them afterwards."""
        try:
            return (yield)
        finally:
            signals.record_signals()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Show the running test, and mark its start in the log for links from the report."""
        _LOG.info("%s", html.TEST_MARKER.format(nodeid))
        self._test = self._progress.state["test"] = nodeid
        self._display.running(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Distinguish a failed test from infrastructure trouble while the board can still answer."""
        phase = yield
        signals.raise_if_interrupted()
        error = call.excinfo.value if call.excinfo is not None else None
        if not phase.failed:
            self._recorder.add(phase, Outcome(phase.outcome), error)
        elif isinstance(error, DoesNotFitError) and "room" not in self.holder.capabilities:
            self._recorder.add(phase, Outcome.SKIPPED, error, f"not on this board: {error.message}")
        elif trouble := self.holder.board_failure(error) if error is not None else "":
            self._lost = True
            self._recorder.add(phase, Outcome.INFRASTRUCTURE, error, trouble)
        else:
            self._recorder.add(phase, judge(error, item.path), error)
        return phase

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record a test's result; if the board was lost, attach it again."""
        case = self._excuse(self._recorder.take(nodeid))
        if case.outcome is not Outcome.PASSED:
            if case.outcome.has_trouble and (text := self.holder.console_tail):
                case = dataclasses.replace(case, message=f"{case.message}\nlast console output:\n{text}")
            self.holder.force_reset()
        if self._lost:
            self._lost = False
            case = dataclasses.replace(case, message=f"{case.message}\n{self._reattach()}")
        self._cases.append(case)
        self._show_result(case)
        self._receive()

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record a user's interruption; pytest raises its own in the same way."""
        self._interrupted = not isinstance(excinfo.value, pytest.Session.Interrupted)

    def pytest_internalerror(self, excrepr: object, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Report an internal error of pytest as trouble."""
        self._trouble = f"internal error: {excinfo.exconly()}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        """Release the board, write the report, print the verdict."""
        try:
            return (yield)
        except KeyboardInterrupt:  # raised if there was no test
            return None
        except Exception as error:  # a suite's failing clean-up must not cost the report
            self._trouble = self._trouble or f"clean-up after the last test failed: {error}"
            return None
        finally:
            # From here on, the report, the last line and the exit code must agree.
            signals.ignore_signals()
            self._interrupted = self._interrupted or signals.was_interrupted()
            try:
                self.holder.release()
            except UtvmError as error:
                self._trouble = self._trouble or str(error)
            if exitstatus != pytest.ExitCode.USAGE_ERROR:
                self.exit_code = self._finish(session.items)
                session.exitstatus = int(self.exit_code)

    def _show_result(self, case: CaseResult) -> None:
        self._progress.state["tests"][case.id] = case.outcome.value
        self._display.show_result(case)

    def _print_board(self) -> None:
        identity = self.holder.identity
        why = ""
        if self.holder.auto:
            subject = "a board is" if identity.kind == "physical" else "no physical board is"
            why = f" ({subject} plugged in)"
        place = self._environment.place.title if self._environment else ""
        self._display.line(", ".join(filter(None, (f"{identity.full_name}{why}", place, f"run {self._run_id}"))))

    def _excuse(self, case: CaseResult) -> CaseResult:
        for entry in self._quarantine:
            case = entry.excuse(case, self._started.date())
        return case

    def _reattach(self) -> str:
        if self.holder.attach_count > 1:
            outcome = "the board was lost again; the run stops"
        else:
            try:
                self.holder.attach()
            except (UtvmError, OSError) as error:
                outcome = f"attaching the board again failed; the run stops: {error}"
            else:
                return "the board was attached again and the run went on; this test has no result"
        assert self._session is not None
        self._session.shouldstop = "the board is gone"
        return outcome

    @property
    def _known_environment(self) -> Environment:
        assert self._environment is not None
        return self._environment

    def _finish(self, items: list[pytest.Item]) -> ExitCode:
        # In the order of the suites, whichever board ran them; what could not be loaded comes first.
        order = {item.nodeid: number for number, item in enumerate(items)}
        self._cases.sort(key=lambda case: order.get(case.node, -1))
        models = [model for _, model in sorted(self._models, key=lambda entry: order.get(entry[0], -1))]
        statistics = [row for _, row in sorted(self._statistics, key=lambda entry: order.get(entry[0], -1))]
        for case in limits.check_limits(self.holder.identity, models, self._checkout.commit):
            self._cases.append(case)
            self._show_result(case)
        self._display.end()
        verdict, trouble = decide(self._cases, trouble=self._trouble, interrupted=self._interrupted)
        finished = {case.node for case in self._cases}
        why = first_line(trouble) or "the run stopped before it"
        missing = (CaseResult(item.nodeid, Outcome.NOT_RUN, 0.0, why) for item in items if item.nodeid not in finished)
        if unmodelled := self.holder.unmodelled:
            statistics.append(("peripherals without a model", unmodelled))
        if (clock := self.holder.clock_hz) and clock != self.holder.board.clock_hz:
            statistics.append(("clock of the core", {"Hz": clock}))
        summary = RunReport(
            run_id=self._run_id,
            started=f"{self._started:%Y-%m-%dT%H:%M:%SZ}",
            checkout=self._checkout,
            board=self.holder.identity,
            environment=self._known_environment,
            cases=(*self._cases, *missing),
            models=tuple(models),
            verdict=verdict,
            trouble=trouble,
            statistics=tuple(statistics),
            duration_s=time.monotonic() - self._began,
        )
        directory = None
        try:
            directory = report.write_report(summary, self._report_root)
        except ConfigError as error:
            # A run without a report is incomplete.
            summary = dataclasses.replace(summary, verdict=Verdict.INFRASTRUCTURE, trouble=str(error))
        if directory and (warning := limits.remember(self._report_root, summary.as_json())):
            self._display.line(f"warning: {warning}")
        self._progress.close(summary.verdict.value)
        self._display.close(summary, directory)
        return summary.verdict.exit_code
