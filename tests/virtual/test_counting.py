# SPDX-License-Identifier: Apache-2.0
"""The instruction count is exact for all instructions, and does not depend on debugger accesses."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from unicorn import unicorn_const

from tests.virtual.target import Target

CYCCNT_ON = """
    ldr r0, =0xE0001FB0
    ldr r1, =0xC5ACCE55
    str r1, [r0]
    ldr r0, =0xE0001000
    movs r1, #1
    str r1, [r0]
"""


def _count(target: Target, body: str) -> int:
    """Difference of CYCCNT around a body that preserves r0 and r7."""
    target.run(f"handler reset\n{CYCCNT_ON}\nldr r7, [r0, #4]\n{body}\nldr r6, [r0, #4]\ndone")
    return target.register(6) - target.register(7)


@pytest.mark.parametrize(
    ("body", "instructions"),
    [
        ("", 0),
        ("nop", 1),
        ("nop\nnop.w\nnop", 3),
        ("movs r1, #100\n1: subs r1, #1\nbne 1b", 1 + 2 * 100),
        ("ldr r1, =100000\n1: subs r1, #1\nnop\nnop\nbne 1b", 1 + 4 * 100000),
        ("bl 1f\nb 2f\n1: bx lr\n2:", 3),
        # An instruction whose condition fails is a NOP: it counts.
        ("movs r1, #1\ncmp r1, #0\nit eq\nmoveq r2, #1", 4),
        ("movs r1, #1\ncmp r1, #0\nittee eq\nmoveq r2, #1\naddeq.w r2, #1\nmovne r2, #2\naddne r2, #3", 7),
        ("movs r1, #1\ncmp r1, #0\nitttt eq\nmoveq r2, #1\nmoveq r2, #1\nmoveq r2, #1\nmoveq r2, #1\nnop", 8),
        # flags change inside the block
        ("movs r1, #1\ncmp r1, #1\nitt eq\ncmpeq r1, #2\nmoveq r2, #7", 5),
        ("movs r1, #50\n1: cmp r1, #25\nite hi\nsubhi r1, #1\nsubls r1, #1\ncbz r1, 2f\nb 1b\n2:", 1 + 6 * 50 - 1),
        ("push {r1, r2}\npop {r1, r2}", 2),
        ("svc #0", 2),  # and the handler's return
        ("ldr r1, =0x40004800\nldr r2, [r1]\nstr r2, [r1]", 3),
        ("ldr r1, =0x20020000\nmovs r2, #1\nldrex r3, [r1]\nstrex r3, r2, [r1]\ndmb", 5),
    ],
)  # fmt: skip
def test_instructions_are_counted_once(target: Target, body: str, instructions: int) -> None:
    extra = "\nb 9f\nhandler sv_call\nbx lr\n9:" if "svc" in body else ""
    if extra:
        instructions += 1  # the branch around the handler
    # The second load of the counter is the one additional instruction.
    assert _count(target, body + extra) == instructions + 1


BUSY = f"""
    handler reset
    {CYCCNT_ON}
    ldr r2, =0xE000E010
    ldr r1, =2999
    str r1, [r2, #4]
    movs r1, #7
    str r1, [r2]
    ldr r4, =40000
    movs r5, #0
1:  subs r4, #1
    ite mi
    addmi r5, #1
    addpl r5, #3
    udiv r3, r5, r4
    cmp r4, #0
    bne 1b
    ldr r6, [r0, #4]
    done
    handler sys_tick
    ldr r3, =result
    ldr r1, [r3]
    add r1, #1
    str r1, [r3]
    bx lr
"""


@pytest.mark.slow
@pytest.mark.parametrize("readers", [1, 2])
def test_debugger_reads_do_not_change_the_count(tmp_path: Path, readers: int) -> None:
    results = []
    for count in (0, readers, readers):
        with Target(tmp_path) as target:
            target.load(BUSY)
            with read_in_threads(target, count):
                target.resume()
                target.wait_for_halt()
            results.append((target.register(6), target.register(5), target.words("result", 1)[0]))
    assert results[0] == results[1] == results[2]
    # SysTick was started a few instructions after CYCCNT, and is due every 3000.
    instructions, _, interrupts = results[0]
    assert interrupts == instructions // 3000


LONG_SLEEP = """
    handler reset
    movs r7, #0
    ldr r0, =0x40000000
    movs r1, #1
    str r1, [r0]            @ TIM2 counts ticks
    ldr r2, =0xE000E010
    ldr r1, =0x3FFFFF
    str r1, [r2, #4]
    str r1, [r2, #8]
    movs r1, #7
    ldr r4, [r0, #0x24]
    str r1, [r2]
    1: wfi
    cmp r7, #5
    bne 1b
    ldr r5, [r0, #0x24]
    done
    handler sys_tick
    adds r7, #1
    bx lr
"""


def test_debugger_reads_do_not_change_a_long_sleep(tmp_path: Path) -> None:
    results = []
    for readers in (0, 2):
        with Target(tmp_path) as target:
            target.load(LONG_SLEEP)
            before = target.machine.instructions
            with read_in_threads(target, readers):
                target.resume()
                target.wait_for_halt()
            results.append((target.register(5) - target.register(4), target.machine.instructions - before))
    assert results[0] == results[1]
    ticks, instructions = results[0]
    assert 0 <= ticks - 5 * 0x400000 < 10
    assert instructions < 50


@contextmanager
def read_in_threads(target: Target, readers: int) -> Iterator[None]:
    """Read the board's memory from several threads, as fast as possible."""
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            target.machine.read(target.symbols["result"], 4)

    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_stopping_does_not_change_the_instruction_count(target: Target) -> None:
    body = "movs r1, #6\n1: cmp r1, #3\nite hi\nsubhi r1, #1\nsubls r1, #1\ncmp r1, #0\nbne 1b"
    uninterrupted = _count(target, body)
    target.load(f"handler reset\n{CYCCNT_ON}\nldr r7, [r0, #4]\n{body}\nldr r6, [r0, #4]\nend: done")
    for _ in range(500):
        target.step()
        if target.pc == target.symbols["end"]:
            break
    assert target.register(6) - target.register(7) == uninterrupted


def test_cyccnt_is_writable_when_unlocked(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r0, =0xE0001000
        movs r1, #1
        str r1, [r0]            @ locked: ignored
        nop
        ldr r4, [r0, #4]
        {CYCCNT_ON}
        ldr r1, =0xFFFFFFFE
        str r1, [r0, #4]
        nop
        nop
        ldr r5, [r0, #4]        @ three instructions later, past the end
        movs r1, #0
        str r1, [r0]
        nop
        ldr r6, [r0, #4]
        ldr r7, [r0, #4]
        done
        """
    )
    assert target.register(4) == 0
    assert target.register(5) == 1
    assert target.register(6) == target.register(7) == 3


def test_stores_to_ram_drop_no_translated_code(target: Target) -> None:
    target.load("""
        .space 0x2000
        handler reset
        movs r3, #10
        1: ldr r0, =0x20000000
        ldr r1, =0x20050000
        2: str r3, [r0]
        adds r0, #12
        cmp r0, r1
        blo 2b
        subs r3, #1
        bne 1b
        done
    """)
    blocks = []
    hook = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(lambda *_: blocks.append(1))
    target.machine._cpu.core.add_c_hook(unicorn_const.UC_HOOK_EDGE_GENERATED, hook)
    target.resume()
    target.wait_for_halt()
    assert 0 < len(blocks) < 50
