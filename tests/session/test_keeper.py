# SPDX-License-Identifier: Apache-2.0
"""Telling trouble with the infrastructure from an answer of the board."""

from pathlib import Path
from typing import cast

import pytest

from tests.hil.fake_board import FakeConnection
from utvm import boards
from utvm.drivers import Connection
from utvm.errors import BoardError, CompileError, ProbeError, TransportError
from utvm.selection import BoardSelection
from utvm.session import DeviceFault, FaultRecord
from utvm.session.board_holder import BoardHolder
from utvm.session.fault import ARCHITECTURES
from utvm.session.fault.meaning import Meaning

_FAULT = DeviceFault(FaultRecord(Meaning("UsageFault"), {"sp": 0x20001000}, ARCHITECTURES["cortex_m"]), "")


@pytest.fixture
def bench() -> FakeConnection:
    return FakeConnection(boards.load("stm32f746"), 1)


@pytest.fixture
def keeper(bench: FakeConnection, tmp_path: Path) -> BoardHolder:
    made = BoardHolder(bench.board, BoardSelection(kind="virtual"), tmp_path)
    made._connection = cast(Connection, bench)
    return made


@pytest.mark.parametrize("error", [ProbeError("gone"), TransportError("broken")])
def test_a_probe_or_a_transport_that_breaks_is_trouble(keeper: BoardHolder, error: Exception) -> None:
    assert keeper.board_failure(error) == str(error)


@pytest.mark.parametrize(
    "error", [_FAULT, BoardError("address refused"), AssertionError(), CompileError("x"), KeyError("x")]
)
def test_what_a_live_board_says_or_a_test_finds_is_not(keeper: BoardHolder, error: Exception) -> None:
    assert keeper.board_failure(error) == ""


@pytest.mark.parametrize("error", [BoardError("refused"), AssertionError(), KeyError("x")])
def test_nothing_is_the_tests_own_fault_once_openocd_has_died(
    keeper: BoardHolder, bench: FakeConnection, error: Exception
) -> None:
    bench.openocd_died = True
    assert "OpenOCD ended" in keeper.board_failure(error)


def test_a_board_that_answers_nothing_any_more_is_trouble(keeper: BoardHolder, bench: FakeConnection) -> None:
    bench.silent = True
    assert "no answer" in keeper.board_failure(BoardError("cannot be halted"))


def test_a_board_that_is_not_attached_cannot_be_used(tmp_path: Path) -> None:
    keeper = BoardHolder(boards.load("stm32f746"), BoardSelection(kind="virtual"), tmp_path)
    with pytest.raises(ProbeError, match="not attached"):
        _ = keeper.connection
