# SPDX-License-Identifier: Apache-2.0
"""Each fault sets the architecture's status bits at the right instruction (ARM DDI 0403E, B1.5.14)."""

import pytest

from tests.virtual.target import BFAR, CFSR, HFSR, S_LOCKUP, SHCSR, STACK_TOP, XPSR, Target

FORCED, DEBUGEVT, VECTTBL = 1 << 30, 1 << 31, 1 << 1
IACCVIOL, IBUSERR, PRECISERR, STKERR, BFARVALID = 1 << 0, 1 << 8, 1 << 9, 1 << 12, 1 << 15
UNDEFINSTR, INVSTATE, INVPC, NOCP, UNALIGNED, DIVBYZERO = (1 << bit for bit in (16, 17, 18, 19, 24, 25))

TRAPS = "ldr r0, =0xE000ED14\nldr r1, =0x00040218\nstr r1, [r0]\n"  # CCR: UNALIGN_TRP, DIV_0_TRP
FPU = "ldr r0, =0xE000ED88\nldr r1, =0x00F00000\nstr r1, [r0]\ndsb\nisb\n"

FAULTS = [
    ("ldr r2, [r4]", PRECISERR | BFARVALID, 0x60000000),
    ("str r2, [r4]", PRECISERR | BFARVALID, 0x60000000),
    ("ldr r2, [r4, #8]!", PRECISERR | BFARVALID, 0x60000008),
    ("str r2, [r4], #4", PRECISERR | BFARVALID, 0x60000000),
    ("ldmia r4!, {r0-r3}", PRECISERR | BFARVALID, 0x60000000),
    ("ldr r4, =0x1FF00000\nat: str r2, [r4]", PRECISERR | BFARVALID, 0x1FF00000),  # read-only memory
    ("ldr r4, =0x2004FFFE\nat: ldr r2, [r4]", PRECISERR | BFARVALID, 0x20050000),
    ("udf #0", UNDEFINSTR, None),
    ("udf.w #0", UNDEFINSTR, None),
    (FPU + "at: .inst.w 0xee300b00", UNDEFINSTR, None),  # vadd.f64: the unit is single precision only
    (TRAPS + "movs r2, #0\nat: udiv r1, r1, r2", DIVBYZERO, None),
    (TRAPS + "movs r2, #0\nat: sdiv r1, r1, r2", DIVBYZERO, None),
    (TRAPS + "movs r2, #0\ncmp r2, #0\nitt eq\naddeq r5, #1\nat: udiveq r1, r1, r2\n", DIVBYZERO, None),
    (TRAPS + "movs r2, #0\ncmp r2, #0\nittt eq\nat: udiveq r1, r1, r2\naddeq r5, #1\naddeq r5, #1", DIVBYZERO, None),
    (TRAPS + "ldr r4, =0x20000001\nat: ldr r1, [r4], #4", UNALIGNED, None),
    (TRAPS + "ldr r4, =0x20000001\nat: strh r1, [r4], #4", UNALIGNED, None),
    ("ldr r4, =0x20000002\nat: ldrd r0, r1, [r4]", UNALIGNED, None),  # never allowed, for any CCR
    ("ldr r4, =0x20000001\nat: stmia r4, {r0, r1}", UNALIGNED, None),
    ("ldr r4, =0x20000002\nat: ldrex r0, [r4]", UNALIGNED, None),
    (FPU + "ldr r4, =0x20000002\nat: vldr s0, [r4]", UNALIGNED, None),
    ("vmov s0, r0", NOCP, None),  # the unit is off after reset
    ("mcr p15, 0, r0, c7, c5, 0", NOCP, None),
]


@pytest.mark.parametrize(("instruction", "status", "address"), FAULTS)
@pytest.mark.parametrize("enabled", [True, False])
def test_fault(target: Target, instruction: str, status: int, address: int | None, enabled: bool) -> None:
    label = "" if "at:" in instruction else "at: "
    target.run(
        f"""
        handler reset
        ldr r0, =0xE000ED24
        ldr r1, ={0x70000 if enabled else 0}
        str r1, [r0]
        ldr r4, =0x60000000
        ldr r5, =0x55555555
        {label}{instruction}
        nop
        b .
        handler hard_fault
        mrs r6, ipsr
        done
        handler bus_fault
        mrs r6, ipsr
        done
        handler usage_fault
        mrs r6, ipsr
        done
        """
    )
    own_exception = 5 if status & 0xFF00 else 6
    assert target.register(6) == (own_exception if enabled else 3)
    assert target.peek(CFSR) == status
    assert target.peek(HFSR) == (0 if enabled else FORCED)
    frame = target.register(13)
    assert target.peek(frame + 24) == target.symbols["at"]  # the return address is the faulting instruction
    if address is not None:
        assert target.peek(BFAR) == address
    else:
        # Earlier instructions are executed; the faulting one and later ones are not.
        assert target.register(5) == 0x55555555 + ("itt eq" in instruction)
    if "[r4], #4" in instruction:
        assert target.register(4) in (0x60000000, 0x20000001)  # no write-back


def test_trapped_unaligned_store_writes_nothing(target: Target) -> None:
    target.run(
        f"handler reset\n{TRAPS}\nldr r4, =result+1\nldr r1, =0x12345678\nstr r1, [r4]\nb .\nhandler hard_fault\ndone"
    )
    assert target.words("result", 2) == [0, 0]


def test_unaligned_access_and_zero_division_without_traps(target: Target) -> None:
    target.run(
        """
        handler reset
        ldr r0, =result
        ldr r1, =0x44332211
        str r1, [r0, #1]
        ldr r2, [r0, #1]
        ldrh r3, [r0, #3]
        movs r5, #0
        udiv r4, r1, r5
        done
        """
    )
    assert target.register(2) == 0x44332211
    assert target.register(3) == 0x4433
    assert target.register(4) == 0
    assert target.peek(CFSR) == 0


@pytest.mark.parametrize(
    ("address", "status"),
    [
        (0x60000001, IBUSERR),
        (0x40000001, IACCVIOL),  # peripherals are execute-never
        (0xE000E001, IACCVIOL),
        (0xA0000001, IACCVIOL),
        (0x08000300, INVSTATE),  # no Thumb bit
        (0xFFFFFFF9, IACCVIOL),  # not EXC_RETURN outside a handler
    ],
)
def test_jump_to_an_invalid_address_is_a_fault(target: Target, address: int, status: int) -> None:
    target.run(f"handler reset\nldr r0, ={address:#x}\nbx r0\n.space 512\nhandler hard_fault\ndone")
    assert target.peek(CFSR) == status
    assert target.peek(HFSR) == FORCED
    assert target.peek(target.register(13) + 24) == address & ~1


def test_bkpt_without_a_debugger_is_a_hard_fault(target: Target) -> None:
    target.load("handler reset\nat: bkpt #1\nb .\nhandler hard_fault\nldr r0, =result\nstr sp, [r0]\n1: b 1b")
    target.poke(0xE000EDF0, 0xA05F0000)  # C_DEBUGEN off: runs
    target.wait_until(lambda: target.words("result", 1)[0])
    assert target.peek(HFSR) == DEBUGEVT
    assert target.peek(target.words("result", 1)[0] + 24) == target.symbols["at"]


def test_stack_outside_memory_is_a_stacking_fault(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r0, ={SHCSR:#x}
        ldr r1, =0x70000
        str r1, [r0]
        ldr r0, =0x20000008
        mov sp, r0
        at: push {{r0-r3}}
        b .
        handler bus_fault
        ldr r1, ={STACK_TOP:#x}
        mov r2, sp
        mov sp, r1
        done
        """
    )
    assert target.peek(CFSR) == PRECISERR | BFARVALID | STKERR
    assert target.peek(BFAR) == 0x1FFFFFF8


def test_unreadable_vector_is_a_hard_fault(target: Target) -> None:
    # The table also has HardFault's vector; only its part from SVCall on is beyond memory.
    target.run(
        """
        handler reset
        ldr r0, =0x2004FFC0
        ldr r1, =table_end
        1: ldr r2, [r1, #-4]!
        str r2, [r0], #4
        ldr r3, =0x20050000
        cmp r0, r3
        bne 1b
        ldr r0, =0xE000ED08
        ldr r1, =0x2004FF80
        str r1, [r0]
        ldr r0, =0x2004FF80
        ldr r1, =hard_fault
        orr r1, #1
        str r1, [r0, #12]
        ldr r0, =0xE000E100
        mov r1, #1 << 20
        str r1, [r0]
        ldr r0, =0xE000E200
        str r1, [r0]
        nop
        b .
        handler hard_fault
        done
        .balign 4
        .space 64
        table_end:
        """
    )
    assert target.peek(HFSR) & VECTTBL


@pytest.mark.parametrize("where", ["hard_fault", "nmi"])
def test_fault_in_hard_fault_or_nmi_locks_up(target: Target, where: str) -> None:
    target.load(
        """
        handler reset
        ldr r0, =0xE000ED04
        mov r1, #0x80000000
        ldr r2, =result
        ldr r3, [r2]
        cmp r3, #1
        it eq
        streq r1, [r0]
        udf #0
        handler hard_fault
        udf #0
        handler nmi
        udf #0
        """
    )
    target.poke(target.symbols["result"], 1 if where == "nmi" else 0)
    target.resume()
    target.wait_for(S_LOCKUP)
    executed = target.machine.instructions
    assert target.machine.instructions == executed
    target.halt()
    assert target.pc == 0xFFFFFFFE
    assert target.register(XPSR) & 0x1FF == (2 if where == "nmi" else 3)


def test_reset_ends_lockup(target: Target) -> None:
    target.load("handler reset\nudf #0\nhandler hard_fault\nudf #0")
    target.resume()
    target.wait_for(S_LOCKUP)
    target.machine.hold_reset()
    target.machine.release_reset()
    assert target.pc == target.symbols["reset"]


@pytest.mark.parametrize(
    ("exc_return", "status"), [("0xFFFFFFF1", INVPC), ("0xFFFFFFF5", INVPC), ("0xFFFFFF09", INVPC)]
)
def test_illegal_return_is_a_fault(target: Target, exc_return: str, status: int) -> None:
    target.run(f"handler reset\nsvc #0\nb .\nhandler sv_call\nldr r0, ={exc_return}\nbx r0\nhandler hard_fault\ndone")
    assert target.peek(CFSR) == status
    assert target.register(14) == int(exc_return, 0)  # tail-chained: no second frame


def test_nested_return_to_thread_mode_is_a_fault(target: Target) -> None:
    target.run(
        """
        handler reset
        ldr r0, =0xE000ED1C
        mov r1, #0x80000000     @ SVCall is less urgent than the interrupt
        str r1, [r0]
        svc #0
        b .
        handler sv_call
        ldr r0, =0xE000E100
        movs r1, #1
        str r1, [r0]
        str r1, [r0, #0x100]
        b .
        handler irq0
        ldr lr, =0xFFFFFFF9
        bx lr
        handler hard_fault
        done
        """
    )
    assert target.peek(CFSR) == INVPC


def test_fault_status_is_cleared_by_writing_ones(target: Target) -> None:
    target.run("handler reset\nldr r0, =0x60000000\nldr r1, [r0]\nb .\nhandler hard_fault\ndone")
    target.machine.write(CFSR + 1, b"\x80")
    assert target.peek(CFSR) == PRECISERR
    target.poke(CFSR, PRECISERR)
    target.poke(HFSR, FORCED)
    assert target.peek(CFSR) == target.peek(HFSR) == 0


def test_unprivileged_access_to_the_system_is_a_fault(target: Target) -> None:
    target.run(
        """
        handler reset
        movs r0, #1
        msr control, r0
        isb
        ldr r0, =0xE000ED08
        movs r1, #0
        at: ldr r1, [r0]
        b .
        handler hard_fault
        mrs r3, control
        done
        """
    )
    assert target.peek(CFSR) == PRECISERR | BFARVALID
    assert target.peek(BFAR) == 0xE000ED08
    assert target.peek(target.register(13) + 24) == target.symbols["at"]
    assert target.register(3) == 1
