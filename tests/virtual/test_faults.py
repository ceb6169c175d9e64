# SPDX-License-Identifier: Apache-2.0
"""Each fault sets the bits the architecture gives it, at the right instruction (ARM DDI 0403E, B1.5.14)."""

import pytest

from tests.virtual.bench import BFAR, CFSR, HFSR, S_LOCKUP, SHCSR, STACK_TOP, XPSR, Bench

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
    (
        TRAPS + "movs r2, #0\ncmp r2, #0\nittt eq\nat: udiveq r1, r1, r2\naddeq r5, #1\naddeq r5, #1",
        DIVBYZERO,
        None,
    ),
    (TRAPS + "ldr r4, =0x20000001\nat: ldr r1, [r4], #4", UNALIGNED, None),
    (TRAPS + "ldr r4, =0x20000001\nat: strh r1, [r4], #4", UNALIGNED, None),
    ("ldr r4, =0x20000002\nat: ldrd r0, r1, [r4]", UNALIGNED, None),  # never allowed, whatever CCR says
    ("ldr r4, =0x20000001\nat: stmia r4, {r0, r1}", UNALIGNED, None),
    ("ldr r4, =0x20000002\nat: ldrex r0, [r4]", UNALIGNED, None),
    (FPU + "ldr r4, =0x20000002\nat: vldr s0, [r4]", UNALIGNED, None),
    ("vmov s0, r0", NOCP, None),  # the unit is off after reset
    ("mcr p15, 0, r0, c7, c5, 0", NOCP, None),
]


@pytest.mark.parametrize(("instruction", "status", "address"), FAULTS)
@pytest.mark.parametrize("enabled", [True, False])
def test_fault(connection: Bench, instruction: str, status: int, address: int | None, enabled: bool) -> None:
    label = "" if "at:" in instruction else "at: "
    connection.run(
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
    assert connection.register(6) == (own_exception if enabled else 3)
    assert connection.peek(CFSR) == status
    assert connection.peek(HFSR) == (0 if enabled else FORCED)
    frame = connection.register(13)
    assert (
        connection.peek(frame + 24) == connection.symbols["at"]
    )  # the return address is the instruction that faulted
    if address is not None:
        assert connection.peek(BFAR) == address
    else:
        # What comes before the fault is done, what comes after is not, the instruction itself is not.
        assert connection.register(5) == 0x55555555 + ("itt eq" in instruction)
    if "[r4], #4" in instruction:
        assert connection.register(4) in (0x60000000, 0x20000001)  # no write-back


def test_an_unaligned_store_that_traps_writes_nothing(connection: Bench) -> None:
    connection.run(
        f"handler reset\n{TRAPS}\nldr r4, =result+1\nldr r1, =0x12345678\nstr r1, [r4]\nb ."
        "\nhandler hard_fault\ndone"
    )
    assert connection.words("result", 2) == [0, 0]


def test_unaligned_and_division_by_zero_pass_without_their_traps(connection: Bench) -> None:
    connection.run(
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
    assert connection.register(2) == 0x44332211
    assert connection.register(3) == 0x4433
    assert connection.register(4) == 0
    assert connection.peek(CFSR) == 0


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (0x60000001, IBUSERR),
        (0x40000001, IACCVIOL),  # peripherals are execute-never
        (0xE000E001, IACCVIOL),
        (0xA0000001, IACCVIOL),
        (0x08000300, INVSTATE),  # no Thumb bit
        (0xFFFFFFF9, IACCVIOL),  # not EXC_RETURN outside a handler
    ],
)
def test_a_jump_to_where_no_code_can_be(connection: Bench, target: int, status: int) -> None:
    connection.run(f"handler reset\nldr r0, ={target:#x}\nbx r0\n.space 512\nhandler hard_fault\ndone")
    assert connection.peek(CFSR) == status
    assert connection.peek(HFSR) == FORCED
    assert connection.peek(connection.register(13) + 24) == target & ~1


def test_bkpt_without_a_debugger_is_a_hard_fault(connection: Bench) -> None:
    connection.load("handler reset\nat: bkpt #1\nb .\nhandler hard_fault\nldr r0, =result\nstr sp, [r0]\n1: b 1b")
    connection.poke(0xE000EDF0, 0xA05F0000)  # C_DEBUGEN off: runs
    connection.wait_until(lambda: connection.words("result", 1)[0])
    assert connection.peek(HFSR) == DEBUGEVT
    assert connection.peek(connection.words("result", 1)[0] + 24) == connection.symbols["at"]


def test_a_stack_that_leaves_memory(connection: Bench) -> None:
    connection.run(
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
    assert connection.peek(CFSR) == PRECISERR | BFARVALID | STKERR
    assert connection.peek(BFAR) == 0x1FFFFFF8


def test_a_vector_that_cannot_be_read(connection: Bench) -> None:
    # HardFault's own vector lies in the table too: this one only reaches beyond memory from SVCall on.
    connection.run(
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
    assert connection.peek(HFSR) & VECTTBL


@pytest.mark.parametrize("where", ["hard_fault", "nmi"])
def test_a_fault_in_hard_fault_or_nmi_locks_up(connection: Bench, where: str) -> None:
    connection.load(
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
    connection.poke(connection.symbols["result"], 1 if where == "nmi" else 0)
    connection.resume()
    connection.wait_for(S_LOCKUP)
    executed = connection.machine.instructions
    assert connection.machine.instructions == executed
    connection.halt()
    assert connection.pc == 0xFFFFFFFE
    assert connection.register(XPSR) & 0x1FF == (2 if where == "nmi" else 3)


def test_a_reset_ends_lock_up(connection: Bench) -> None:
    connection.load("handler reset\nudf #0\nhandler hard_fault\nudf #0")
    connection.resume()
    connection.wait_for(S_LOCKUP)
    connection.machine.hold_reset()
    connection.machine.release_reset()
    assert connection.pc == connection.symbols["reset"]


@pytest.mark.parametrize(
    ("exc_return", "status"),
    [("0xFFFFFFF1", INVPC), ("0xFFFFFFF5", INVPC), ("0xFFFFFF09", INVPC)],
)
def test_an_illegal_return(connection: Bench, exc_return: str, status: int) -> None:
    connection.run(
        f"handler reset\nsvc #0\nb .\nhandler sv_call\nldr r0, ={exc_return}\nbx r0\nhandler hard_fault\ndone"
    )
    assert connection.peek(CFSR) == status
    assert connection.register(14) == int(exc_return, 0)  # the fault chains on: no second frame


def test_a_return_to_thread_mode_from_a_nested_handler(connection: Bench) -> None:
    connection.run(
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
    assert connection.peek(CFSR) == INVPC


def test_fault_status_is_cleared_by_writing_ones_to_it(connection: Bench) -> None:
    connection.run("handler reset\nldr r0, =0x60000000\nldr r1, [r0]\nb .\nhandler hard_fault\ndone")
    connection.machine.write(CFSR + 1, b"\x80")
    assert connection.peek(CFSR) == PRECISERR
    connection.poke(CFSR, PRECISERR)
    connection.poke(HFSR, FORCED)
    assert connection.peek(CFSR) == connection.peek(HFSR) == 0


def test_unprivileged_code_cannot_touch_the_system(connection: Bench) -> None:
    connection.run(
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
    assert connection.peek(CFSR) == PRECISERR | BFARVALID
    assert connection.peek(BFAR) == 0xE000ED08
    assert connection.peek(connection.register(13) + 24) == connection.symbols["at"]
    assert connection.register(3) == 1
