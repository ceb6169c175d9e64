# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: ``pytest --board stm32f746 hil``.

An installed utvm registers it; otherwise use ``-p utvm.hil.plugin``. Without ``--board`` it only adds its options.
With it, it loads the fixtures of :mod:`utvm.hil.fixtures`, which is slow to import.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from utvm import selection
from utvm.base.process.signals import guard_exit_code, prepare_environment
from utvm.paths import work

if TYPE_CHECKING:
    from utvm.boards import Board

FIXTURES = "utvm.hil.fixtures"
BOARD = pytest.StashKey["Board"]()


def report_root(choice: selection.ReportChoice) -> Path:
    return Path(choice.report_dir).resolve() if choice.report_dir else work() / "reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select the board."""
    group = parser.getgroup("utvm", "utvm: suites on a board")
    for choice in (selection.BoardSelection, selection.BoardFolders, selection.ReportChoice):
        selection.add_to_pytest(group.addoption, choice)
    group.addoption("--board-jobs", type=int, default=1, help="number of virtual boards that share the suites")
    group.addoption("--latency-us", type=int, default=0, help="microseconds that each command of a virtual probe takes")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures if a board is requested."""
    if config.option.board:
        prepare_environment()
        guard = contextlib.ExitStack()
        guard.enter_context(guard_exit_code())
        config.add_cleanup(guard.close)
        config.pluginmanager.import_plugin(FIXTURES)


def board_of(config: pytest.Config) -> "Board":
    if BOARD not in config.stash:
        raise pytest.UsageError("--board is missing\n  hint: board.list shows all boards")
    return config.stash[BOARD]
