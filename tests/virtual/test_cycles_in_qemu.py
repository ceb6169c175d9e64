# SPDX-License-Identifier: Apache-2.0
"""Modelled cycles in QEMU: a Cortex-M55 against LLVM's ARMScheduleM55.td, and a model."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm import boards
from utvm.virtual.cortex_m.cycles import qemu_plugin
from utvm.virtual.spec import CacheSpec, RegionSpec

_ROUNDS, _WAIT = 20, 5
_PROGRAM = f"""
.syntax unified
.thumb
.word 0x01200000, start + 1
.thumb_func
.global _start
_start: start:
ldr r0, =0xE000ED88
ldr r1, =0x00F00000
str r1, [r0]
dsb
isb
ldr r6, =0xDFFFFFFC
ldr r2, =0x01000000
mov r10, r2
mov r8, #2
again:
ldr r7, [r6]
mov lr, #{_ROUNDS}
.balign 8
1: %s
le lr, 1b
ldr r9, [r6]
sub r9, r9, r7
subs.w r8, r8, #1
bne again
mov r7, #{_ROUNDS}
udiv r9, r9, r7
ldr r0, =0x20026
movs r1, r9
push {{r0, r1}}
mov r1, sp
movs r0, #0x20
bkpt 0xAB
"""


@pytest.mark.parametrize(
    ("body", "cycles"),
    [
        # Two beats each; instructions in different pipes overlap.
        ("vldrb.u8 q0, [r2]\nvmladava.s8 r4, q0, q1", 2),
        ("vldrb.u8 q0, [r2]\nvldrb.u8 q1, [r2]", 4),
        ("vldrb.u8 q0, [r2]\nvadd.i8 q1, q1, q2\nvmul.i8 q3, q3, q4\nvstrb.8 q3, [r10]", 5),  # the next load waits
        # Two 16-bit instructions in a cycle, if one is simple and they are independent.
        ("movs r3, #1\nmovs r4, #2", 1),
        ("ands r3, r4\nadds r0, #1\nands r3, r4\nadds r0, #1", 2),
        ("ands r3, r4\norrs r0, r1", 2),
        ("adds r3, #1\nadds r3, #1", 2),
        # A loaded value is ready one cycle later.
        ("ldr.w r3, [r2]\nadd.w r3, r3, r3", 3),
        # A load that crosses words takes two accesses; stores have a buffer.
        ("ldr.w r3, [r2, #4]", 1),
        ("ldr.w r3, [r2, #6]", 2),
        ("str.w r3, [r2, #6]", 1),
    ],
)
def test_cortex_m55_cycles_equal_llvm(tmp_path: Path, body: str, cycles: int) -> None:
    assert _cycles_a_round(tmp_path, body) == cycles


def test_loads_alone_wait_for_flash(tmp_path: Path) -> None:
    body = "ldr.w r3, [r2]\nldr.w r4, [r2, #8]\nstr.w r3, [r2, #16]"
    flash = RegionSpec(name="flash", address=0x01000000, size=2**20, kind="flash")
    assert _cycles_a_round(tmp_path, body, flash) == 3 + 2 * _WAIT


def _cycles_a_round(tmp_path: Path, body: str, *regions: RegionSpec) -> int:
    (tmp_path / "program.s").write_text(_PROGRAM % body)
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m55", "-nostdlib", "-Wl,-Ttext=0", "-o", "program", "program.s"]
    subprocess.run(command, check=True, cwd=tmp_path)
    board = boards.load("mps3-an547:cycles=model")
    assert board.timing
    timing = board.timing.model_copy(update={"data": CacheSpec(lines=1, ways=1, line=8, wait=_WAIT)})
    plugin = qemu_plugin("cortex-m55", timing, regions, tmp_path / "cycles")
    options = "-M mps3-an547,memory-backend=ram -object memory-backend-memfd,id=ram,size=2G,share=on -nodefaults"
    options += " -display none -icount shift=7 -semihosting -kernel program -plugin"
    completed = subprocess.run(["qemu-system-arm", *options.split(), plugin], check=False, cwd=tmp_path, timeout=60)
    return completed.returncode


@pytest.mark.slow
def test_cortex_m7_cycles_in_qemu_equal_the_core_model() -> None:
    counts = []
    for board in ("mps2-an500", "stm32f746:code=ram,weights=ram"):
        output = inv("model.run", "models/digits/digits_int8.tflite", "--board", board, "--cycles").stdout
        counts.append(int(re.findall(r"modelled cycles ([\d,]+)", output)[0].replace(",", "")))
    assert abs(counts[0] / counts[1] - 1) < 0.02  # Addresses differ, and so do paired loads.
