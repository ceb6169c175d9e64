# SPDX-License-Identifier: Apache-2.0
"""A probe that is lent to the virtual machine: the one that a local run would use, locked meanwhile."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.probe.fake_usb import plug_in, use
from utvm import boards
from utvm.base.storage import lock
from utvm.drivers import attach, choose
from utvm.environment.machine import machine as in_machine
from utvm.environment.machine.machine import InMachine
from utvm.environment.remote import RemoteCommand
from utvm.errors import BoardError
from utvm.selection import BoardSelection


class _Guest:
    """The inside of a machine; every command succeeds."""

    def run(self, _words: Sequence[str]) -> int:
        return 0


class _Machine:
    """A machine that runs; its work is a function of the test."""

    class records:  # noqa: N801  a record with one field
        name = "utvm-one"

    guest = _Guest()
    work: Callable[[], None]

    def __init__(self, say: Callable[[str], None]) -> None:
        pass

    def up(self, box: str, patience: float) -> None:
        pass

    def run(self, _words: Sequence[str]) -> int:
        type(self).work()
        return 0


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One probe on a fake bus, and locks in a folder of the test."""
    use(tmp_path / "usb", monkeypatch.setattr)
    plug_in(tmp_path / "usb", "1", "LENT-1")
    monkeypatch.setattr(lock, "_SYSTEM_DIRECTORY", tmp_path)
    monkeypatch.setattr(in_machine, "Machine", _Machine)
    return tmp_path


def _lend(calls: Path, fake: Callable[[str, str], None]) -> list[str]:
    fake("virsh", f'echo "$4" >>{calls}; exit 0')
    board = boards.load("stm32f746")
    reachable = choose(board, BoardSelection(kind="physical"))
    assert reachable.probe
    selection = BoardSelection(kind="physical", serial=reachable.probe.serial_number)
    assert InMachine(lambda _: None).run(RemoteCommand((("hil",),), board, selection, reachable.probe)) == 0
    return calls.read_text().splitlines()


def test_lent_probe_is_busy(
    bus: Path, tmp_path: Path, fake: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    board, calls, calls_before = boards.load("stm32f746"), tmp_path / "calls", list[str]()

    def work() -> None:
        calls_before.extend(calls.read_text().splitlines())
        with (
            pytest.raises(BoardError, match="st-link LENT-1 is busy, held by"),
            attach(board, "physical", log_directory=tmp_path),
        ):
            pass

    monkeypatch.setattr(_Machine, "work", work, raising=False)
    assert _lend(calls, fake) == ["attach-device", "detach-device"]
    assert calls_before == ["attach-device"]
    with lock.hold("st-link LENT-1"):
        pass


def test_probe_in_use_is_not_lent(
    bus: Path, tmp_path: Path, fake: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Machine, "work", lambda: pytest.fail("the machine was set to work"), raising=False)
    with lock.hold("st-link LENT-1"), pytest.raises(BoardError, match="st-link LENT-1 is busy"):
        _lend(tmp_path / "calls", fake)
    assert not (tmp_path / "calls").exists()
