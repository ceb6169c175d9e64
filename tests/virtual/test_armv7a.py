# SPDX-License-Identifier: Apache-2.0
"""A virtual Cortex-A9: counts, debug events and faults of assembled programs; and OpenOCD."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from hil_tests.programs import handwritten
from tests.cli.running import inv
from utvm import boards, firmware
from utvm.drivers import attach
from utvm.paths import ROOT
from utvm.probe.virtual import start_jtag
from utvm.session import HostDriven
from utvm.virtual.bus import Bus
from utvm.virtual.cortex_a.cpu import BREAKPOINT, CortexA9
from utvm.virtual.cortex_a.debug import DebugUnit
from utvm.virtual.cortex_a.machine import PrivatePeripherals

_CODE, _DATA, _NOWHERE, _PRIVATE = 0xFFFC2000, 0xFFFD0000, 0x40000000, 0xF8F00000
_EXECUTES_AND_HALTS = 1 << 13 | 1 << 14
_NAME = "pynq-z1:memory=ocm,driver=jtag"


class Target:
    """A core with a program in memory, halted before it, and a debugger's registers."""

    def __init__(self, folder: Path, program: str, board_name: str = _NAME) -> None:
        board = boards.load(board_name)
        self.code = _CODE if board_name == _NAME else board.region(board.layout.code).address
        source, image = folder / "program.s", folder / "program.elf"
        source.write_text(f".syntax unified\n.arm\n.globl _start\n_start:\n{program}\n")
        flags = ["-mcpu=cortex-a9", "-mfpu=neon-vfpv3", "-mfloat-abi=hard", "-nostdlib", f"-Wl,-Ttext={self.code:#x}"]
        subprocess.run(["arm-none-eabi-gcc", *flags, "-o", image, source], check=True)
        with image.open("rb") as file:
            text = ELFFile(file).get_section_by_name(".text").data()
        self.bus = Bus(board.jtag_spec().regions)
        self.cpu = CortexA9(self.bus, _PRIVATE)
        self.core = self.cpu.core
        self.private = PrivatePeripherals(self.cpu, 16, 5)
        self.cpu.sources.append(self.private)
        self.core.map_device(_PRIVATE, self.private)
        self.unit = DebugUnit(self.cpu, self.bus)
        self.bus.write(self.code, text)
        self.unit.write(0x088, _EXECUTES_AND_HALTS)
        self.unit.write(0x090, 1)
        self.go(self.code)

    def go(self, address: int) -> None:
        """Set PC as a debugger does."""
        self.core.write_r(0, address)
        self.execute(0xE12FFF10)  # bx r0

    def execute(self, op: int) -> None:
        self.unit.write(0x084, op)

    def run(self, instructions: int = 100) -> None:
        """Run until a halt, or for a number of instructions or exceptions."""
        self.cpu.stop_requested = True
        self.unit.write(0x090, 2)
        self.cpu.run(instructions)

    @property
    def halted(self) -> bool:
        return bool(self.unit.read(0x088) & 1)


def test_breakpoint_stops_before_its_instruction(tmp_path: Path) -> None:
    """ARM DDI 0406C, C3.3: debuggers step with a mismatch breakpoint, which stops at any other address."""
    target = Target(tmp_path, "mov r1, #1\n mov r1, #2\n mov r1, #3\n b .")
    target.unit.write(0x100, _CODE + 8)
    target.unit.write(0x140, 0x1E7)
    target.run()
    assert (target.halted, target.cpu.entry, target.core.pc, target.core.read_r(1)) == (True, BREAKPOINT, _CODE + 8, 2)
    target.unit.write(0x100, _CODE + 8)
    target.unit.write(0x140, 0x1E7 | 4 << 20)
    target.run()
    assert (target.halted, target.core.pc, target.core.read_r(1)) == (True, _CODE + 12, 3)
    assert target.core.state.count == 3
    target.unit.write(0x140, 0)
    target.bus.write(_CODE + 4, (0xE3A01007).to_bytes(4, "little"))  # mov r1, #7
    target.bus.write(_CODE + 8, (0xE1200070).to_bytes(4, "little"))  # bkpt
    target.go(_CODE + 4)
    target.run()
    assert (target.halted, target.cpu.entry, target.core.pc, target.core.read_r(1)) == (True, 3, _CODE + 8, 7)


def test_debugger_accesses_memory_with_sticky_errors(tmp_path: Path) -> None:
    target = Target(tmp_path, "b .")
    target.core.write_r(1, 0x11223344)
    target.core.write_r(0, _DATA)
    target.execute(0xE4801004)  # str r1, [r0], #4
    target.unit.write(0x080, 0x55667788)
    target.execute(0xECA05E01)  # stc p14, c5, [r0], #4
    assert target.bus.read(_DATA, 8) == bytes.fromhex("4433221188776655")
    assert target.core.read_r(0) == _DATA + 8
    # Fast mode: each access to the data registers executes the latched instruction.
    target.core.write_r(0, _DATA)
    target.unit.write(0x088, _EXECUTES_AND_HALTS | 2 << 20)
    target.unit.write(0x084, 0xECB05E01)  # ldc p14, c5, [r0], #4
    target.unit.read(0x08C)
    assert [target.unit.read(0x08C), target.unit.read(0x08C)] == [0x11223344, 0x55667788]
    target.unit.write(0x088, _EXECUTES_AND_HALTS)
    target.core.write_r(0, _NOWHERE)
    target.execute(0xE4901004)  # ldr r1, [r0], #4
    assert target.unit.read(0x088) & 1 << 6
    target.execute(0xE1A0100F)  # mov r1, pc: not executed
    assert target.core.read_r(1) == 0x11223344
    target.unit.write(0x090, 4)
    target.execute(0xE1A0100F)
    assert target.core.read_r(1) == _CODE + 8
    target.execute(0xE7F000F0)  # udf
    assert target.unit.read(0x088) & 1 << 8


@pytest.mark.parametrize(
    ("text", "vector", "status", "address", "return_offset"),
    [
        ("ldr r1, [r4, #12]", 4, 0x08, _NOWHERE + 12, 8),
        ("str r1, [r4, #12]", 4, 0x808, _NOWHERE + 12, 8),
        ("ldrd r2, r3, [r5, #2]", 4, 0x01, _DATA + 2, 8),
        ("strd r2, r3, [r5, -r6]", 4, 0x801, _DATA - 3, 8),
        ("ldm r7, {r1, r2}", 4, 0x01, _DATA + 1, 8),
        ("vstr d0, [r7, #-8]", 4, 0x801, _DATA - 7, 8),
        ("udf #0", 1, 0, 0, 4),
        ("svc #0", 2, 0, 0, 4),
        ("bx r4", 3, 0x08, _NOWHERE, None),
    ],
)
def test_fault_enters_its_vector_with_its_status(
    text: str, vector: int, status: int, address: int, return_offset: int | None, tmp_path: Path
) -> None:
    """Link registers: ARM DDI 0406C, table B1-7; status: table B3-23, without memory management."""
    target = Target(tmp_path, f"nop\n {text}\n b .\n .balign 32\nvectors:\n" + " bkpt\n" * 8)
    vectors = _CODE + 32
    for register, value in ((4, _NOWHERE), (5, _DATA), (6, 3), (7, _DATA + 1)):
        target.core.write_r(register, value)
    target.core.write_cp15((0, 12, 0, 0), vectors)
    for op in (0xE3A00101, 0xEEE80A10):  # mov r0, #0x40000000; vmsr fpexc, r0
        target.bus.write(_DATA, op.to_bytes(4, "little") + (0xE1200070).to_bytes(4, "little"))
        target.go(_DATA)
        target.run()
    target.go(_CODE)
    before = target.core.cpsr
    target.run()
    assert target.halted
    assert target.core.pc == vectors + 4 * vector
    assert target.core.read_r(14) == (_NOWHERE + 4 if return_offset is None else _CODE + 4 + return_offset)
    assert target.core.spsr == before
    registers = {3: ((0, 5, 0, 1), (0, 6, 0, 2)), 4: ((0, 5, 0, 0), (0, 6, 0, 0))}.get(vector)
    if registers:
        assert [target.core.read_cp15(register) for register in registers] == [status, address]


@pytest.mark.parametrize(("text", "status"), [("ldr r1, [r4, #12]", 0x05), ("str r1, [r4, #12]", 0x805)])
def test_mmu_fault_has_status_and_address(text: str, status: int, tmp_path: Path) -> None:
    """Only the program's MiB is mapped (ARM DDI 0406C, B3.5.1)."""
    target = Target(tmp_path, f"{text}\n b .\n .balign 32\nvectors:\n" + " bkpt\n" * 8, "pynq-z1:memory=ddr")
    target.bus.write(
        target.code + 0x8000 + 4 * (target.code >> 20), (target.code & -0x100000 | 0xC02).to_bytes(4, "little")
    )
    target.core.write_r(4, 0xF0000000)
    control = target.core.read_cp15((0, 1, 0, 0))
    assert control is not None
    for register, value in (
        ((0, 12, 0, 0), target.code + 32),
        ((0, 2, 0, 0), target.code + 0x8000),
        ((0, 3, 0, 0), 1),
        ((0, 1, 0, 0), control | 1),
    ):
        assert target.core.write_cp15(register, value)
    target.run()
    assert target.core.pc == target.code + 32 + 4 * 4
    assert [target.core.read_cp15((0, crn, 0, 0)) for crn in (5, 6)] == [status, 0xF000000C]


def test_skipped_unaligned_access_is_no_fault(tmp_path: Path) -> None:
    target = Target(tmp_path, "cmp r5, #0\n ldmeq r5, {r1, r2}\n mov r3, #3\n bkpt")
    target.core.write_r(5, _DATA + 1)
    target.run()
    assert (target.core.read_r(3), target.core.pc, target.core.state.count) == (3, _CODE + 12, 3)


def test_skipped_thumb_instructions_are_counted(tmp_path: Path) -> None:
    """For r5 from 4 to 1, half of each block of four is not executed."""
    rounds = 4
    target = Target(
        tmp_path,
        f"blx 1f\n bkpt\n .thumb\n 1: movs r5, #{rounds}\n"
        "2: tst r5, #1\n ittee eq\n addeq r1, #1\n addeq r2, #0x1000\n addne r3, #1\n addne.w r4, #1\n"
        "subs r5, #1\n bne 2b\n bx lr",
    )
    for register in (1, 2, 3, 4):
        target.core.write_r(register, 0)
    target.run(1000)
    assert target.halted
    assert [target.core.read_r(register) for register in (1, 2, 3, 4)] == [2, 0x2000, 2, 2]
    assert target.core.state.count == 1 + 1 + rounds * 8 + 1


def test_sleeping_core_wakes_at_the_timer(tmp_path: Path) -> None:
    """The handler acknowledges the interrupt, and sleep takes no instructions."""
    target = Target(tmp_path, "cpsie i\n wfi\n mov r1, #1\n b .\n .balign 32\n vectors:\n" + " bkpt\n" * 8)
    target.core.write_cp15((0, 12, 0, 0), _CODE + 32)
    for offset, value in (
        (0x1100, 1 << 27),
        (0x1000, 1),
        (0x104, 0xFF),
        (0x100, 1),
        (0x210, 3200),
        (0x214, 0),
        (0x208, 7),
    ):
        target.private.write(offset, 4, value)
    # The run returns while the core sleeps.
    target.run()
    assert (target.halted, target.core.pc) == (False, _CODE + 8)
    target.run()
    assert (target.halted, target.core.pc) == (True, _CODE + 32 + 4 * 6)
    assert target.core.state.count == 2
    assert target.private.read(0x200, 4) == 3200
    assert target.core.read_r(14) == _CODE + 8 + 4
    assert target.private.read(0x10C, 4) == 27
    assert target.private.read(0x10C, 4) == 1023


@pytest.mark.slow
def test_openocd_drives_the_core(tmp_path: Path) -> None:
    """OpenOCD with the board's scripts only: memory in all widths, registers, steps, a breakpoint, a reset."""
    board = boards.load(_NAME)
    commands = (
        "gdb_port 0; telnet_port disabled; tcl_port disabled",
        "init; halt 500",
        # mov r0, #5; add r0, r0, #7; add r0, r0, #1; b .
        "write_memory 0xfffc2000 32 {0xe3a00005 0xe2800007 0xe2800001 0xeafffffe}",
        "write_memory 0xfffc2010 8 {0x11 0x22 0x33}; write_memory 0xfffc2014 16 {0x5544}",
        "echo memory:[read_memory 0xfffc2010 8 6]",
        "set_reg {pc 0xfffc2000}; step; step",
        "echo stepped:[get_reg {r0 pc}]",
        "set_reg {d5 0x4010000000000000}; bp 0xfffc200c 4 hw; resume; wait_halt 5000",
        "echo stopped:[get_reg {r0 pc}]",
        "rbp 0xfffc200c; echo double:[get_reg -force d5]",
        "reset halt",
        "echo reset:[get_reg -force pc]:[read_memory 0xfffc2000 32 1]",
        "echo nowhere:[catch {read_memory 0x70000000 32 1}]",
        "shutdown",
    )
    assert board.virtual.jtag
    with start_jtag(board, tmp_path) as machine:
        assert machine.health_match
        select = board.virtual.jtag.probe.format(pins=machine.health_match["pins"])
        arguments = [word for command in (select, *commands) for word in ("-c", command)]
        script = board.directory / board.virtual.jtag.openocd
        completed = subprocess.run(
            ["openocd", "-f", script, *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    output = "".join(completed.stderr.split())
    for expected in (
        "zynq_pl.bstap/devicefound:0x23727093",
        "zynq.cpu1:MPIDRlevel20,cluster0,core1",
        "memory:0x110x220x330x00x440x55",
        "stepped:r00x0000000cpc0xfffc2008",
        "stopped:r00x0000000dpc0xfffc200c",
        "double:d50x4010000000000000",
        "reset:pc0xffffff34:0xe3a00005",
        "nowhere:1",
    ):
        assert expected in output, completed.stderr


_LOOP = handwritten(
    "loop", '  __asm__ volatile("1: subs %0, %0, #1\\n bne 1b" : "=r"(y[0]) : "0"(x[0]) : "cc");\n  return 0;'
)
_BLOCKS = handwritten(
    "blocks",
    "  (void)memmove((char *)arena + 1, (char *)arena + 2, (size_t)x[0]);\n  y[0] = 1;\n  return 0;",
    "#include <string.h>",
    arena_bytes=1024,
)


@pytest.mark.slow
def test_count_equals_qemu(tmp_path: Path) -> None:
    """A round is two instructions; memmove is conditional Thumb code."""
    counts = {}
    for driver in ("jtag", "qemu"):
        board = boards.load(f"pynq-z1:memory=ocm,driver={driver}")
        with (
            attach(board, "virtual", log_directory=tmp_path) as target,
            HostDriven(target, firmware.build(board, [_LOOP, _BLOCKS])) as session,
        ):
            counts[driver] = {
                (name, size): session.run(name, [np.full(4, size, np.int32)]).count
                for name, size in (("loop", 1), ("loop", 300_007), *(("blocks", size) for size in (1, 7, 333)))
            }
    assert counts["jtag"] == counts["qemu"]
    assert counts["jtag"]["loop", 300_007] == counts["jtag"]["loop", 1] + 2 * 300_006


@pytest.mark.slow
def test_gdb_debugs_through_openocd() -> None:
    model = ROOT / "models" / "digits" / "digits_int8.tflite"
    commands = ("break utvm_run", "continue", "print program", "next", "step", "info registers pc", "backtrace")
    options = [word for command in commands for word in ("--command", command)]
    completed = inv("board.gdb", "--model", model, "--board", _NAME, "--virtual", *options)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "Breakpoint 1, utvm_run (program=" in completed.stdout
    assert "$1 = 0" in completed.stdout
