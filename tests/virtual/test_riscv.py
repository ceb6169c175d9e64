# SPDX-License-Identifier: Apache-2.0
"""The hart of a virtual RISC-V board: counts, debug events and traps of assembled programs."""

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from utvm import boards
from utvm.virtual.bus import Bus
from utvm.virtual.jtag.core import EXECUTE, LOAD, STORE
from utvm.virtual.riscv.hart import MACHINE, MIP, TDATA1, TDATA2, TRIGGER, TSELECT, USER, Hart
from utvm.virtual.riscv.machine import Clint, Uart16550

_CODE, _DATA, _NOWHERE, _UART = 0x80000000, 0x82000000, 0x90000000, 0x10000000
_BY_NAME = {"ra": 1, "sp": 2, "t0": 5, "t1": 6, "t2": 7, "s0": 8, "a0": 10, "a1": 11}


class Target:
    """A hart with a program in memory, halted before it."""

    def __init__(self, folder: Path, isa: str, program: str) -> None:
        source, image = folder / "program.s", folder / "program.elf"
        source.write_text(f".globl _start\n_start:\n{program}\n")
        abi = "lp64d" if isa.startswith("rv64") else "ilp32f"
        flags = [f"-march={isa}_zicsr", f"-mabi={abi}", "-nostdlib", f"-Wl,-Ttext={_CODE:#x}"]
        subprocess.run(["riscv64-unknown-elf-gcc", *flags, "-o", image, source], check=True)
        with image.open("rb") as file:
            text = ELFFile(file).get_section_by_name(".text").data()
        core = "rv64" if isa.startswith("rv64") else "rv32"
        spec = boards.load(f"riscv-spike:core={core}").jtag_spec()
        self.bus = Bus(spec.regions)
        self.hart = Hart(isa, self.bus, _CODE)
        self.bus.write(_CODE, text)
        self.core = self.hart.core

    def set(self, **registers: int) -> None:
        for name, value in registers.items():
            self.core.write_x(_BY_NAME[name], value)

    def get(self, name: str) -> int:
        return self.core.read_x(_BY_NAME[name])

    def trigger(self, address: int, accesses: int, control: int = 1 << 12 | 1 << 6) -> None:
        """Set the first trigger, by default to halt in machine mode (mcontrol: action 1, m)."""
        dmode = 1 << (self.core.xlen - 5)
        self.core.write_trigger(TDATA1, dmode | control | accesses, debugger=True)
        self.core.write_trigger(TDATA2, address, debugger=True)

    def run(self) -> None:
        """Run until a halt, or for 100 instructions or traps."""
        self.hart.stop_requested = True
        self.hart.halted = False
        self.hart.run(100)


_NARROW = {
    "lb t0, 4(s0)": LOAD,
    "lhu t0, -4(s0)": LOAD,
    "lw t0, 2044(s0)": LOAD,
    "flw fa0, -2048(s0)": LOAD,
    "sb t0, 4(s0)": STORE,
    "sh t0, -4(s0)": STORE,
    "sw t0, 2044(s0)": STORE,
    "fsw fa0, -2048(s0)": STORE,
    "c.lw a0, 64(s0)": LOAD,
    "c.lw a0, 4(s0)": LOAD,
    "c.sw a0, 56(s0)": STORE,
    "c.lwsp a0, 128(sp)": LOAD,
    "c.lwsp a0, 36(sp)": LOAD,
    "c.swsp a0, 192(sp)": STORE,
    "c.swsp a0, 36(sp)": STORE,
    "amoadd.w t0, t1, (s0)": LOAD | STORE,
    "lr.w t0, (s0)": LOAD,
}
_CASES = [("rv32imafc", text, access) for text, access in _NARROW.items()]
_CASES += [("rv32imafc", "c.flw fa0, 68(s0)", LOAD), ("rv32imafc", "c.fswsp fa0, 132(sp)", STORE)]
_CASES += [("rv64imafdc", text, access) for text, access in _NARROW.items()]
_CASES += [
    ("rv64imafdc", "ld t0, 8(s0)", LOAD),
    ("rv64imafdc", "c.ld a0, 200(s0)", LOAD),
    ("rv64imafdc", "c.sd a0, 72(s0)", STORE),
    ("rv64imafdc", "c.ldsp a0, 264(sp)", LOAD),
    ("rv64imafdc", "c.sdsp a0, 456(sp)", STORE),
    ("rv64imafdc", "c.fld fa0, 136(s0)", LOAD),
    ("rv64imafdc", "c.fsdsp fa0, 336(sp)", STORE),
]


def _address(text: str) -> int:
    """Address that an instruction of the table accesses, from its text."""
    operand = text.rsplit(maxsplit=1)[-1]
    return _DATA + 0x1000 + int(operand.partition("(")[0] or 0)


@pytest.mark.parametrize(("isa", "text", "access"), _CASES)
def test_trigger_stops_before_an_access(isa: str, text: str, access: int, tmp_path: Path) -> None:
    target = Target(tmp_path, isa, f".option norvc\n nop\n .option rvc\n {text}\n ebreak")
    target.hart.ebreak_halts = frozenset({MACHINE})
    target.core.write_csr(0x300, 1 << 13)  # mstatus: the floating-point unit is on
    for kind in (LOAD, STORE):
        target.core.pc = _CODE
        target.set(s0=_DATA + 0x1000, sp=_DATA + 0x1000)
        target.trigger(_address(text), kind)
        target.run()
        stopped = target.hart.cause == TRIGGER and target.core.pc == _CODE + 4
        assert stopped == bool(kind & access)


@pytest.mark.parametrize("isa", ["rv32imafc", "rv64imafdc"])
def test_trap_has_cause_and_value(isa: str, tmp_path: Path) -> None:
    """Causes: Volume II, table 3.6. A trapping instruction is not counted."""
    target = Target(
        tmp_path,
        isa,
        f"la t0, handler\n csrw mtvec, t0\n li s0, {_NOWHERE:#x}\n 1: j 1f\n .balign 4\n"
        "handler: csrr a0, mcause\n csrr a1, mtval\n csrr t1, mepc\n ebreak\n"
        "1: .globl here\n sw t0, 12(s0)",
    )
    target.hart.ebreak_halts = frozenset({MACHINE})
    target.run()
    assert (target.get("a0"), target.get("a1")) == (7, _NOWHERE + 12)
    for instruction, cause, value in (
        (0x00042503, 5, _NOWHERE),  # lw a0, 0(s0)
        (0x00040067, 1, _NOWHERE),  # jr s0
        (0xC0001073, 2, 0xC0001073),  # unimp
        (0x00000073, 11, 0),  # ecall
    ):
        code = _DATA + 0x100
        target.bus.write(code, instruction.to_bytes(4, "little"))
        target.core.pc = code
        target.set(s0=_NOWHERE)
        before = target.core.state.count
        target.run()
        assert (target.get("a0"), target.get("a1")) == (cause, value)
        assert target.get("t1") == (_NOWHERE if cause == 1 else code)
        retired = 1 if cause == 1 else 0
        assert target.core.state.count - before == retired + 3


def test_write_to_protected_memory_is_a_fault(tmp_path: Path) -> None:
    """A locked entry also protects its range from machine mode (Volume II, 3.7.1)."""
    target = Target(tmp_path, "rv32imafc", "c.swsp a0, 252(sp)\n ebreak\n .balign 4\n handler: ebreak")
    target.hart.ebreak_halts = frozenset({MACHINE})
    for number, value in ((0x3B0, _DATA >> 2), (0x3B1, _DATA + 0x1000 >> 2), (0x3A0, 0x8800), (0x305, _CODE + 4)):
        assert target.core.write_csr(number, value)
    target.set(sp=_DATA + 0xF00)
    target.run()
    assert (target.core.read_csr(0x342), target.core.read_csr(0x343)) == (7, _DATA + 0xFFC)
    target.core.pc = _CODE
    target.set(sp=_DATA + 0xF04)
    target.run()
    assert target.core.pc == _CODE + 2


@pytest.mark.parametrize("isa", ["rv32imafc", "rv64imafdc"])
def test_steps_and_runs_have_equal_counts(isa: str, tmp_path: Path) -> None:
    rounds = 7
    program = f"li t0, {rounds}\n 1: csrr t1, minstret\n addi t0, t0, -1\n bnez t0, 1b\n csrr t2, minstret\n ebreak"
    stepped = Target(tmp_path, isa, program)
    for _ in range(1 + 3 * rounds + 1):
        stepped.hart.step()
    running = Target(tmp_path, isa, program)
    running.hart.ebreak_halts = frozenset({MACHINE})
    running.run()
    assert stepped.core.state.count == running.core.state.count == 1 + 3 * rounds + 1
    assert stepped.get("t2") == running.get("t2") == 1 + 3 * rounds
    assert stepped.core.pc == running.core.pc


def test_trigger_stops_before_an_instruction(tmp_path: Path) -> None:
    target = Target(tmp_path, "rv32imafc", ".option norvc\n li a0, 1\n li a0, 2\n ebreak")
    target.hart.ebreak_halts = frozenset({MACHINE})
    target.trigger(_CODE + 4, EXECUTE)
    target.run()
    assert (target.core.pc, target.get("a0")) == (_CODE + 4, 1)
    target.core.set_triggers([])
    target.run()
    assert target.get("a0") == 2
    target.bus.write(_CODE + 4, (0x00300513).to_bytes(4, "little"))  # li a0, 3
    target.core.pc = _CODE
    target.run()
    assert target.get("a0") == 3


def test_uart_fifo_has_sixteen_bytes_and_loses_none(tmp_path: Path) -> None:
    """As the TL16C550C's FIFO, for a program that polls."""
    target = Target(
        tmp_path,
        "rv32imafc",
        f"li s0, {_UART:#x}\n li a1, {_DATA:#x}\n 1: lbu t0, 5(s0)\n andi t0, t0, 1\n beqz t0, 1b\n"
        "lbu t0, 0(s0)\n sb t0, 0(a1)\n addi a1, a1, 1\n j 1b",
    )
    levels: list[bool] = []
    uart = Uart16550(target.hart, lambda data: None, levels.append)
    target.bus.add(_UART, uart)
    target.core.map_device(_UART, uart)
    target.hart.sources.append(uart.input)
    sent = bytes(range(1, 101))
    uart.input.receive(sent)
    target.run()
    count = target.get("a1") - _DATA
    assert 0 < count <= 16
    for _ in range(1000):
        target.run()
    assert target.bus.read(_DATA, 101) == sent + b"\0"


_BOTH = pytest.mark.parametrize("isa", ["rv32imafc", "rv64imafdc"])


@_BOTH
def test_misa_has_the_extensions_of_the_core(isa: str, tmp_path: Path) -> None:
    """Volume II, 3.1.1. Missing extensions are illegal instructions: satp (S), and D on a core without it."""
    satp = "csrr a0, satp\n li t1, 0"
    double = ".word 0x02007053 # fadd.d ft0, ft0, ft0\n li t1, 0"
    for text in (satp, double):
        target = Target(
            tmp_path,
            isa,
            f"csrr s0, misa\n la t0, 1f\n csrw mtvec, t0\n li t0, 0x6000\n csrw mstatus, t0\n li t1, 1\n {text}\n"
            ".align 2\n1: csrr a0, mcause\n ebreak",
        )
        target.hart.ebreak_halts = frozenset({MACHINE})
        target.run()
        letters = sum(1 << ord(letter) - ord("a") for letter in f"{isa[4:]}u")
        width = {32: 1 << 30, 64: 2 << 62}[target.core.xlen]
        assert target.get("s0") == letters | width
        exists = "d" in isa[4:] and text == double
        assert (target.get("t1"), target.get("a0") == 2) == ((0, False) if exists else (1, True))


@_BOTH
def test_program_enters_and_leaves_user_mode(isa: str, tmp_path: Path) -> None:
    """Causes and MPP: Volume II, table 3.6 and 3.1.6.1. CSRs of machine mode are illegal in user mode."""
    target = Target(
        tmp_path,
        isa,
        """la t0, trap; csrw mtvec, t0; csrw mstatus, zero; la t0, user; csrw mepc, t0; mret
        user: csrr a0, mtvec; ecall
        .align 2
        trap: csrr t0, mcause; csrr t1, mstatus; csrr t2, mepc; slli s0, s0, 8; or s0, s0, t0
        addi t2, t2, 4; csrw mepc, t2; li a1, 8; beq t0, a1, 1f; mret
        1: ebreak""".replace(";", "\n"),
    )
    target.hart.ebreak_halts = frozenset({MACHINE})
    target.set(s0=0)
    target.run()
    assert target.get("s0") == 0x0208  # an illegal instruction, then a call from user mode
    assert target.get("t1") >> 11 & 3 == USER
    assert target.core.privilege == MACHINE


def test_mip_shows_pending_interrupts(tmp_path: Path) -> None:
    """Volume II, 3.1.9: bit 7 belongs to the timer, and only the timer clears it."""
    target = Target(tmp_path, "rv32imafc", "csrr a0, mip\n csrw mip, zero\n csrr a1, mip\n ebreak")
    target.hart.ebreak_halts = frozenset({MACHINE})
    clint = Clint(target.hart, 100)
    target.hart.sources.append(clint)
    assert target.core.read_csr(MIP) == 0
    for offset in (0x4000, 0x4004):
        clint.write(offset, 4, 0)  # mtimecmp
    assert target.core.read_csr(MIP) == 1 << 7
    target.run()
    assert target.get("a0") == target.get("a1") == 1 << 7


def test_fcsr_is_readable_with_floats_disabled(tmp_path: Path) -> None:
    target = Target(tmp_path, "rv32imafc", "ebreak")
    assert target.core.write_csr(3, 0x61)
    assert [target.core.read_csr(number) for number in (1, 2, 3)] == [1, 3, 0x61]
    assert (target.core.read_csr(0x300) or 0) & 0x6000 == 0


@_BOTH
def test_program_sets_its_own_triggers(isa: str, tmp_path: Path) -> None:
    """External Debug Support 0.13.2, 5.2: a program may set a breakpoint trigger, but not change a debugger's."""
    target = Target(
        tmp_path,
        isa,
        """li t0, 1; csrw tselect, t0; csrr a0, tselect; csrr a1, tinfo; la t0, 1f; csrw mtvec, t0
        li t1, 0x1045; csrw tdata1, t1; la t2, there; csrw tdata2, t2; csrr t1, tdata1
        csrw tselect, zero; csrw tdata1, zero
        there: nop; nop
        .align 2
        1: csrr t0, mcause; csrr s0, mepc; ebreak""".replace(";", "\n"),
    )
    target.hart.ebreak_halts = frozenset({MACHINE})
    target.trigger(_DATA, LOAD)
    target.run()
    assert (target.get("a0"), target.get("a1"), target.get("t0")) == (1, 1 << 2, 3)
    assert target.get("s0") == target.get("t2")
    # Type mcontrol; only a debugger may select an entry into Debug Mode.
    assert target.get("t1") == 2 << (target.core.xlen - 4) | 0x45
    target.core.write_csr(TSELECT, 0)
    assert (target.core.read_csr(TDATA1) or 0) & LOAD
