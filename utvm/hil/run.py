# SPDX-License-Identifier: Apache-2.0
"""The course of one run, as pytest tells it: attach the board, follow the tests, let go of it, report."""

import dataclasses
import datetime
import logging
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from utvm.base.process.signals import (
    Interrupted,
    ignore_signals,
    raise_if_interrupted,
    record_signals,
    was_interrupted,
)
from utvm.base.storage.cache import cache_root
from utvm.base.storage.temporary import require_free_space
from utvm.errors import ConfigError, DoesNotFitError, ExitCode, UtvmError
from utvm.hil import html, report
from utvm.hil.display import Display
from utvm.hil.figures import figures_line
from utvm.hil.judge import Recorder, judge, judge_loading, loading_failure
from utvm.hil.limits import check_limits, remember
from utvm.hil.results import (
    CaseResult,
    Environment,
    ModelResult,
    Outcome,
    RunReport,
    Verdict,
    decide,
    first_line,
)
from utvm.provenance.location import read_checkout
from utvm.session.board_holder import BoardHolder

_LOG = logging.getLogger("utvm.hil")


class HilRun:
    """A pytest plugin object that lives as long as one run.

    Infrastructure trouble ends the test in which it shows up, with that outcome. A board that is lost is then
    attached once more so that the other tests still get their answer; the second time, or when that does not work,
    the run stops. Either way there is no verdict on the tests: what has no answer has not passed.
    """

    def __init__(
        self,
        holder: BoardHolder,
        display: Display,
        *,
        run_id: str,
        started: datetime.datetime,
        report_root: Path,
    ) -> None:
        self.holder = holder
        self.models: list[ModelResult] = []
        self._statistics: list[tuple[str, Mapping[str, int | str]]] = []
        self._display = display
        self._report_root = report_root
        self._run_id = run_id
        self._started = started
        self._began = time.monotonic()
        # Before anything has run: whoever goes on working meanwhile does not change what ran.
        self._checkout = read_checkout()
        self._environment: Environment | None = None
        self._session: pytest.Session | None = None
        self._recorder = Recorder()
        self._cases: list[CaseResult] = []
        self._trouble = ""
        self._lost = False
        self._interrupted = False
        self.exit_code: ExitCode | None = None

    def record_model(self, model: ModelResult) -> None:
        self.models.append(model)
        self._display.line(f"{model.name}: {figures_line(model.figures)}")

    def record_statistics(self, name: str, values: Mapping[str, int | str]) -> None:
        self._statistics.append((name, values))

    # From when a run has said its name it owes a report, and pytest lets it finish only once all have started.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Look at the machine and choose the board; what is missing is said before anything is touched."""
        self._session = session
        _silence_lost_interruptions()
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
        """Count a suite that cannot be loaded as a test that gave no answer."""
        raise_if_interrupted()
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            self._cases.append(loading_failure(report, judge_loading(call.excinfo.value, node.path)))

    def pytest_collectreport(self) -> None:
        """Stop where an import has swallowed an interruption."""
        raise_if_interrupted()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Attach the board before the first test; without a board there is no first test."""
        if self._trouble:
            return True
        try:
            description = self.holder.attach()
        except (UtvmError, OSError) as error:  # Too few files may be open, for example.
            self._trouble = str(error)
            return True
        driver = self.holder.driver
        version = self._known_environment.place.tools.get(driver)
        self._display.line(f"{description}, {driver} {version}" if version else description)
        for case in self._cases:
            self._display.finished(case)
        self._display.begin(len(session.items) + len(self._cases))
        return None

    @pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_runtestloop")
    def pytest_after_runtestloop(self) -> Generator[None, object, object]:
        """Have what comes after the last test done, whoever interrupts it, and say then that somebody did."""
        try:
            return (yield)
        finally:
            record_signals()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Show which test is running; the log has a line with it, which the report leads to."""
        _LOG.info("%s", html.TEST_MARKER.format(nodeid))
        self._display.running(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Tell a failed test from trouble while the board can still be asked."""
        phase = yield
        raise_if_interrupted()
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
        """Take a test's result; after trouble with the board, see whether it comes back."""
        case = self._recorder.take(nodeid)
        if case.outcome is not Outcome.PASSED:
            self.holder.force_reset()
        if self._lost:
            self._lost = False
            case = dataclasses.replace(case, message=f"{case.message}\n{self._reattach()}")
        self._cases.append(case)
        self._display.finished(case)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note that somebody stopped the run; pytest stops itself in the same way."""
        self._interrupted = not isinstance(excinfo.value, pytest.Session.Interrupted)

    def pytest_internalerror(self, excrepr: object, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep an error of the machinery from looking like a verdict."""
        self._trouble = f"internal error: {excinfo.exconly()}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        """Let go of the board, write the report, say the verdict."""
        try:
            return (yield)
        except KeyboardInterrupt:  # where there was no test to come after
            return None
        except Exception as error:  # what suites' own clean-up raises must not cost the report
            self._trouble = self._trouble or f"clean-up after the last test failed: {error}"
            return None
        finally:
            # From here on it is decided: the report, the last line and the exit code are to say one thing.
            ignore_signals()
            self._interrupted = self._interrupted or was_interrupted()
            try:
                self.holder.release()
            except UtvmError as error:
                self._trouble = self._trouble or str(error)
            if exitstatus != pytest.ExitCode.USAGE_ERROR:
                self.exit_code = self._finish(session.items)
                session.exitstatus = int(self.exit_code)

    def _print_board(self) -> None:
        identity = self.holder.identity
        why = ""
        if self.holder.auto:
            plugged = "a board is" if identity.kind == "physical" else "no physical board is"
            why = f" ({plugged} plugged in)"
        place = self._environment.place.title if self._environment else ""
        self._display.line(", ".join(filter(None, (f"{identity.spoken}{why}", place, f"run {self._run_id}"))))

    def _reattach(self) -> str:
        if self.holder.attach_count > 1:
            outcome = "the board had been attached once more already; the run stops"
        else:
            try:
                self.holder.attach()
            except (UtvmError, OSError) as error:
                outcome = f"attaching the board once more failed; the run stops: {error}"
            else:
                return "the board was attached once more and the run went on; this test has no result"
        assert self._session is not None
        self._session.shouldstop = "the board is gone"
        return outcome

    @property
    def _known_environment(self) -> Environment:
        assert self._environment is not None
        return self._environment

    def _finish(self, items: list[pytest.Item]) -> ExitCode:
        for case in check_limits(self.holder.identity, self.models, self._checkout.commit):
            self._cases.append(case)
            self._display.finished(case)
        self._display.end()
        verdict, trouble = decide(self._cases, trouble=self._trouble, interrupted=self._interrupted)
        finished = {case.node for case in self._cases}
        reason = first_line(trouble) or "the run stopped before it"
        missing = (
            CaseResult(item.nodeid, Outcome.NOT_RUN, 0.0, reason) for item in items if item.nodeid not in finished
        )
        summary = RunReport(
            run_id=self._run_id,
            started=f"{self._started:%Y-%m-%dT%H:%M:%SZ}",
            checkout=self._checkout,
            board=self.holder.identity,
            environment=self._known_environment,
            cases=(*self._cases, *missing),
            models=tuple(self.models),
            verdict=verdict,
            trouble=trouble,
            statistics=tuple(self._statistics),
            duration_s=time.monotonic() - self._began,
        )
        directory = None
        try:
            directory = report.write_report(summary, self._report_root)
        except ConfigError as error:
            # Without its report a run has not been completed.
            summary = dataclasses.replace(summary, verdict=Verdict.INFRASTRUCTURE, trouble=str(error))
        if directory and (warning := remember(self._report_root, summary.as_json())):
            self._display.line(f"warning: {warning}")
        self._display.close(summary, directory)
        return summary.verdict.exit_code


def _silence_lost_interruptions() -> None:
    """Keep pytest from showing, behind the last line, where an interruption was lost: it ends the run anyway."""
    previous = sys.unraisablehook  # pytest's, which gives it back as it was

    def report_unraisable(error: "sys.UnraisableHookArgs") -> None:
        if not issubclass(error.exc_type, Interrupted):
            previous(error)

    sys.unraisablehook = report_unraisable
