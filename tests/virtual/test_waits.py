# SPDX-License-Identifier: Apache-2.0
"""The model of waits for flash, against the manuals' numbers: 7 cycles for a line of 32 bytes that is missing.

Programs are run for two numbers of rounds: the difference is what a round takes, whatever was missing before.
"""

from pathlib import Path

import pytest

from tests.virtual.target import Target
from tests.virtual.test_counting import CYCCNT_ON
from utvm import boards

_ROUNDS = (10, 30)
_WAIT = 7


def _a_round(folder: Path, body: str, waits: bool) -> float:
    counts = []
    for number, rounds in enumerate(_ROUNDS):
        (folder / str(number)).mkdir()
        with Target(folder / str(number), waits=waits) as target:
            program = f"movs r1, #{rounds}\nldr r7, [r0, #4]\n{body}\nldr r6, [r0, #4]\ndone"
            target.run(f"handler reset\n{CYCCNT_ON}\nldr r2, =0x08000000\n{program}")
            counts.append(target.register(6) - target.register(7))
    return (counts[1] - counts[0]) / (_ROUNDS[1] - _ROUNDS[0])


def _blocks(count: int, apart: int) -> str:
    """Return a loop of branches from block to block."""
    blocks = [f".balign {apart}\n{number}: b.w {number + 1}f" for number in range(1, count)]
    return "\n".join(["b.w 1f\n.ltorg", *blocks, f".balign {apart}\n{count}: subs r1, #1\nbne.w 1b"])


@pytest.mark.parametrize(
    ("body", "instructions", "lines"),
    [
        # What is in a cache costs nothing more: of 4 KB in two ways, two lines 2 KB apart, and 128 in a row.
        (_blocks(1, 32), 2, 0),
        (_blocks(2, 2048), 3, 0),
        # A third one of a set pushes another out before it is wanted again, in every round.
        (_blocks(3, 2048), 4, 3),
        (_blocks(4, 2048), 5, 4),
        # One line more than there is room for.
        ("b.w 1f\n.ltorg\n.balign 4096\n1:\n.rept 2032\nnop\n.endr\nsubs r1, #1\nbne.w 1b", 2034, 0),
        # Of data, flash has the line that was read last.
        (".balign 32\n1: ldr r3, [r2]\nldr r3, [r2, #28]\nsubs r1, #1\nbne.w 1b", 4, 0),
        (".balign 32\n1: ldr r3, [r2]\nldr r3, [r2, #32]\nsubs r1, #1\nbne.w 1b", 4, 2),
        (".balign 32\n1: ldr r3, [r2]\nldr r3, [r2, #62]\nsubs r1, #1\nbne.w 1b", 4, 3),
    ],
)  # fmt: skip
def test_what_no_cache_has_costs_its_wait_states(tmp_path: Path, body: str, instructions: int, lines: int) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "model").mkdir()
    assert _a_round(tmp_path / "plain", body, waits=False) == instructions
    assert _a_round(tmp_path / "model", body, waits=True) == instructions + _WAIT * lines


def test_numbers_are_the_manual_s_and_opt_in() -> None:
    board = boards.load("stm32f746")
    assert board.machine_spec().wait_states is None
    waits = board.machine_spec(waits=True).wait_states
    assert waits and (waits.cycles, waits.line) == (_WAIT, 256 // 8)
    assert waits.instructions.lines * waits.line == 4 * 1024
