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
_LONGEST_ROUND = 50  # Instructions. The compiler generates about five.

_LOOP = """  for (int32_t rounds = x[0]; rounds > 0; rounds--) {
    __asm__ volatile(".global counted_mark\\ncounted_mark:\\nnop");
    y[0] = rounds;
  }
  return 0;"""


@pytest.fixture(scope="module")
def counted_loop(firmware: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    """A loop; the input gives the number of rounds."""
    return firmware([handwritten("counted", _LOOP)])


def _instructions_per_round(board: Connection, mark: int) -> int:
    """Number of single steps in one round of the loop; the core is about to run the program."""
    board.insert_breakpoint(mark)
    assert board.run_until_stop(_TIMEOUT) == mark
    board.clear_breakpoints()
    for steps in range(1, _LONGEST_ROUND):
        board.gdb.step()
        if board.gdb.read_register("pc") == mark:
            return steps
    raise AssertionError("the loop does not come back to its beginning")


def test_count_of_a_loop_equals_its_single_steps(
    board: Connection, counted_loop: Firmware, session: Callable[[Firmware], HostDriven]
) -> None:
    running = session(counted_loop)

    def count(rounds: int) -> int:
        return running.run("counted", [np.array([rounds, 0, 0, 0], np.int32)]).count

    # The difference cancels the code around the loop.
    difference = count(2 * _ROUNDS) - count(_ROUNDS)
    steps = _instructions_per_round(board, counted_loop.symbols["counted_mark"])
    if board.count_unit == "instructions":
        assert difference == _ROUNDS * steps
    else:
        # A core may issue two instructions per cycle, and stall on some of them.
        assert _ROUNDS * steps / 2 <= difference <= _ROUNDS * steps * 10
