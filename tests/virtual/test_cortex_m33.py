# SPDX-License-Identifier: Apache-2.0
"""Features of the virtual STM32L552: Armv8-M's stack limits, returns, watchpoints; and its flash."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import CFSR, FLASH, HFSR, RAM, SHCSR, Target
from utvm.virtual.stlink import StLink

NSKEYR, NSSR, NSCR, OPTR = 0x40022008, 0x40022020, 0x40022028, 0x40022040
PG, PER, BKER, STRT, LOCK = 1 << 0, 1 << 1, 1 << 11, 1 << 16, 1 << 31
PGAERR, PGSERR, BSY = 1 << 5, 1 << 7, 1 << 16
BANK2, PAGE = FLASH + 0x40000, 2048
DWT_COMP, DWT_FUNCTION, DWT_DEVARCH = 0xE0001020, 0xE0001028, 0xE0001FBC
STKOF, USGFAULTENA = 1 << 20, 1 << 18
LIMIT = 0x2000F000


class L5Target(Target):
    def program(self, image: bytes) -> None:
        self.unlock()
        self.poke(NSCR, 1 << 2 | 1 << 15 | STRT)  # mass erase
        self.poke(NSCR, PG)
        self.machine.write(FLASH, image.ljust(-(-len(image) // 8) * 8, b"\xff"))

    def unlock(self) -> None:
        for key in (0x45670123, 0xCDEF89AB):
            self.poke(NSKEYR, key)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[L5Target]:
    with L5Target(tmp_path, "nucleo-l552ze-q") as target:
        yield target


@pytest.mark.parametrize(
    ("address", "value"),
    [
        (0xE000ED00, 0x410FD214),  # CPUID: Cortex-M33 r0p4 (ARM 100230, B1.3; RM0438, 52)
        (0xE000EF40, 0x10110021),  # MVFR0: single precision
        # As in QEMU's Cortex-M33 (hw/arm: cortex_m33_initfn): ID_MMFR0, ID_ISAR1 and 3, CTR
        (0xE000ED50, 0x00101F40),
        (0xE000ED64, 0x02212000),
        (0xE000ED6C, 0x01111131),
        (0xE000ED7C, 0x8000C000),
        # Parts and architectures of DWT, breakpoint unit and trace port, which pyOCD checks for a Cortex-M33
        (0xE0001FE0, 0x21),
        (0xE0002FBC, 0x47701A03),
        (0xE0000FCC, 0x43),
        (0xE000EE08, 0),  # DSCSR: no Security Extension, as with TZEN at 0
        (0xE000EFB8, 0xF),  # DAUTHSTATUS: nothing secure
        (0xE0044000, 0x20016472),  # DBGMCU_IDCODE, at its own address (RM0438, 52.11)
        (0x0BFA05E0, 0xFFFF0200),  # flash size: 512 KiB
        (OPTR, 0x7FEFF8AA),  # TZEN is 0, level 0, two banks
        (0xE0002000, 0x10000080),  # FP_CTRL: version 2, eight comparators
        (DWT_DEVARCH, 0x47701A02),  # OpenOCD recognises Armv8-M's watchpoints by it
    ],
)
def test_identification_registers(target: L5Target, address: int, value: int) -> None:
    assert target.peek(address) == value


def test_debug_port_has_the_id_of_openocds_script(target: L5Target) -> None:
    probe = StLink(target.machine)
    probe.execute(bytes([0xF2, 0x30, 0xA3]).ljust(16, b"\0"), b"", 12)
    reply = probe.execute(bytes([0xF2, 0x31]).ljust(16, b"\0"), b"", 12)
    assert int.from_bytes(reply[4:8], "little") == 0x0BE12477  # stm32x5x_common.cfg


def _overflow(instruction: str) -> str:
    return f"""
        .cpu cortex-m33
        handler reset
        ldr r0, ={LIMIT:#x}
        msr msplim, r0
        mrs r1, msplim
        ldr r2, ={LIMIT + 16:#x}
        mov sp, r2
        {instruction}
        done
        handler usage_fault
        mrs r3, msp
        mov r4, lr
        done
    """


@pytest.mark.parametrize("instruction", ["push {r0-r4}", "sub sp, #24", "stmdb sp!, {r4-r9}"])
def test_stack_overflow_is_a_fault(target: L5Target, instruction: str) -> None:
    target.load(_overflow(instruction))
    target.poke(SHCSR, USGFAULTENA)
    target.machine.write(LIMIT - 64, b"\xaa" * 80)
    target.resume()
    target.wait_for_halt()
    assert target.pc > target.symbols["usage_fault"]
    assert target.peek(CFSR) == STKOF
    assert target.register(1) == LIMIT
    assert target.register(3) == LIMIT  # the frame did not fit (DDI 0553B, PushStack)
    assert target.machine.read(LIMIT - 64, 80) == b"\xaa" * 80


def test_stack_may_end_at_its_limit(target: L5Target) -> None:
    target.run(_overflow("push {r0-r3}"))
    assert target.peek(CFSR) == 0
    assert target.register(13) == LIMIT


def test_exception_frame_past_the_limit_is_an_overflow(target: L5Target) -> None:
    target.load(_overflow("svc #0"))
    target.poke(SHCSR, USGFAULTENA)
    target.poke(0xE000ED1C, 0x40000000)  # SVCall is less urgent than the UsageFault
    target.resume()
    target.wait_for_halt()
    assert target.peek(CFSR) == STKOF
    assert target.register(3) == LIMIT


def test_reset_clears_the_limit(target: L5Target) -> None:
    target.run(_overflow("push {r0-r3}"))
    target.run(f"handler reset\nldr r0, ={LIMIT - 256:#x}\nmov sp, r0\npush {{r0-r3}}\ndone")
    assert (target.peek(CFSR), target.peek(HFSR)) == (0, 0)


def test_exc_return_without_security(target: L5Target) -> None:
    target.run(
        """
        handler reset
        ldr r0, =0xE000ED88
        ldr r1, =0x00F00000
        str r1, [r0]
        dsb
        isb
        svc #0
        mov r5, r4
        vmov.f32 s0, #1.0
        svc #0
        mov r6, r4
        ldr r0, =0x2000E000
        msr psp, r0
        mov r0, #2
        msr control, r0
        isb
        svc #0
        mov r7, r4
        done
        handler sv_call
        mov r4, lr
        bx lr
        """
    )
    # DDI 0553B, B3.19: S, ES and bit 1 are 0, DCRS is 1
    assert [target.register(n) for n in (5, 6, 7)] == [0xFFFFFFB8, 0xFFFFFFA8, 0xFFFFFFBC]


def test_armv8_instructions_are_executed(target: L5Target) -> None:
    target.run(f".cpu cortex-m33\nhandler reset\nldr r0, ={RAM:#x}\nmov r1, #7\nstl r1, [r0]\nlda r2, [r0]\ndone")
    assert target.register(2) == 7


@pytest.mark.parametrize(("match", "stops"), [(4, ["store", "load"]), (5, ["store"]), (6, ["load"])])
def test_watchpoint_has_access_and_size_in_one_register(target: L5Target, match: int, stops: list[str]) -> None:
    target.load(
        f"""
        handler reset
        ldr r0, ={RAM:#x}
        str r1, [r0, #4]
        store: str r1, [r0]
        load: ldr r1, [r0]
        ldr r1, [r0, #4]
        done
        """
    )
    target.poke(DWT_COMP, RAM)
    target.poke(DWT_COMP + 4, 4)  # there is no mask
    target.poke(DWT_FUNCTION, 2 << 10 | 1 << 4 | match)
    for stop in stops:
        target.resume()
        target.wait_for_halt()
        assert target.pc == target.symbols[stop] + 2
        assert target.peek(DWT_FUNCTION) >> 24 & 1
    target.resume()
    target.wait_for_halt()
    assert target.pc == target.symbols["load"] + 4


def test_flash_is_locked_until_both_keys(target: L5Target) -> None:
    target.poke(NSCR, PG)
    target.machine.write(FLASH, bytes(8))
    assert target.peek(NSCR) == 0xC0000000
    assert target.peek(NSSR) == PGSERR
    target.unlock()
    assert not target.peek(NSCR) & LOCK


def test_double_word_must_be_complete_and_aligned(target: L5Target) -> None:
    target.unlock()
    target.poke(NSCR, PG)
    target.poke(FLASH + 4, 0)
    assert target.peek(NSSR) == PGAERR
    target.poke(NSSR, PGAERR)
    target.machine.write(FLASH, bytes(8))
    assert (target.peek(NSSR), target.peek(NSSR)) == (BSY, 0)
    assert target.machine.read(FLASH, 8) == bytes(8)


def test_page_is_erased_in_its_bank(target: L5Target) -> None:
    target.unlock()
    target.poke(NSCR, PG)
    addresses = [FLASH + PAGE, BANK2 + PAGE, BANK2 + 2 * PAGE]
    for address in addresses:
        target.machine.write(address, bytes(8))
    target.poke(NSCR, PER | BKER | 1 << 3 | STRT)
    assert [address for address in addresses if target.peek(address)] == [BANK2 + PAGE]
