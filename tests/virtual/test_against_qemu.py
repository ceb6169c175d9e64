# SPDX-License-Identifier: Apache-2.0
"""Programs that leave the same words on a virtual Cortex-M4 or M33 as on QEMU's, a model of its own.

A program is one image for both. It stores to ``result``; ``dump`` writes that by semihosting, where QEMU ends. The
virtual board halts at its first BKPT.
"""

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import Target
from tests.virtual.test_cortex_m33 import L5Bench

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
    """Run on both and compare; return the words."""
    target.run(MACROS + program)
    ours = target.words("result", WORDS)
    assert [f"{word:#x}" for word in ours] == run_qemu("netduinoplus2", directory / "program.elf")
    return ours


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
    [
        "nop",
        TOUCH,
        f"cmp r0, r0\nitt eq\nmoveq r6, #1\nvmoveq.f32 s0, #4.0\n{TOUCH}",
        "vpush {s0-s3}\nvpop {s0-s3}",
    ],
    ids=["untouched", "touched", "in an IT block", "by a push"],
)
def test_lazy_stacking(target: Target, tmp_path: Path, prepare: str, body: str) -> None:
    words = compare(target, tmp_path, LAZY.format(prepare=prepare, body=body))
    assert words[2] & 1 == (0 if "EF34" in prepare else 1)  # LSPACT in the handler


# As the ports of FreeRTOS and Zephyr switch: S16 to S31 only for a task whose EXC_RETURN says that it used floats.
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


def test_two_tasks_with_floats_keep_their_registers(target: Target, tmp_path: Path) -> None:
    words = compare(target, tmp_path, SWITCH)
    first = [struct.unpack("<f", struct.pack("<I", word))[0] for word in words[:6]]
    second = [struct.unpack("<f", struct.pack("<I", word))[0] for word in words[16:22]]
    assert first == [3, 5, 7, 9, 11, 13]
    assert second == [12, 48, 192, 768, 3072, 12288]


# Regions: everything readable and writable; then the number, address and attributes of the one tried.
PROTECT = """
.macro region number, address, attributes
set 0xE000ED98, \\number
set 0xE000ED9C, \\address
set 0xE000EDA0, \\attributes
.endm
.macro try instruction:vararg
mov r7, #0x55
ldr r10, =next_\\@
ldr r8, =0x20012000
\\instruction
next_\\@: note r7
.endm
handler mem_manage
ldr r0, =0xE000ED28
ldr r1, [r0]
ldr r2, [r0, #0xC]
str r1, [r0]
lsls r2, #8
uxtb r1, r1
orr r7, r1, r2
str r10, [sp, #24]
bx lr
handler reset
start
set 0xE000ED24, 0x00070000
ldr r1, =0x47704770
ldr r2, =0x20012000
mov r3, #0x400
fill: str r1, [r2], #4
subs r3, #4
bne fill
"""
ACCESSES = """
try ldr r7, [r8]
try str r7, [r8]
try ldrb r7, [r8, #0x1f]
try ldr r7, [r8, #0x20]
try strh r7, [r8, #0x3e]
try strd r6, r7, [r8, #0x40]
try ldr r7, [r8, #0x100]
try str r7, [r8, #0x1fc]
try ldrt r7, [r8, #0x20]
try strt r7, [r8, #0x20]
try ldrbt r7, [r8, #0x80]
try strht r7, [r8, #0x80]
try ldm r8, {r6, r7}
try stm r8, {r6, r7}
adds r9, r8, #0x81
try blx r9
"""
CHECK = """
ldr r8, =0x20012000
ldr r7, [r8]
note r7
ldr r7, [r8, #0x20]
note r7
ldr r7, [r8, #0x1fc]
note r7
"""


@pytest.mark.parametrize(
    "attributes",
    [access << 24 | 0x13 for access in range(8) if access != 4]
    + [0x13000009, 0x03000009, 0x06008113, 0x0600FE11, 0x0000000B, 0x00000008],
    ids=hex,
)
def test_a_region_protects_memory(target: Target, tmp_path: Path, attributes: int) -> None:
    control = 1 + 4 * (attributes >> 24 & 1)  # without and with PRIVDEFENA
    words = compare(
        target,
        tmp_path,
        f"""{PROTECT}
        region 0, 0x08000000, 0x06000027
        region 1, 0x20000000, 0x03000021
        region 5, 0x20012000, {attributes:#x}
        region 3, 0x20012000, 0x00000009
        set 0xE000ED94, {control}
        dsb
        isb
        {ACCESSES}
        movs r0, #1
        msr control, r0
        isb
        {ACCESSES}
        svc #0
        handler sv_call
        set 0xE000ED94, 0
        {CHECK}
        dump
        """,
    )
    if attributes == 0x13:  # no access
        assert sum(word & 0x82 == 0x82 for word in words) == 28


# Each ends in the handler that notes what was reported; R6 is where it began.
FAULTS = {
    "stacking": """
        set 0xE000ED1C, 0x20000000
        region 1, 0x20000000, 0x02000021
        movs r0, #1
        msr control, r0
        isb
        svc #0
        """,
    "unstacking": """
        region 1, 0x20000000, 0x03000021
        svc #0
        handler sv_call
        region 4, 0x2000FF00, 0x0000000F
        movs r0, #1
        msr control, r0
        bx lr
        """,
    "lazy stacking that is reported at once": """
        set 0xE000ED1C, 0x20000000
        region 1, 0x20000000, 0x03000021
        vmov.f32 s0, #1.0
        svc #0
        handler sv_call
        region 4, 0x2000FF00, 0x0500000F
        vmov.f32 s0, #2.0
        """,
    "lazy stacking that waits": """
        region 1, 0x20000000, 0x03000021
        vmov.f32 s0, #1.0
        svc #0
        handler sv_call
        region 4, 0x2000FF00, 0x0500000F
        vmov.f32 s0, #2.0
        """,
    "hard fault without HFNMIENA": """
        region 1, 0x20000000, 0x03000021
        set 0xE000ED24, 0
        region 4, 0x20012000, 0x00000009
        ldr r0, =0x20012000
        ldr r7, [r0]
        """,
    "faultmask": """
        region 1, 0x20000000, 0x03000021
        region 4, 0x20012000, 0x00000009
        cpsid f
        ldr r0, =0x20012000
        ldr r7, [r0]
        cpsie f
        note r7
        ldr r7, [r0]
        """,
    "an address outside all regions": """
        region 1, 0x20000000, 0x03000021
        ldr r0, =0x40000000
        ldr r7, [r0]
        """,
    "code outside all regions": """
        region 1, 0x20000000, 0x13000021
        ldr r0, =0x20012001
        bx r0
        """,
    "private peripherals": """
        region 1, 0x20000000, 0x03000021
        ldr r0, =0xE000ED94
        ldr r7, [r0]
        note r7
        ldr r0, =0x20020000
        ldr r7, [r0, #-4]
        ldr r0, =0x08200000
        ldr r7, [r0]
        """,
    "a store to flash": """
        region 1, 0x20000000, 0x03000021
        ldr r0, =0x08000100
        str r0, [r0]
        """,
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_of_protection(target: Target, tmp_path: Path, case: str) -> None:
    report = """
        mrs r6, ipsr
        note r6
        look 0xE000ED28
        look 0xE000ED34
        look 0xE000ED2C
        ldr r7, =0xE000EF34
        ldr r7, [r7]
        bic r7, r7, #0x700  @ QEMU has bits of Armv8-M here
        note r7
        ldr r0, =0x20012000
        ldr r7, [r0]
        note r7
        dump
        """
    words = compare(
        target,
        tmp_path,
        f"""{PROTECT.replace("handler mem_manage", "handler unused")}
        region 0, 0x08000000, 0x06000027
        set 0xE000ED94, 1
        dsb
        isb
        {FAULTS[case]}
        handler mem_manage
        set 0xE000ED94, 1
        region 5, 0x20000000, 0x03000021
        {report}
        handler hard_fault
        {report}
        """,
    )
    assert any(words)


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


def test_an_exception_clears_the_exclusive_monitor(target: Target, tmp_path: Path) -> None:
    assert compare(target, tmp_path, EXCLUSIVE)[:8] == [0, 1, 1, 0, 1, 1, 0, 1]


# What the private peripherals do for code without privilege (B3.2.22, CCR; B3.1): BusFault, but for STIR.
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
def test_unprivileged_code_and_private_peripherals(target: Target, tmp_path: Path, prepare: str) -> None:
    compare(target, tmp_path, PRIVILEGE.replace("{prepare}", prepare))


@pytest.mark.parametrize(
    ("base", "limit", "control"),
    [(access << 1 | access >> 1, 0x1E1, 1 + 4 * (access & 1)) for access in range(4)]
    + [(2, 0x1, 5), (2, 0x1, 1), (2, 0x0, 5), (2, 0x2001, 5)],
)
def test_a_region_of_armv8_protects_memory(tmp_path: Path, base: int, limit: int, control: int) -> None:
    program = f"""{MACROS}{PROTECT}
        set 0xE000EDC0, 0x44444444
        region 0, 0x08000006, 0x080FFFE1
        region 1, 0x20000003, 0x20011FE1
        region 2, 0x20014002, 0x2001FFE1
        region 5, 0x20012000 + {base}, 0x20012000 + {limit}
        look 0xE000ED9C
        look 0xE000EDA0
        set 0xE000ED94, {control}
        dsb
        isb
        {ACCESSES}
        movs r0, #1
        msr control, r0
        isb
        {ACCESSES}
        svc #0
        handler sv_call
        set 0xE000ED94, 0
        {CHECK}
        dump
        """
    with L5Bench(tmp_path, "nucleo-l552ze-q") as target:
        target.run(program)
        ours = [f"{word:#x}" for word in target.words("result", WORDS)]
    # The same at the addresses of QEMU's board
    source, moved = (tmp_path / "program.s").read_text(), tmp_path / "moved.s"
    moved.write_text(source.replace("0x2000", "0x3800").replace("0x2001", "0x3801").replace("0x080", "0x100"))
    flags = ["-mcpu=cortex-m33", "-mthumb", "-nostdlib", "-Wl,--section-start=.vectors=0x10000000,-e,reset"]
    flags += ["-Wl,-Ttext=0x10000200,-Tbss=0x38010000,--no-warn-rwx-segments"]
    subprocess.run(["arm-none-eabi-gcc", *flags, "-o", tmp_path / "moved.elf", moved], check=True, timeout=60)
    theirs = run_qemu("mps2-an505", tmp_path / "moved.elf")
    assert ours[2:] == theirs[2:]
    assert [int(word, 16) & 0xFFFF for word in ours[:2]] == [int(word, 16) & 0xFFFF for word in theirs[:2]]
