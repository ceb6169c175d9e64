# SPDX-License-Identifier: Apache-2.0
"""Memory protection of a virtual Cortex-M4 and M33 against QEMU; see ``test_against_qemu``."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import Target
from tests.virtual.test_against_qemu import MACROS, WORDS, compare, run_qemu
from tests.virtual.test_cortex_m33 import L5Target


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path, "stm32f407") as target:
        yield target


# Macros: define a region by number, address and attributes; try an access.
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
def test_region_protects_memory(target: Target, tmp_path: Path, attributes: int) -> None:
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


# Each program ends in the handler that notes the report; R6 is the exception number.
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


# Nothing is refused at first: the region is where no memory is, as in many programs of STMicroelectronics.
LATER_FAULTS = {
    "a load from where no memory is": """
        ldr r0, =0x60000000
        ldr r7, [r0]
        """,
    "a store to where no memory is": """
        ldr r0, =0x60000000
        str r7, [r0]
        """,
    "code where no memory is": """
        ldr r0, =0x60000001
        bx r0
        """,
    "a load from a subregion": """
        set 0xE000EDA0, 0
        region 0, 0, 0x1000873F
        ldr r0, =0x60000000
        ldr r7, [r0]
        """,
    "a load from a device": """
        region 2, 0xA0000000, 0x00000039
        ldr r0, =0xA0000000
        ldr r7, [r0]
        """,
    "a region that follows": """
        region 4, 0x20012000, 0x00000009
        ldr r0, =0x20012000
        ldr r7, [r0]
        """,
    "unprivileged code": """
        region 1, 0x08000000, 0x03000027
        ldr r0, =0x20012000
        ldr r7, [r0]
        note r7
        movs r1, #1
        msr control, r1
        ldr r7, [r0]
        """,
    "an unprivileged load": """
        ldr r0, =0x20012000
        ldrt r7, [r0]
        """,
    "unprivileged code before": """
        set 0xE000ED94, 0
        region 1, 0x08000000, 0x03000027
        movs r0, #1
        msr control, r0
        svc #0
        ldr r0, =0x20012000
        ldr r7, [r0]
        handler sv_call
        set 0xE000ED94, 5
        bx lr
        """,
}


@pytest.mark.parametrize("case", [*FAULTS, *LATER_FAULTS])
def test_protection_faults(target: Target, tmp_path: Path, case: str) -> None:
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
    control, region = (1, "0x08000000, 0x06000027") if case in FAULTS else (5, "0x60000000, 0x00000039")
    words = compare(
        target,
        tmp_path,
        f"""{PROTECT.replace("handler mem_manage", "handler unused")}
        region 0, {region}
        set 0xE000ED94, {control}
        dsb
        isb
        {(FAULTS | LATER_FAULTS)[case]}
        handler mem_manage
        set 0xE000ED94, {control}
        region 5, 0x20000000, 0x03000021
        {report}
        handler hard_fault
        {report}
        """,
    )
    assert any(words)


@pytest.mark.parametrize(
    ("base", "limit", "control"),
    [(access << 1 | access >> 1, 0x1E1, 1 + 4 * (access & 1)) for access in range(4)]
    + [(2, 0x1, 5), (2, 0x1, 1), (2, 0x0, 5), (2, 0x2001, 5)],
)
def test_armv8_region_protects_memory(tmp_path: Path, base: int, limit: int, control: int) -> None:
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
    with L5Target(tmp_path, "nucleo-l552ze-q") as target:
        target.run(program)
        words = [f"{word:#x}" for word in target.words("result", WORDS)]
    # The same program at the addresses of QEMU's board.
    source, moved = (tmp_path / "program.s").read_text(), tmp_path / "moved.s"
    moved.write_text(source.replace("0x2000", "0x3800").replace("0x2001", "0x3801").replace("0x080", "0x100"))
    flags = ["-mcpu=cortex-m33", "-mthumb", "-nostdlib", "-Wl,--section-start=.vectors=0x10000000,-e,reset"]
    flags += ["-Wl,-Ttext=0x10000200,-Tbss=0x38010000,--no-warn-rwx-segments"]
    subprocess.run(["arm-none-eabi-gcc", *flags, "-o", tmp_path / "moved.elf", moved], check=True, timeout=60)
    qemu_words = run_qemu("mps2-an505", tmp_path / "moved.elf")
    assert words[2:] == qemu_words[2:]
    assert [int(word, 16) & 0xFFFF for word in words[:2]] == [int(word, 16) & 0xFFFF for word in qemu_words[:2]]
