# SPDX-License-Identifier: Apache-2.0
"""How fast the virtual STM32F746 executes while it counts every instruction, against Unicorn left alone, and while
it models cycles (the STM32F407, too), against that.

Each loop runs on the whole board (SysTick at 1 kHz of a 216 MHz clock, exact counting, all checks) and then on a
bare Unicorn that counts nothing, in this process.

Run: ``.venv/bin/python benchmarks/virtual_speed.py``. Ends with 1 if no loop reaches the target on the board.
"""

import sys
import tempfile
import time
from pathlib import Path

import unicorn
from unicorn import arm_const, unicorn_const

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import seen
from tests.virtual.target import FLASH, Target

TARGET_MIPS = 150
SLOWER = ("stm32f407", "stm32f746")
ROUNDS = 30_000_000

# name, instructions a round, body; r2 counts the rounds, r1 points to RAM
LOOPS = [
    ("add", 3, "adds r0, #1"),
    ("load and arithmetic", 7, "ldr r3, [r1]\nmla r4, r3, r3, r4\nadds r5, r4\neor r6, r5\nlsrs r7, r6, #3"),
    ("conditional", 6, "cmp r2, r0\nite hi\naddhi r0, #1\nsubls r0, #1"),
    ("float", 6, "vldr s0, [r1]\nvldr s1, [r1, #4]\nvmul.f32 s0, s1\nvadd.f32 s2, s0"),
]
PROGRAM = """
    handler reset
    ldr r0, =0xE000ED88
    ldr r1, =0x00F00000
    str r1, [r0]
    isb
    ldr r0, =0xE000E010
    ldr r1, =215999
    str r1, [r0, #4]
    movs r1, #7
    str r1, [r0]
    loop_start: ldr r1, =result
    ldr r2, ={rounds}
    movs r0, #0
    1: {body}
    subs r2, #1
    bne 1b
    loop_end: done
    handler sys_tick
    bx lr
"""


def main() -> int:
    """Print a line a loop and return the exit code."""
    best = 0.0
    found: dict[str, list[tuple[float, float]]] = {"integer": [], "float": []}
    slower: dict[str, list[float]] = {chip: [] for chip in SLOWER}
    print(
        "million instructions a second   board   bare Unicorn   share   with modelled cycles, times as slow:",
        *SLOWER,
    )
    for name, size, body in LOOPS:
        rounds = ROUNDS // size
        with tempfile.TemporaryDirectory() as directory, Target(Path(directory)) as connection:
            connection.load(PROGRAM.format(rounds=rounds, body=body))
            board = _mips(connection)
            image = connection.machine.read(FLASH, 0x1000)
            bare = size * rounds / _bare_seconds(image, connection.symbols) / 1e6
        for chip in SLOWER:
            with (
                tempfile.TemporaryDirectory() as directory,
                Target(Path(directory), chip, cycles=True) as connection,
            ):
                connection.load(PROGRAM.format(rounds=rounds // 4, body=body))
                slower[chip].append(board / _mips(connection))
        best = max(best, board)
        found["float" if name == "float" else "integer"].append((board, board / bare))
        times = "   ".join(f"{slower[chip][-1]:>10.1f}" for chip in SLOWER)
        print(f"{name:<28} {board:>8.0f}   {bare:>12.0f}   {board / bare:>4.0%}   {times}")
    integer, floating = found["integer"], found["float"]
    seen.keep(
        "virtual_speed",
        {
            "integer_mips": [round(edge(mips for mips, _ in integer)) for edge in (min, max)],
            "float_mips": [round(edge(mips for mips, _ in floating)) for edge in (min, max)],
            "integer_share": [round(edge(share for _, share in integer), 2) for edge in (min, max)],
            "float_share": round(floating[0][1], 2),
            "cycles_times_as_slow": {
                chip: [round(edge(slower[chip]), 1) for edge in (min, max)] for chip in SLOWER
            },
        },
    )
    print(f"target {TARGET_MIPS}: {'reached' if best >= TARGET_MIPS else 'MISSED'}")
    return 0 if best >= TARGET_MIPS else 1


def _mips(connection: Target) -> float:
    before, start = connection.machine.instructions, time.process_time()
    connection.resume()
    connection.wait_for_halt()
    return (connection.machine.instructions - before) / (time.process_time() - start) / 1e6


def _bare_seconds(image: bytes, symbols: dict[str, int]) -> float:
    uc = unicorn.Uc(unicorn_const.UC_ARCH_ARM, unicorn_const.UC_MODE_THUMB | unicorn_const.UC_MODE_MCLASS)
    uc.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M7)
    uc.mem_map(FLASH, 1 << 20)
    uc.mem_write(FLASH, image)
    uc.mem_map(0x20000000, 320 << 10)
    start = time.process_time()
    uc.emu_start(symbols["loop_start"] | 1, symbols["loop_end"])
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
