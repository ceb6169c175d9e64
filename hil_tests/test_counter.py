# SPDX-License-Identifier: Apache-2.0
"""The cycle counter: its count of a loop equals the number of single steps."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from hil_tests.programs import handwritten
from utvm.compiler import Library
from utvm.drivers import Connection
from utvm.firmware import Firmware
from utvm.session import HostDriven

pytestmark = [pytest.mark.needs("debug port"), pytest.mark.needs("counter")]

_TIMEOUT = 10.0
_ROUNDS = 1000
_LONGEST_ROUND = 50  # Instructions; the compiler makes about five of it.

_LOOP = """  for (int32_t rounds = x[0]; rounds > 0; rounds--) {
    __asm__ volatile(".global counted_mark\\ncounted_mark:\\nnop");
    y[0] = rounds;
  }
  return 0;"""


@pytest.fixture(scope="module")
def counted(firmware: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    """A loop; the input gives the number of rounds."""
    return firmware([handwritten("counted", _LOOP)])


def _instructions_of_a_round(board: Connection, mark: int) -> int:
    """Single-step one round of the loop; the core is about to run the program."""
    board.insert_breakpoint(mark)
    assert board.run_until_stop(_TIMEOUT) == mark
    board.clear_breakpoints()
    for steps in range(1, _LONGEST_ROUND):
        board.gdb.step()
        if board.gdb.read_register("pc") == mark:
            return steps
    raise AssertionError("the loop does not come back to its beginning")


def test_a_loop_takes_as_many_as_a_debugger_steps_through(
    board: Connection, counted: Firmware, session: Callable[[Firmware], HostDriven]
) -> None:
    running = session(counted)

    def count(rounds: int) -> int:
        return running.run("counted", [np.array([rounds, 0, 0, 0], np.int32)]).count

    # The difference cancels the code around the loop.
    took = count(2 * _ROUNDS) - count(_ROUNDS)
    steps = _instructions_of_a_round(board, counted.symbols["counted_mark"])
    if board.count_unit == "instructions":
        assert took == _ROUNDS * steps
    else:
        # A core may issue two instructions per cycle, and stall on some of them.
        assert _ROUNDS * steps / 2 <= took <= _ROUNDS * steps * 10
