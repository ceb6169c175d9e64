# SPDX-License-Identifier: Apache-2.0
"""Exception entry and return, priorities and nesting (ARM DDI 0403E, B1.5)."""

from pathlib import Path

import pytest

from tests.virtual.target import RAM, STACK_TOP, XPSR, Target
from utvm.virtual.spec import CoreName

# At its start, a handler writes its number to a log at r11; at its end, the number + 0x100.
LOG = ".macro log value\nmovw r0, #\\value\nstr r0, [r11], #4\n.endm\n"
START = f"{LOG}\nhandler reset\nldr r11, =result\n"


def _log(target: Target) -> list[int]:
    end = target.register(11)
    return target.words("result", (end - target.symbols["result"]) // 4)


def _priority(irq: int, priority: int) -> str:
    return f"ldr r0, =0xE000E400+{irq}\nmov r1, #{priority}\nstrb r1, [r0]\n"


def _enable(*irqs: int) -> str:
    return f"ldr r0, =0xE000E100\nldr r1, ={sum(1 << irq for irq in irqs)}\nstr r1, [r0]\n"


def _pend(*irqs: int) -> str:
    return f"ldr r0, =0xE000E200\nldr r1, ={sum(1 << irq for irq in irqs)}\nstr r1, [r0]\nisb\n"


def _handler(irq: int, body: str = "") -> str:
    return f"handler irq{irq}\npush {{lr}}\nlog {irq}\n{body}\nlog {irq + 0x100}\npop {{pc}}\n"


def test_exception_frame(target: Target) -> None:
    target.run(
        """
        handler reset
        movs r0, #10
        movs r1, #11
        movs r2, #12
        movs r3, #13
        mov r12, #22
        mov lr, #33
        movs r4, #44
        cmp r0, r0
        svc #7
        at: b .
        handler sv_call
        mov r4, sp
        mov r5, lr
        mrs r6, ipsr
        done
        """
    )
    assert target.register(4) == STACK_TOP - 32
    frame = [target.peek(STACK_TOP - 32 + 4 * word) for word in range(8)]
    assert frame == [10, 11, 12, 13, 22, 33, target.symbols["at"], 0x61000000]
    assert target.register(5) == 0xFFFFFFF9
    assert target.register(6) == 11


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7"])
@pytest.mark.parametrize("end", ["push {r4, lr}\npop {r4, pc}", "bx lr"])
def test_each_core_returns_from_a_handler(tmp_path: Path, core: CoreName, end: str) -> None:
    with Target(tmp_path, core=core) as target:
        target.run(
            f"""
            handler reset
            movs r4, #1
            svc #0
            movs r5, #2
            done
            handler sv_call
            movs r6, #3
            {end}
            """
        )
        assert [target.register(number) for number in (4, 5, 6)] == [1, 2, 3]


def test_stack_is_aligned_and_restored(target: Target) -> None:
    target.run(
        """
        handler reset
        sub sp, #4
        mov r4, sp
        svc #0
        mov r5, sp
        done
        handler sv_call
        mov r6, sp
        ldr r7, [sp, #28]
        bx lr
        """
    )
    assert target.register(6) == STACK_TOP - 4 - 4 - 32
    assert target.register(7) >> 9 & 1 == 1
    assert target.register(5) == target.register(4) == STACK_TOP - 4


def test_process_stack_is_used_in_thread_mode(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r0, ={RAM + 0x1000:#x}
        msr psp, r0
        movs r0, #3
        msr control, r0
        isb
        svc #0
        mrs r4, control
        mov r5, sp
        svc #1
        handler sv_call
        mrs r7, control
        mov r8, lr
        mov r9, sp
        mrs r10, psp
        ldr r0, [r10, #24]
        ldrb r0, [r0, #-2]
        cbz r0, 1f
        done
        1: bx lr
        """
    )
    assert target.register(4) == 3
    assert target.register(5) == RAM + 0x1000
    assert target.register(7) == 1  # Handler mode uses the main stack; nPRIV stays
    assert target.register(8) == 0xFFFFFFFD
    assert target.register(9) == STACK_TOP
    assert target.register(10) == RAM + 0x1000 - 32


FPU = "ldr r0, =0xE000ED88\nldr r1, =0x00F00000\nstr r1, [r0]\ndsb\nisb\n"


def test_floating_point_context_is_restored(target: Target) -> None:
    target.run(
        f"""
        handler reset
        {FPU}
        vmov.f32 s0, #1.5
        vmov.f32 s15, #2.5
        vmov.f32 s16, #3.5
        ldr r1, =0x03000000
        vmsr fpscr, r1
        svc #0
        vmrs r7, fpscr
        mrs r9, control
        done
        handler sv_call
        mov r4, sp
        mov r5, lr
        mrs r6, control
        vmov.f32 s0, #-1.0
        vmov.f32 s15, #-1.0
        mrs r8, control
        bx lr
        """
    )
    frame = STACK_TOP - 4 * 26
    assert target.register(4) == frame
    assert target.register(5) == 0xFFFFFFE9
    assert target.register(6) == 0  # FPCA is clear on entry, and set again by the handler's own use
    assert target.register(8) == 4
    assert target.register(9) == 4
    assert target.peek(frame + 32) == 0x3FC00000  # S0
    assert target.peek(frame + 32 + 60) == 0x40200000  # S15
    assert target.peek(frame + 96) == target.register(7) == 0x03000000
    assert target.register(64) == 0x3FC00000
    assert target.register(64 + 15) == 0x40200000
    assert target.register(64 + 16) == 0x40600000


def test_handler_without_floats_keeps_the_fp_context(target: Target) -> None:
    target.run(
        f"""
        handler reset
        {FPU}
        vmov.f32 s0, #1.5
        ldr r1, =0x03000000
        vmsr fpscr, r1
        svc #0
        vmrs r7, fpscr
        vmov r8, s0
        done
        handler sv_call
        bx lr
        """
    )
    assert target.register(7) == 0x03000000
    assert target.register(8) == 0x3FC00000


def test_code_without_floats_has_a_basic_frame(target: Target) -> None:
    target.run(f"handler reset\n{FPU}\nsvc #0\nhandler sv_call\nmov r5, lr\ndone")
    assert target.register(5) == 0xFFFFFFF9


def test_urgent_interrupt_preempts_others(target: Target) -> None:
    target.run(
        START
        + _priority(1, 0x80)
        + _priority(2, 0x40)
        + _priority(3, 0xC0)
        + _enable(1, 2, 3)
        + _pend(1)
        + "log 0xFFF\ndone\n"
        + _handler(1, _pend(2, 3))
        + _handler(2)
        + _handler(3)
    )
    assert _log(target) == [1, 2, 0x102, 0x101, 3, 0x103, 0xFFF]


def test_lower_number_wins_among_equal_priorities(target: Target) -> None:
    target.run(START + _enable(5, 6, 7) + _pend(7, 5, 6) + "done\n" + _handler(5) + _handler(6) + _handler(7))
    assert _log(target) == [5, 0x105, 6, 0x106, 7, 0x107]


def test_second_handler_tail_chains(target: Target) -> None:
    target.run(
        "handler reset\nmovs r3, #1\ncpsid i\n"
        + _enable(5, 6)
        + _pend(5, 6)
        + "cpsie i\nnop\nb .\n"
        + "handler irq5\nmovs r3, #5\nbx lr\n"
        + "handler irq6\nmov r4, sp\ndone\n"
    )
    assert target.register(3) == 5  # the first handler's value: nothing was restored between them
    assert target.register(4) == STACK_TOP - 32
    assert target.peek(STACK_TOP - 32 + 12) == 1


@pytest.mark.parametrize(("exception", "faultmask"), [("nmi", 1), ("sv_call", 0)])
def test_only_a_return_from_nmi_keeps_faultmask(target: Target, exception: str, faultmask: int) -> None:
    trigger = "svc #0" if exception == "sv_call" else "ldr r0, =0xE000ED04\nmov r1, #0x80000000\nstr r1, [r0]\nnop"
    target.run(f"handler reset\n{trigger}\nmrs r4, faultmask\ndone\nhandler {exception}\ncpsid f\nbx lr")
    assert target.register(4) == faultmask


@pytest.mark.parametrize(
    ("group", "order"),
    [
        (3, [1, 2, 0x102, 0x101]),  # four bits of group priority: 0x40 preempts 0x50
        (4, [1, 0x101, 2, 0x102]),  # three bits: 0x40 and 0x50 are in one group
    ],
)
def test_priority_grouping_limits_preemption(target: Target, group: int, order: list[int]) -> None:
    target.run(
        START
        + f"ldr r0, =0xE000ED0C\nldr r1, =0x05FA0{group}00\nstr r1, [r0]\n"
        + _priority(1, 0x50)
        + _priority(2, 0x40)
        + _enable(1, 2)
        + _pend(1)
        + "done\n"
        + _handler(1, _pend(2))
        + _handler(2)
    )
    assert _log(target) == order


@pytest.mark.parametrize(
    ("mask", "unmask"),
    [
        ("cpsid i", "cpsie i"),
        ("cpsid f", "cpsie f"),
        ("mov r0, #0x40\nmsr basepri, r0", "mov r0, #0\nmsr basepri, r0"),
        ("mov r0, #1\nmsr primask, r0", "mov r0, #0\nmsr primask, r0"),
    ],
)
def test_masks_delay_interrupts(target: Target, mask: str, unmask: str) -> None:
    target.run(
        START
        + _priority(4, 0x40)
        + _enable(4)
        + f"{mask}\n"
        + _pend(4)
        + f"log 1\n{unmask}\nlog 2\ndone\n"
        + _handler(4)
    )
    assert _log(target) == [1, 4, 0x104, 2]


def test_basepri_passes_urgent_interrupts(target: Target) -> None:
    target.run(
        START
        + _priority(4, 0x30)
        + _enable(4)
        + "mov r0, #0x40\nmsr basepri, r0\n"
        + _pend(4)
        + "log 2\ndone\n"
        + _handler(4)
    )
    assert _log(target) == [4, 0x104, 2]


def test_pend_sv_and_software_triggers(target: Target) -> None:
    target.run(
        START
        + _enable(9)
        + "ldr r0, =0xE000ED04\nmov r1, #0x10000000\nstr r1, [r0]\nlog 1\n"
        + "ldr r0, =0xE000EF00\nmovs r1, #9\nstr r1, [r0]\nlog 2\ndone\n"
        + "handler pend_sv\nmov r9, r11\nlog 14\nbx lr\n"
        + _handler(9)
    )
    assert _log(target) == [14, 1, 9, 0x109, 2]


def test_interrupt_controller_registers(target: Target) -> None:
    target.run(
        START
        + _priority(33, 0xFF)
        + "ldr r0, =0xE000E204\nmovs r1, #2\nstr r1, [r0]\nldr r3, [r0]\n"
        + "ldr r0, =0xE000E104\nstr r1, [r0]\nb .\n"
        + "handler irq33\nldr r0, =0xE000E304\nldr r4, [r0]\nldr r0, =0xE000ED04\nldr r5, [r0]\ndone\n"
    )
    assert target.register(3) == 2  # pending before it is enabled
    assert target.register(4) == 2  # active in its handler
    assert target.register(5) == 1 << 11 | 16 + 33  # ICSR: no other is active
    assert target.peek(0xE000E204) == 0
    assert target.peek(0xE000E420) == 0xF000  # four bits of priority are implemented
    target.poke(0xE000E184, 2)
    assert target.peek(0xE000E104) == 0


def test_interrupted_it_block_continues(target: Target) -> None:
    """SysTick interrupts at all positions; the sum is the same."""
    for reload in (11, 13, 17, 19):
        target.run(
            f"""
            handler reset
            ldr r0, =0xE000E010
            mov r1, #{reload}
            str r1, [r0, #4]
            mov r1, #7
            str r1, [r0]
            ldr r2, =1000
            movs r3, #0
            1: tst r2, #1
            itete eq
            addeq r3, #1
            addne r3, #2
            addeq r3, #4
            addne r3, #8
            subs r2, #1
            bne 1b
            movs r1, #0
            str r1, [r0]
            done
            handler sys_tick
            cmp sp, #0
            bx lr
            """
        )
        assert target.register(3) == 500 * 5 + 500 * 10
        assert target.register(XPSR) & 0x1FF == 0


def test_wfi_sleeps_until_an_interrupt(target: Target) -> None:
    target.run(
        START
        + """
        ldr r0, =0xE000E010
        ldr r1, =0xFFFFFF
        str r1, [r0, #4]
        mov r1, #7
        str r1, [r0]
        log 1
        wfi
        log 2
        done
        handler sys_tick
        log 15
        bx lr
        """
    )
    assert _log(target) == [1, 15, 2]
    assert target.machine.instructions < 100


def test_wfi_wakes_at_a_masked_interrupt(target: Target) -> None:
    target.run(START + _enable(4) + "cpsid i\n" + _pend(4) + "wfi\nlog 1\ncpsie i\nlog 2\ndone\n" + _handler(4))
    assert _log(target) == [1, 4, 0x104, 2]


def test_wfe_consumes_an_earlier_event(target: Target) -> None:
    target.run(START + "sev\nwfe\nlog 1\ndone")
    assert _log(target) == [1]


def test_sleep_on_exit(target: Target) -> None:
    target.load(
        START
        + "ldr r0, =0xE000ED10\nmovs r1, #2\nstr r1, [r0]\n"
        + _enable(4)
        + _pend(4)
        + "log 0xBAD\nb .\n"
        + _handler(4)
    )
    target.resume()
    target.wait_for(1 << 18)
    target.halt()
    assert _log(target) == [4, 0x104]


def test_masked_svc_is_a_hard_fault(target: Target) -> None:
    target.run("handler reset\ncpsid i\nsvc #0\nb .\nhandler hard_fault\nmrs r4, ipsr\ndone")
    assert target.register(4) == 3
    assert target.peek(0xE000ED2C) == 1 << 30


@pytest.mark.parametrize(("control", "wakes"), [(0, True), (4, False)])
def test_systick_stops_in_deep_sleep(target: Target, control: int, wakes: bool) -> None:
    target.load(
        f"""
        handler reset
        ldr r0, =0xE000E010
        ldr r1, =1000
        str r1, [r0, #4]
        movs r1, #7
        str r1, [r0]
        ldr r0, =0xE000ED10     @ SCR
        movs r1, #{control}
        str r1, [r0]
        wfi
        handler sys_tick
        done
        """
    )
    target.resume()
    if wakes:
        target.wait_for_halt()
    else:
        target.wait_until(lambda: target.peek(0xE000EDF0) & 1 << 18)  # asleep
    assert bool(target.peek(0xE000EDF0) & 1 << 17) is wakes
