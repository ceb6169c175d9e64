# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C for a command in the machine that has just printed its verdict: the verdict counts."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.environment.machine.conftest import Fake
from utvm import boards
from utvm.environment.machine.guest import Guest
from utvm.environment.machine.machine import InMachine
from utvm.environment.machine.settings import Records
from utvm.environment.remote import RemoteCommand
from utvm.selection import BoardSelection


@pytest.fixture
def interruption() -> Iterator[None]:
    """Send Ctrl-C in a moment."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.join()
    signal.signal(signal.SIGINT, before)


# Like sshd: when our side closes the connection, the command ends.
_END_ON_CLOSE = "cat >/dev/null; exit {code}"


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 1])
def test_verdict_counts(fake: Fake, records: Records, interruption: None, code: int) -> None:
    fake("ssh", _END_ON_CLOSE.format(code=code))
    assert Guest(records).run(["./inv", "hil"]) == code


@pytest.mark.slow
@pytest.mark.parametrize("code", [3, 143])
def test_command_without_a_verdict_is_interrupted(fake: Fake, records: Records, interruption: None, code: int) -> None:
    fake("ssh", _END_ON_CLOSE.format(code=code))
    with pytest.raises(KeyboardInterrupt):
        Guest(records).run(["./inv", "hil"])


class _Machine:
    """A machine whose command ends with this code; the first fetch of its files is interrupted."""

    def __init__(self, code: int) -> None:
        self.guest, self._code, self.fetched = self, code, 0

    def up(self, **_: object) -> None:
        pass

    def run(self, words: Sequence[str]) -> int:
        return self._code if "hil" in words else 0

    def fetch(self, _: str, folder: Path) -> None:
        self.fetched += 1
        if self.fetched == 1:
            raise KeyboardInterrupt
        (folder / "report.json").touch()


def _run(machine: Any, reports: Path) -> int:
    command = RemoteCommand((("hil",),), boards.load("host"), BoardSelection(), output_folders=(reports,))
    return InMachine(lambda _: None, machine).run(command)


def test_report_is_fetched_after_an_interruption(tmp_path: Path) -> None:
    """Seen to print PASSED, "interrupted" and exit code 3, beside a report that passed."""
    assert _run(_Machine(1), tmp_path) == 1
    assert (tmp_path / "report.json").exists()


def test_interrupt_while_fetching_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _run(_Machine(3), tmp_path)
