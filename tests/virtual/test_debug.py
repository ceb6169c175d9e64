# SPDX-License-Identifier: Apache-2.0
"""What a debugger can do: halt, step, registers, breakpoints, watchpoints, vector catch, reset (DDI 0403E, C1)."""

import pytest

from tests.virtual.bench import (
    AIRCR,
    CFSR,
    CONTROL_AND_MASKS,
    DEMCR,
    DFSR,
    DHCSR,
    FLASH,
    MSP,
    PSP,
    RAM,
    S_HALT,
    S_SLEEP,
    TRCENA,
    VC_CORERESET,
    XPSR,
    Bench,
)
from utvm import boards
from utvm.virtual.machine import BoardModel, BusError

HALTED, BKPT, DWTTRAP, VCATCH = 1, 2, 4, 8
FP_CTRL, FP_COMP, DWT_COMP = 0xE0002000, 0xE0002008, 0xE0001020

COUNTER = """
    handler reset
    movs r0, #0
    ldr r1, =result
    loop: adds r0, #1
    str r0, [r1]
    inner: cmp r0, #100
    bne loop
    done
"""


def test_halting_and_resuming(connection: Bench) -> None:
    connection.load("handler reset\n1: adds r0, #1\nb 1b")
    assert connection.peek(DFSR) & VCATCH
    connection.poke(DFSR, 0x1F)
    connection.resume()
    assert not connection.peek(DHCSR) & S_HALT
    connection.halt()
    assert connection.peek(DHCSR) & S_HALT
    assert connection.peek(DFSR) == HALTED
    first = connection.register(0)
    assert connection.register(0) == first
    connection.resume()
    connection.wait_until(lambda: connection.machine.instructions > 2 * first + 10)


def test_stepping(connection: Bench) -> None:
    connection.load("handler reset\nmovs r0, #1\nb 1f\nnop\n1: movw r1, #2\nbkpt #0")
    places = []
    for _ in range(4):
        places.append(connection.pc - connection.symbols["reset"])
        connection.step()
    assert places == [0, 2, 6, 10]
    assert connection.register(0) == 1
    assert connection.register(1) == 2


def test_stepping_into_an_exception_stops_at_its_first_instruction(connection: Bench) -> None:
    connection.load("handler reset\nsvc #0\nafter: nop\nhandler sv_call\nmovs r0, #7\nbx lr")
    connection.step()
    assert connection.pc == connection.symbols["sv_call"]
    assert connection.register(0) == 0
    connection.step()
    connection.step()
    assert connection.pc == connection.symbols["after"]


def test_masked_interrupts_do_not_disturb_a_step(connection: Bench) -> None:
    connection.load(
        "handler reset\nldr r0, =0xE000ED04\nmov r1, #1 << 26\nstr r1, [r0]\nnop\nnop\nb ."
        "\nhandler sys_tick\nbx lr"
    )
    for _ in range(4):
        connection.step(mask_interrupts=True)
    assert connection.register(XPSR) & 0x1FF == 0
    connection.step()
    assert connection.register(XPSR) & 0x1FF == 15


def test_registers_read_back(connection: Bench) -> None:
    connection.load("handler reset\n1: b 1b")
    values = {number: 0x1000 * number + 0x10 for number in range(15)}
    values |= {15: FLASH + 0x300, XPSR: 0xA1000000, MSP: 0x20001000, PSP: 0x20002000, 33: 0xF0000000}
    values |= {64 + number: 0x3F800000 + number for number in range(32)}
    values[CONTROL_AND_MASKS] = 0x07013001
    del values[13]
    for selector, value in values.items():
        connection.set_register(selector, value)
    for selector, value in values.items():
        assert connection.register(selector) == value, selector
    assert connection.register(13) == 0x20002000  # CONTROL says: the process stack
    connection.set_register(CONTROL_AND_MASKS, 0)
    assert connection.register(13) == 0x20001000


@pytest.mark.parametrize("label", ["loop", "inner"])
def test_breakpoint(connection: Bench, label: str) -> None:
    connection.load(COUNTER)
    assert connection.peek(FP_CTRL) >> 28 == 1  # version 2
    assert connection.peek(FP_CTRL) >> 4 & 0xF == 8
    connection.poke(FP_CTRL, 3)
    connection.poke(FP_COMP + 28, connection.symbols[label] | 1)
    connection.poke(DFSR, 0x1F)
    for count in range(3):
        connection.resume()
        connection.wait_for_halt()
        assert connection.pc == connection.symbols[label]
        assert connection.peek(DFSR) == BKPT
        assert connection.register(0) == count + (label == "inner")
        connection.poke(FP_COMP + 28, 0)
        connection.step()
        connection.poke(FP_COMP + 28, connection.symbols[label] | 1)
        connection.poke(DFSR, 0x1F)
    connection.poke(FP_CTRL, 2)
    connection.resume()
    connection.wait_for_halt()
    assert connection.register(0) == 100


def test_a_breakpoint_inside_an_it_block_stops_before_the_block(connection: Bench) -> None:
    connection.load(
        "handler reset\nmovs r0, #0\ncmp r0, #0\nblock: itt eq\naddeq r0, #1\nat: addeq r0, #1\nnop\ndone"
    )
    connection.poke(FP_CTRL, 3)
    connection.poke(FP_COMP, connection.symbols["at"] | 1)
    connection.resume()
    connection.wait_for_halt()
    assert connection.pc == connection.symbols["block"]
    connection.resume()
    connection.wait_for_halt()
    assert connection.register(0) == 2


@pytest.mark.parametrize(
    ("function", "instruction", "hit"),
    [
        (5, "ldr r3, [r1, #4]", True),
        (5, "str r3, [r1, #4]", False),
        (6, "ldr r3, [r1, #4]", False),
        (6, "strb r3, [r1, #6]", True),
        (7, "ldrh r3, [r1, #4]", True),
        (7, "stmia r1, {r2, r3}", True),
        (7, "ldr r3, [r1, #8]", False),
        (7, "ldr r3, [r1]", False),
    ],
)
def test_watchpoint(connection: Bench, function: int, instruction: str, hit: bool) -> None:
    connection.load(f"handler reset\nldr r1, =result\nmovs r2, #2\n{instruction}\nnext: nop\nend: done")
    connection.poke(DWT_COMP + 16, connection.symbols["result"] + 4)
    connection.poke(DWT_COMP + 20, 2)  # four bytes
    connection.poke(DWT_COMP + 24, function)
    connection.poke(DFSR, 0x1F)
    connection.resume()
    connection.wait_for_halt()
    if hit:
        assert connection.peek(DFSR) == DWTTRAP
        assert connection.pc == connection.symbols["next"]  # the access is done
        assert connection.peek(DWT_COMP + 24) == function | 1 << 24
        assert connection.peek(DWT_COMP + 24) == function
    else:
        assert connection.peek(DFSR) == BKPT
        assert connection.pc == connection.symbols["end"]


@pytest.mark.parametrize(
    ("program", "catch", "handler"),
    [
        ("udf #0", 1 << 10, "hard_fault"),
        ("ldr r0, =0x60000000\nldr r0, [r0]", 1 << 8, "bus_fault"),
        ("udf #0", 1 << 7, "usage_fault"),
        ("vmov s0, r0", 1 << 5, "usage_fault"),
        ("ldr r0, =0x20000002\nldrd r0, r1, [r0]", 1 << 6, "usage_fault"),
        ("ldr r0, =0xE000E001\nbx r0", 1 << 4, "mem_manage"),
    ],
)
def test_vector_catch(connection: Bench, program: str, catch: int, handler: str) -> None:
    enable = "" if handler == "hard_fault" else "ldr r0, =0xE000ED24\nldr r1, =0x70000\nstr r1, [r0]"
    handlers = "\n".join(
        f"handler {name}\nmovs r7, #1\ndone" for name in ("hard_fault", "mem_manage", "bus_fault", "usage_fault")
    )
    connection.load(f"handler reset\n{enable}\n{program}\nb .\n{handlers}")
    connection.poke(DEMCR, TRCENA | catch)
    connection.poke(DFSR, 0x1F)
    connection.resume()
    connection.wait_for_halt()
    assert connection.peek(DFSR) == VCATCH
    assert connection.pc == connection.symbols[handler]
    assert connection.register(7) == 0
    assert connection.peek(CFSR) != 0


def test_a_sleeping_core_can_be_halted(connection: Bench) -> None:
    connection.load("handler reset\nwfi\nafter: b .")
    connection.resume()
    connection.wait_for(S_SLEEP)
    connection.halt()
    assert connection.pc == connection.symbols["after"]


@pytest.mark.parametrize("asked", [1 << 2, 1 << 0])
def test_reset_by_software_and_debugger(connection: Bench, asked: int) -> None:
    connection.load(
        """
        handler reset
        ldr r1, =result
        ldr r2, [r1]
        adds r2, #1
        str r2, [r1]
        cmp r2, #1
        bne 1f
        ldr r0, =0xE000ED0C
        ldr r1, =request
        ldr r1, [r1]
        str r1, [r0]
        1: b 1b
        .balign 4
        request: .word 0x05FA0004
        """
    )
    connection.poke(0x40023808, 2)  # a peripheral register, to see whether it is reset
    connection.poke(DEMCR, TRCENA)
    connection.resume()
    connection.wait_until(lambda: connection.words("result", 1)[0] == 2)
    assert connection.peek(0x40023808) == 0
    assert connection.peek(DHCSR) >> 25 & 1 == 1  # S_RESET_ST
    connection.halt()
    connection.poke(0x40023808, 2)
    connection.poke(DEMCR, TRCENA | VC_CORERESET)
    connection.poke(AIRCR, 0x05FA0000 | asked)
    assert connection.peek(DHCSR) & S_HALT
    assert connection.pc == connection.symbols["reset"]
    assert (connection.peek(0x40023808) == 0) == (asked == 1 << 2)  # VECTRESET leaves peripherals alone


def test_the_reset_pin(connection: Bench) -> None:
    connection.load("handler reset\n1: adds r0, #1\nb 1b")
    connection.poke(DEMCR, 0)
    connection.machine.hold_reset()
    count = connection.machine.instructions
    assert connection.machine.instructions == count
    connection.machine.release_reset()
    assert connection.peek(DHCSR) & 0xF == 1  # C_HALT does not outlive a reset
    connection.wait_until(lambda: connection.machine.instructions > count)


def test_a_halt_asked_for_during_reset_takes_effect_after_it(connection: Bench) -> None:
    connection.load("handler reset\n1: adds r0, #1\nb 1b")
    connection.poke(DEMCR, 0)
    connection.machine.hold_reset()
    connection.halt()
    connection.machine.release_reset()
    assert connection.peek(DHCSR) & S_HALT
    assert connection.pc == connection.symbols["reset"]


def test_a_power_cycle_forgets_ram_and_debug_but_not_flash(connection: Bench) -> None:
    connection.load("handler reset\n1: b 1b")
    image = connection.machine.read(FLASH, 64)
    before = connection.machine.read(RAM, 4096)
    connection.machine.power_cycle()
    after = connection.machine.read(RAM, 4096)
    assert not any(new in (old, 0) for old, new in zip(before, after, strict=True))
    assert connection.peek(DEMCR) == 0
    assert not connection.peek(DHCSR) & S_HALT
    assert connection.machine.read(FLASH, 64) == image


def test_a_power_cycle_starts_the_program_from_a_clean_state(connection: Bench) -> None:
    connection.load("handler reset\nldr r1, =result\nstr r4, [r1]\nmovs r4, #7\n1: b 1b")
    connection.resume()
    connection.wait_until(lambda: connection.peek(connection.symbols["result"]) == 0)
    connection.halt()
    connection.set_register(0x40, 0x12345678)  # S0
    for _ in range(2):
        connection.machine.power_cycle()  # nobody has halted or resumed it
        connection.wait_until(lambda: connection.peek(connection.symbols["result"]) == 0)
    connection.halt()
    assert connection.register(0x40) == 0


def test_two_boards_find_the_same_noise_after_a_power_cycle() -> None:
    found = []
    for machine in (BoardModel(boards.load("stm32f746").machine_spec()) for _ in range(2)):
        machine.power_cycle()
        found.append(machine.read(RAM, 4096))
        machine.close()
    assert found[0] == found[1]


def test_the_reset_flags_add_up_until_they_are_cleared(connection: Bench) -> None:
    csr, clear, flags = 0x40023874, 1 << 24, 0xFE000000
    power, pin, software = 0x0E000000, 0x04000000, 0x14000000
    connection.load("handler reset\n1: b 1b")
    assert connection.peek(csr) & flags == power  # and the pin's, which was pulled to load the program
    connection.poke(csr, clear)
    assert connection.peek(csr) & flags == 0
    connection.machine.hold_reset()
    connection.machine.release_reset()
    assert connection.peek(csr) & flags == pin
    connection.poke(AIRCR, 0x05FA0004)
    connection.wait_until(lambda: connection.peek(csr) & flags == pin | software)
    connection.machine.power_cycle()
    assert connection.peek(csr) & flags == power


@pytest.mark.parametrize("address", [0x10000000, 0x20050000, 0x40100000, 0x60000000, 0xE0050000, 0x00004000])
def test_where_nothing_is_the_bus_says_so(connection: Bench, address: int) -> None:
    with pytest.raises(BusError) as caught:
        connection.peek(address)
    assert caught.value.address == address
    with pytest.raises(BusError):
        connection.poke(address, 0)


def test_a_block_that_runs_out_of_memory(connection: Bench) -> None:
    with pytest.raises(BusError) as caught:
        connection.machine.read(0x2004FFF0, 32)
    assert caught.value.address == 0x20050000


@pytest.mark.parametrize(
    ("address", "value"),
    [
        (0xE000ED00, 0x411FC271),  # CPUID: Cortex-M7 r1p1
        (0xE0042000, 0x10016449),  # DBGMCU_IDCODE of an STM32F74x, revision Z
        (0x1FF0F440, 0x0400FFFF),  # flash size: 1024 KiB
        (0xE000EF40, 0x10110021),  # MVFR0: single precision
        (0xE000EF44, 0x11000011),
        (0xE00FDFE0, 0x49),  # ROM table of ST's part 0x449
        (0xE000ED90, 0),  # MPU_TYPE: none
    ],
)
def test_what_the_chip_says_it_is(connection: Bench, address: int, value: int) -> None:
    assert connection.peek(address) == value


def test_code_written_by_a_debugger_is_what_runs(connection: Bench) -> None:
    connection.load("handler reset\nldr r1, =0x20010101\nblx r1\nbkpt #0")
    for value in (5, 6):
        connection.machine.write(0x20010100, bytes([value, 0x20, 0x70, 0x47]))  # movs r0, #value; bx lr
        connection.machine.hold_reset()
        connection.machine.release_reset()
        connection.resume()
        connection.wait_for_halt()
        assert connection.register(0) == value


def test_code_that_rewrites_itself(connection: Bench) -> None:
    """A zero divisor is noticed in code that was something else when it was first executed."""
    connection.run(
        """
        handler reset
        ldr r0, =0xE000ED14
        ldr r1, =0x00040210
        str r1, [r0]
        ldr r4, =0x20010100
        ldr r5, =0xBF004770     @ bx lr; nop
        str r5, [r4, #4]
        ldr r5, =0xBF00BF00     @ nop; nop
        str r5, [r4]
        orr r6, r4, #1
        blx r6
        ldr r5, =0xF0F2FBB1     @ udiv r0, r1, r2
        str r5, [r4]
        dsb
        isb
        movs r2, #0
        blx r6
        b .
        handler hard_fault
        done
        """
    )
    assert connection.peek(CFSR) == 1 << 25
