# SPDX-License-Identifier: Apache-2.0
"""The board holder distinguishes errors of the infrastructure from errors of the board."""

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
def connection() -> FakeConnection:
    return FakeConnection(boards.load("stm32f746"), 1)


@pytest.fixture
def holder(connection: FakeConnection, tmp_path: Path) -> BoardHolder:
    result = BoardHolder(connection.board, BoardSelection(kind="virtual"), tmp_path)
    result._connection = cast(Connection, connection)
    return result


@pytest.mark.parametrize("error", [ProbeError("gone"), TransportError("broken")])
def test_probe_or_transport_error_is_a_board_failure(holder: BoardHolder, error: Exception) -> None:
    assert holder.board_failure(error) == str(error)


@pytest.mark.parametrize(
    "error", [_FAULT, BoardError("address refused"), AssertionError(), CompileError("x"), KeyError("x")]
)
def test_error_of_a_live_board_or_a_test_is_none(holder: BoardHolder, error: Exception) -> None:
    assert holder.board_failure(error) == ""


@pytest.mark.parametrize("error", [BoardError("refused"), AssertionError(), KeyError("x")])
def test_any_error_after_openocd_died_is_a_board_failure(
    holder: BoardHolder, connection: FakeConnection, error: Exception
) -> None:
    connection.openocd_died = True
    assert "OpenOCD ended" in holder.board_failure(error)


def test_silent_board_is_a_board_failure(holder: BoardHolder, connection: FakeConnection) -> None:
    connection.silent = True
    assert "no answer" in holder.board_failure(BoardError("cannot be halted"))


def test_unattached_board_cannot_be_used(tmp_path: Path) -> None:
    holder = BoardHolder(boards.load("stm32f746"), BoardSelection(kind="virtual"), tmp_path)
    with pytest.raises(ProbeError, match="not attached"):
        _ = holder.connection
