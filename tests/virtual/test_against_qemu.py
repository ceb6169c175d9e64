# SPDX-License-Identifier: Apache-2.0
"""Programs that leave the same words in memory on a virtual Cortex-M4 and on QEMU's independent model.

One image runs on both. It stores to ``result``; ``dump`` writes that by semihosting, where QEMU ends. The virtual
board halts at its first BKPT.
"""

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import Target

WORDS = 64
MACROS = """
.macro dump
ldr r0, =0xE000ED94
movs r1, #0
str r1, [r0]
movs r0, #1
adr r1, open_\\@
bkpt #0xab
ldr r2, =result
mov r3, #256
push {r0, r2, r3}
mov r1, sp
movs r0, #5
bkpt #0xab
ldr r1, =0x20026
movs r0, #0x18
bkpt #0xab
.balign 4
open_\\@: .word name_\\@, 4, 3
name_\\@: .asciz ":tt"
.balign 4
.ltorg
.endm
.macro note register
str \\register, [r11], #4
.endm
.macro look address
ldr r12, =\\address
ldr r12, [r12]
str r12, [r11], #4
.endm
.macro set address, value
ldr r0, =\\address
ldr r1, =\\value
str r1, [r0]
.endm
.macro start
ldr r11, =result
set 0xE000ED88, 0x00F00000
dsb
isb
.endm
"""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path, "stm32f407") as target:
        yield target


def run_qemu(machine: str, program: Path) -> list[str]:
    command = ["qemu-system-arm", "-machine", machine, "-display", "none", "-serial", "none"]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(program)]
    output = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    return [f"{word:#x}" for word in struct.unpack(f"<{WORDS}I", output)]


def compare(target: Target, directory: Path, program: str) -> list[int]:
    """Run a program on both, compare the words, and return them."""
    target.run(MACROS + program)
    words = target.words("result", WORDS)
    assert [f"{word:#x}" for word in words] == run_qemu("netduinoplus2", directory / "program.elf")
    return words


LAZY = """
handler reset
start
{prepare}
vmov.f32 s0, #1.5
vmov.f32 s15, #2.5
ldr r1, =0x03000000
vmsr fpscr, r1
svc #0
vmrs r7, fpscr
note r7
vmov r7, s0
note r7
mrs r7, control
note r7
look 0xE000EF34
dump
handler sv_call
note sp
note lr
look 0xE000EF34
look 0xE000EF38
{body}
look 0xE000EF34
mrs r7, control
note r7
bx lr
"""
TOUCH = "vmov.f32 s0, #-1.0\nvmrs r7, fpscr\nnote r7\nldr r7, [sp, #32]\nnote r7\nldr r7, [sp, #96]\nnote r7\n"


BLOCK = "cmp r0, r0\nitt eq\nmoveq r6, #1\nvmoveq.f32 s0, #4.0\n"


@pytest.mark.parametrize("prepare", ["", "set 0xE000EF3C, 0x01C00000", "set 0xE000EF34, 0x80000000"])
@pytest.mark.parametrize(
    "body",
    ["nop", TOUCH, f"cmp r0, r0\nitt eq\nmoveq r6, #1\nvmoveq.f32 s0, #4.0\n{TOUCH}", "vpush {s0-s3}\nvpop {s0-s3}"],
    ids=["untouched", "touched", "in an IT block", "by a push"],
)
def test_lazy_stacking(target: Target, tmp_path: Path, prepare: str, body: str) -> None:
    words = compare(target, tmp_path, LAZY.format(prepare=prepare, body=body))
    assert words[2] & 1 == (0 if "EF34" in prepare else 1)  # LSPACT in the handler


# Context switch as in FreeRTOS and Zephyr: S16 to S31 only for a task whose EXC_RETURN marks its use of floats.
SWITCH = """
handler reset
start
ldr r1, =0x20014000
ldr r2, =(0x20013000 - 104)
ldr r3, =second
orr r3, #1
str r3, [r2, #24]
mov r3, #0x01000000
str r3, [r2, #28]
mvn r3, #2
stmdb r2!, {r3-r11}
str r3, [r2]
ldr r4, =0x20011000
str r2, [r4]
msr psp, r1
movs r0, #2
msr control, r0
isb
vmov.f32 s1, #1.0
vmov.f32 s17, #2.0
ldr r9, =0xE000ED04
mov r10, #0x10000000
mov r5, #6
first: vadd.f32 s1, s1, s17
vmov r6, s1
note r6
str r10, [r9]
dsb
isb
subs r5, #1
bne first
look 0xE000EF34
movs r0, #0
msr control, r0
dump
second: ldr r9, =0xE000ED04
mov r10, #0x10000000
ldr r11, =result+64
vmov.f32 s1, #3.0
vmov.f32 s17, #4.0
again: vmul.f32 s1, s1, s17
vmov r6, s1
str r6, [r11], #4
str r10, [r9]
dsb
isb
b again
handler pend_sv
mrs r0, psp
tst lr, #0x10
it eq
vstmdbeq r0!, {s16-s31}
mov r3, lr
stmdb r0!, {r3-r11}
ldr r4, =0x20011000
ldr r1, [r4]
str r0, [r4]
ldmia r1!, {r3-r11}
mov lr, r3
tst lr, #0x10
it eq
vldmiaeq r1!, {s16-s31}
msr psp, r1
bx lr
"""


def test_tasks_with_floats_keep_their_registers(target: Target, tmp_path: Path) -> None:
    words = compare(target, tmp_path, SWITCH)
    first = [struct.unpack("<f", struct.pack("<I", word))[0] for word in words[:6]]
    second = [struct.unpack("<f", struct.pack("<I", word))[0] for word in words[16:22]]
    assert first == [3, 5, 7, 9, 11, 13]
    assert second == [12, 48, 192, 768, 3072, 12288]


EXCLUSIVE = """
.macro trap
svc #0
.endm
.macro exchange suffix, between
ldrex\\suffix r5, [r8]
\\between
mov r6, #7
.ifc "\\suffix", ""
strex r6, r5, [r8]
.else
strex\\suffix r6, r5, [r8]
.endif
note r6
.endm
handler sv_call
bx lr
handler reset
start
ldr r8, =0x20012000
ldr r9, =0x20012010
exchange , nop
exchange , trap
exchange b, trap
exchange h, nop
exchange h, trap
exchange b, clrex
exchange , nop
strex r6, r5, [r8]
note r6
dump
"""


def test_exception_clears_the_exclusive_monitor(target: Target, tmp_path: Path) -> None:
    assert compare(target, tmp_path, EXCLUSIVE)[:8] == [0, 1, 1, 0, 1, 1, 0, 1]


# Unprivileged access to the private peripherals is a BusFault, except to STIR (B3.2.22, CCR; B3.1).
PRIVILEGE = """
handler bus_fault
ldr r0, =0xE000ED28
ldr r1, [r0]
str r1, [r0]
ldr r2, [r0, #0x10]
note r1
note r2
str r10, [sp, #24]
bx lr
handler irq3
ldr r0, =result+240
str r9, [r0]
bx lr
handler sv_call
dump
handler reset
start
set 0xE000ED24, 0x00070000
set 0xE000E100, 0x8
.macro try instruction:vararg
ldr r10, =next_\\@
\\instruction
next_\\@: note r8
.endm
ldr r8, =0xE000ED24
ldr r9, =0xE000EF00
mov r6, #3
try ldr r5, [r8]
try ldrt r5, [r8]
try strt r6, [r9]
{prepare}
movs r0, #1
msr control, r0
isb
try ldr r5, [r8]
try str r6, [r9]
try str r6, [r8]
try ldrb r5, [r8]
msr primask, r6
mrs r5, primask
note r5
mrs r5, control
note r5
svc #0
"""


@pytest.mark.parametrize("prepare", ["", "set 0xE000ED14, 0x202"])
def test_unprivileged_access_to_private_peripherals(target: Target, tmp_path: Path, prepare: str) -> None:
    compare(target, tmp_path, PRIVILEGE.replace("{prepare}", prepare))
