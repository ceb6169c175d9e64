# SPDX-License-Identifier: Apache-2.0
"""Debugger functions: halt, step, registers, breakpoints, watchpoints, vector catch, reset (DDI 0403E, C1)."""

import pytest

from tests.virtual.target import (
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
    Target,
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


def test_core_halts_and_resumes(target: Target) -> None:
    target.load("handler reset\n1: adds r0, #1\nb 1b")
    assert target.peek(DFSR) & VCATCH
    target.poke(DFSR, 0x1F)
    target.resume()
    assert not target.peek(DHCSR) & S_HALT
    target.halt()
    assert target.peek(DHCSR) & S_HALT
    assert target.peek(DFSR) == HALTED
    first = target.register(0)
    assert target.register(0) == first
    target.resume()
    target.wait_until(lambda: target.machine.instructions > 2 * first + 10)


def test_step_executes_one_instruction(target: Target) -> None:
    target.load("handler reset\nmovs r0, #1\nb 1f\nnop\n1: movw r1, #2\nbkpt #0")
    offsets = []
    for _ in range(4):
        offsets.append(target.pc - target.symbols["reset"])
        target.step()
    assert offsets == [0, 2, 6, 10]
    assert target.register(0) == 1
    assert target.register(1) == 2


def test_step_enters_an_exception_handler(target: Target) -> None:
    target.load("handler reset\nsvc #0\nafter: nop\nhandler sv_call\nmovs r0, #7\nbx lr")
    target.step()
    assert target.pc == target.symbols["sv_call"]
    assert target.register(0) == 0
    target.step()
    target.step()
    assert target.pc == target.symbols["after"]


def test_masked_interrupts_do_not_disturb_a_step(target: Target) -> None:
    target.load(
        "handler reset\nldr r0, =0xE000ED04\nmov r1, #1 << 26\nstr r1, [r0]\nnop\nnop\nb .\nhandler sys_tick\nbx lr"
    )
    for _ in range(4):
        target.step(mask_interrupts=True)
    assert target.register(XPSR) & 0x1FF == 0
    target.step()
    assert target.register(XPSR) & 0x1FF == 15


def test_registers_read_back(target: Target) -> None:
    target.load("handler reset\n1: b 1b")
    values = {number: 0x1000 * number + 0x10 for number in range(15)}
    values |= {15: FLASH + 0x300, XPSR: 0xA1000000, MSP: 0x20001000, PSP: 0x20002000, 33: 0xF0000000}
    values |= {64 + number: 0x3F800000 + number for number in range(32)}
    values[CONTROL_AND_MASKS] = 0x07013001
    del values[13]
    for selector, value in values.items():
        target.set_register(selector, value)
    for selector, value in values.items():
        assert target.register(selector) == value, selector
    assert target.register(13) == 0x20002000  # CONTROL says: the process stack
    target.set_register(CONTROL_AND_MASKS, 0)
    assert target.register(13) == 0x20001000


@pytest.mark.parametrize("label", ["loop", "inner"])
def test_breakpoint(target: Target, label: str) -> None:
    target.load(COUNTER)
    assert target.peek(FP_CTRL) >> 28 == 1  # version 2
    assert target.peek(FP_CTRL) >> 4 & 0xF == 8
    target.poke(FP_CTRL, 3)
    target.poke(FP_COMP + 28, target.symbols[label] | 1)
    target.poke(DFSR, 0x1F)
    for count in range(3):
        target.resume()
        target.wait_for_halt()
        assert target.pc == target.symbols[label]
        assert target.peek(DFSR) == BKPT
        assert target.register(0) == count + (label == "inner")
        target.poke(FP_COMP + 28, 0)
        target.step()
        target.poke(FP_COMP + 28, target.symbols[label] | 1)
        target.poke(DFSR, 0x1F)
    target.poke(FP_CTRL, 2)
    target.resume()
    target.wait_for_halt()
    assert target.register(0) == 100


def test_breakpoint_in_an_it_block_stops_before_it(target: Target) -> None:
    target.load("handler reset\nmovs r0, #0\ncmp r0, #0\nblock: itt eq\naddeq r0, #1\nat: addeq r0, #1\nnop\ndone")
    target.poke(FP_CTRL, 3)
    target.poke(FP_COMP, target.symbols["at"] | 1)
    target.resume()
    target.wait_for_halt()
    assert target.pc == target.symbols["block"]
    target.resume()
    target.wait_for_halt()
    assert target.register(0) == 2


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
def test_watchpoint(target: Target, function: int, instruction: str, hit: bool) -> None:
    target.load(f"handler reset\nldr r1, =result\nmovs r2, #2\n{instruction}\nnext: nop\nend: done")
    target.poke(DWT_COMP + 16, target.symbols["result"] + 4)
    target.poke(DWT_COMP + 20, 2)  # four bytes
    target.poke(DWT_COMP + 24, function)
    target.poke(DFSR, 0x1F)
    target.resume()
    target.wait_for_halt()
    if hit:
        assert target.peek(DFSR) == DWTTRAP
        assert target.pc == target.symbols["next"]  # the access is complete
        assert target.peek(DWT_COMP + 24) == function | 1 << 24
        assert target.peek(DWT_COMP + 24) == function
    else:
        assert target.peek(DFSR) == BKPT
        assert target.pc == target.symbols["end"]


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
def test_vector_catch(target: Target, program: str, catch: int, handler: str) -> None:
    enable = "" if handler == "hard_fault" else "ldr r0, =0xE000ED24\nldr r1, =0x70000\nstr r1, [r0]"
    handlers = "\n".join(
        f"handler {name}\nmovs r7, #1\ndone" for name in ("hard_fault", "mem_manage", "bus_fault", "usage_fault")
    )
    target.load(f"handler reset\n{enable}\n{program}\nb .\n{handlers}")
    target.poke(DEMCR, TRCENA | catch)
    target.poke(DFSR, 0x1F)
    target.resume()
    target.wait_for_halt()
    assert target.peek(DFSR) == VCATCH
    assert target.pc == target.symbols[handler]
    assert target.register(7) == 0
    assert target.peek(CFSR) != 0


def test_sleeping_core_is_halted(target: Target) -> None:
    target.load("handler reset\nwfi\nafter: b .")
    target.resume()
    target.wait_for(S_SLEEP)
    target.halt()
    assert target.pc == target.symbols["after"]


@pytest.mark.parametrize("reset_bit", [1 << 2, 1 << 0])
def test_reset_by_software_and_debugger(target: Target, reset_bit: int) -> None:
    target.load(
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
    target.poke(0x40023808, 2)  # a peripheral register, to see whether it is reset
    target.poke(DEMCR, TRCENA)
    target.resume()
    target.wait_until(lambda: target.words("result", 1)[0] == 2)
    assert target.peek(0x40023808) == 0
    assert target.peek(DHCSR) >> 25 & 1 == 1  # S_RESET_ST
    target.halt()
    target.poke(0x40023808, 2)
    target.poke(DEMCR, TRCENA | VC_CORERESET)
    target.poke(AIRCR, 0x05FA0000 | reset_bit)
    assert target.peek(DHCSR) & S_HALT
    assert target.pc == target.symbols["reset"]
    assert (target.peek(0x40023808) == 0) == (reset_bit == 1 << 2)  # VECTRESET does not reset peripherals


def test_reset_pin(target: Target) -> None:
    target.load("handler reset\n1: adds r0, #1\nb 1b")
    target.poke(DEMCR, 0)
    target.machine.hold_reset()
    count = target.machine.instructions
    assert target.machine.instructions == count
    target.machine.release_reset()
    assert target.peek(DHCSR) & 0xF == 1  # C_HALT does not outlive a reset
    target.wait_until(lambda: target.machine.instructions > count)


def test_halt_request_takes_effect_after_reset(target: Target) -> None:
    target.load("handler reset\n1: adds r0, #1\nb 1b")
    target.poke(DEMCR, 0)
    target.machine.hold_reset()
    target.halt()
    target.machine.release_reset()
    assert target.peek(DHCSR) & S_HALT
    assert target.pc == target.symbols["reset"]


def test_power_cycle_clears_ram_and_debug_but_not_flash(target: Target) -> None:
    target.load("handler reset\n1: b 1b")
    image = target.machine.read(FLASH, 64)
    before = target.machine.read(RAM, 4096)
    target.machine.power_cycle()
    after = target.machine.read(RAM, 4096)
    assert not any(new in (old, 0) for old, new in zip(before, after, strict=True))
    assert target.peek(DEMCR) == 0
    assert not target.peek(DHCSR) & S_HALT
    assert target.machine.read(FLASH, 64) == image


def test_power_cycle_restarts_the_program(target: Target) -> None:
    target.load("handler reset\nldr r1, =result\nstr r4, [r1]\nmovs r4, #7\n1: b 1b")
    target.resume()
    target.wait_until(lambda: target.peek(target.symbols["result"]) == 0)
    target.halt()
    target.set_register(0x40, 0x12345678)  # S0
    for _ in range(2):
        target.machine.power_cycle()  # the core runs without a debugger's request
        target.wait_until(lambda: target.peek(target.symbols["result"]) == 0)
    target.halt()
    assert target.register(0x40) == 0


def test_ram_noise_after_a_power_cycle_is_deterministic() -> None:
    contents = []
    for machine in (BoardModel(boards.load("stm32f746").machine_spec()) for _ in range(2)):
        machine.power_cycle()
        contents.append(machine.read(RAM, 4096))
        machine.close()
    assert contents[0] == contents[1]


def test_reset_flags_accumulate_until_cleared(target: Target) -> None:
    csr, clear, flags = 0x40023874, 1 << 24, 0xFE000000
    power, pin, software = 0x0E000000, 0x04000000, 0x14000000
    target.load("handler reset\n1: b 1b")
    assert target.peek(csr) & flags == power  # and the pin, which loading the program pulled
    target.poke(csr, clear)
    assert target.peek(csr) & flags == 0
    target.machine.hold_reset()
    target.machine.release_reset()
    assert target.peek(csr) & flags == pin
    target.poke(AIRCR, 0x05FA0004)
    target.wait_until(lambda: target.peek(csr) & flags == pin | software)
    target.machine.power_cycle()
    assert target.peek(csr) & flags == power


@pytest.mark.parametrize("address", [0x10000000, 0x20050000, 0x40100000, 0x60000000, 0xE0050000, 0x00004000])
def test_unmapped_address_is_a_bus_error(target: Target, address: int) -> None:
    with pytest.raises(BusError) as caught:
        target.peek(address)
    assert caught.value.address == address
    with pytest.raises(BusError):
        target.poke(address, 0)


def test_block_past_the_end_is_a_bus_error(target: Target) -> None:
    with pytest.raises(BusError) as caught:
        target.machine.read(0x2004FFF0, 32)
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
        (0xE000ED90, 8 << 8),  # MPU_TYPE: eight regions (PM0253, 4.6.1)
    ],
)
def test_identification_registers(target: Target, address: int, value: int) -> None:
    assert target.peek(address) == value


def test_code_written_by_a_debugger_is_executed(target: Target) -> None:
    target.load("handler reset\nldr r1, =0x20010101\nblx r1\nbkpt #0")
    for value in (5, 6):
        target.machine.write(0x20010100, bytes([value, 0x20, 0x70, 0x47]))  # movs r0, #value; bx lr
        target.machine.hold_reset()
        target.machine.release_reset()
        target.resume()
        target.wait_for_halt()
        assert target.register(0) == value


def test_self_modified_code_is_executed(target: Target) -> None:
    """Division by zero is detected in code that replaced other, already executed code."""
    target.run(
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
    assert target.peek(CFSR) == 1 << 25
