# SPDX-License-Identifier: Apache-2.0
"""Measures the virtual STM32F746's speed while it counts every instruction, against plain Unicorn, and while it models
cycles (the STM32F407, too), against counting.

Each loop runs on the complete board (SysTick at 1 kHz of a 216 MHz clock, exact counting, all checks) and then on a
bare Unicorn that counts nothing, in this process. QEMU runs the same loop as its boards do, with ``-icount``. All times
are CPU time, the least of several runs. The network vww of ``networks.py`` runs on both boards: the CPU time of their
processes for a run, without that of OpenOCD and of this process.

Run: ``.venv/bin/python benchmarks/virtual_speed.py``. Ends with 1 if no loop reaches the target on the board, or if one
is slower than the limits: the model 3 times as slow as counting; counting, and a run of vww, 4 times as slow as QEMU.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import unicorn
from unicorn import arm_const, unicorn_const

sys.path.insert(0, str(Path(__file__).parent.parent))
import utvm
from benchmarks import networks, seen
from tests.virtual.target import FLASH, Target

TARGET_MIPS = 150
MOST_MODEL, MOST_QEMU = 3.0, 4.0  # times as slow
RUNS = 5
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
IN_QEMU = """
.syntax unified
.thumb
.word 0x20010000, _start + 1
.thumb_func
.global _start
_start: ldr r0, =0xE000ED88
ldr r1, =0x00F00000
str r1, [r0]
isb
ldr r1, =0x20000000
ldr r2, ={rounds}
movs r0, #0
1: {body}
subs r2, #1
bne 1b
movs r0, #0x18
ldr r1, =0x20026
bkpt 0xAB
"""


def main() -> int:
    """Print a line for each loop and return the exit code."""
    best = 0.0
    speeds: dict[str, list[tuple[float, float]]] = {"integer": [], "float": []}
    slower: dict[str, list[float]] = {chip: [] for chip in SLOWER}
    qemu_ratios = []
    print(
        "million instructions a second   board   QEMU   bare Unicorn   share   modelled cycles, times slower:", *SLOWER
    )
    for name, size, body in LOOPS:
        rounds = ROUNDS // size
        with tempfile.TemporaryDirectory() as directory, Target(Path(directory)) as connection:
            board = _mips(connection, PROGRAM.format(rounds=rounds, body=body))
            image = connection.machine.read(FLASH, 0x1000)
            bare = size * rounds / _bare_seconds(image, connection.symbols) / 1e6
        for chip in SLOWER:
            with tempfile.TemporaryDirectory() as directory, Target(Path(directory), chip, cycles=True) as connection:
                slower[chip].append(board / _mips(connection, PROGRAM.format(rounds=rounds // 4, body=body)))
        qemu = size * rounds / _qemu_seconds(body, rounds) / 1e6
        qemu_ratios.append(qemu / board)
        best = max(best, board)
        speeds["float" if name == "float" else "integer"].append((board, board / bare))
        times = "   ".join(f"{slower[chip][-1]:>10.1f}" for chip in SLOWER)
        print(f"{name:<28} {board:>8.0f}   {qemu:>4.0f}   {bare:>12.0f}   {board / bare:>4.0%}   {times}")
    vww = {name: _network_seconds(name) for name in ("stm32f746", "mps2-an500")}
    vww_ratio = vww["stm32f746"] / vww["mps2-an500"]
    print("a run of vww, ms of CPU time:", *(f"{name} {seconds * 1e3:.0f}" for name, seconds in vww.items()))
    integer, floating = speeds["integer"], speeds["float"]
    seen.keep(
        "virtual_speed",
        {
            "integer_mips": [round(edge(mips for mips, _ in integer)) for edge in (min, max)],
            "float_mips": [round(edge(mips for mips, _ in floating)) for edge in (min, max)],
            "integer_share": [round(edge(share for _, share in integer), 2) for edge in (min, max)],
            "qemu_times_as_fast": [round(edge(qemu_ratios), 1) for edge in (min, max)],
            "vww_ms": {name: round(1e3 * seconds) for name, seconds in vww.items()},
            "vww_times": round(vww_ratio, 1),
            "float_share": round(floating[0][1], 2),
            "cycles_times_as_slow": {chip: [round(edge(slower[chip]), 1) for edge in (min, max)] for chip in SLOWER},
        },
    )
    print(f"target {TARGET_MIPS}: {'reached' if best >= TARGET_MIPS else 'MISSED'}")
    worst = max(max(values) for values in slower.values())
    print(f"the model is at most {worst:.1f} times as slow as counting: limit {MOST_MODEL}")
    fastest = max(qemu_ratios)
    print(f"QEMU is at most {fastest:.1f} times as fast as counting, {vww_ratio:.1f} times in vww: limit {MOST_QEMU}")
    return 0 if best >= TARGET_MIPS and worst <= MOST_MODEL and max(fastest, vww_ratio) <= MOST_QEMU else 1


def _network_seconds(name: str) -> float:
    """Return the CPU seconds of the board's process for a run of vww."""
    content = next(network.content for network in networks.networks() if network.name == "vww")
    with tempfile.TemporaryDirectory() as folder, utvm.open(name, kind="virtual") as board:
        path = Path(folder, "vww.tflite")
        path.write_bytes(content)
        model, image = board.load(path), np.zeros((1, 96, 96, 3), np.int8)
        seconds = []
        for _ in range(RUNS):
            before = _children_seconds()
            for _ in range(10):
                model.run(image)
            seconds.append((_children_seconds() - before) / 10)
    return min(seconds)


def _children_seconds() -> float:
    """Return the CPU seconds of all living children but OpenOCD."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        fields = rest.split()
        if int(fields[1]) == os.getpid() and not name.endswith("(openocd"):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _mips(connection: Target, program: str) -> float:
    speeds = []
    for _ in range(RUNS):
        connection.load(program)
        earlier, start = connection.machine.instructions, time.process_time()
        connection.resume()
        connection.wait_for_halt()
        speeds.append((connection.machine.instructions - earlier) / (time.process_time() - start) / 1e6)
    return max(speeds)


def _qemu_seconds(body: str, rounds: int) -> float:
    """Return the CPU seconds of a loop, without the start of QEMU."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for count in (rounds, 1):
            Path(folder, "loop.s").write_text(IN_QEMU.format(body=body, rounds=count))
            flags = ["-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard", "-nostdlib", "-Wl,-Ttext=0"]
            subprocess.run(["arm-none-eabi-gcc", *flags, "-o", "loop", "loop.s"], check=True, cwd=folder)
            options = "-M mps2-an500 -nodefaults -display none -icount shift=7 -semihosting -kernel loop"
            times = []
            for _ in range(RUNS):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = ["qemu-system-arm", *options.split()]
                subprocess.run(command, check=True, cwd=folder, stderr=subprocess.DEVNULL)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            seconds.append(min(times))
    return seconds[0] - seconds[1]


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
