# SPDX-License-Identifier: Apache-2.0
"""A virtual board with a real OpenOCD, for each of the two drivers for an ST-Link."""

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from utvm import boards
from utvm.base.process import Service
from utvm.probe.gdb import GdbClient
from utvm.probe.openocd import OpenOcd
from utvm.probe.virtual import start_virtual

# Both as in their documentation; the scripts themselves are stock.
CONFIGS = {
    "dapdirect_swd": "source [find interface/stlink-dap.cfg]\ntransport select dapdirect_swd\n",
    "hla_swd": "source [find interface/stlink.cfg]\ntransport select hla_swd\n",
}
# Boards use the first one.
TRANSPORTS = ("dapdirect_swd", pytest.param("hla_swd", marks=pytest.mark.slow))
BACKENDS = {"dapdirect_swd": "st-link backend tcp {}", "hla_swd": "hla_stlink_backend tcp {}"}
TARGET = "source [find target/stm32f7x.cfg]\nreset_config srst_only srst_nogate connect_assert_srst\n"

FLASH = 0x08000000
DTCM = 0x20000000
SRAM = 0x20010000


@dataclass
class Rig:
    """A virtual board and its debugger."""

    transport: str
    board: Service
    openocd: OpenOcd
    gdb: GdbClient

    @property
    def console_port(self) -> int:
        assert self.board.health_match
        return int(self.board.health_match["console"])


def config(transport: str, directory: Path) -> Path:
    """Write a board's OpenOCD configuration for a transport."""
    path = directory / f"{transport}.cfg"
    path.write_text(CONFIGS[transport] + TARGET)
    return path


def backend(transport: str, board: Service) -> list[str]:
    """Return the commands that connect OpenOCD to a virtual board."""
    assert board.health_match
    return [BACKENDS[transport].format(board.health_match["stlink"])]


def virtual_board(directory: Path, latency_us: int = 0) -> Service:
    """Return a virtual STM32F746 as a context manager."""
    return start_virtual(boards.load("stm32f746"), directory, latency_us=latency_us)


def rig_on(
    stack: ExitStack, transport: str, directory: Path, *, board: Service | None = None, gdb_timeout: float = 10.0
) -> Rig:
    """Start OpenOCD and a GDB client, and a board unless one is given; all of them end with the stack."""
    board = board or stack.enter_context(virtual_board(directory))
    openocd = stack.enter_context(
        OpenOcd(config(transport, directory), commands=backend(transport, board), log=directory / "openocd.log")
    )
    gdb = stack.enter_context(GdbClient(openocd.gdb, timeout=gdb_timeout))
    return Rig(transport, board, openocd, gdb)


@dataclass(frozen=True)
class Program:
    """An assembled program: its ELF file, its bytes from the start of flash, and its labels."""

    elf: Path
    image: bytes
    labels: dict[str, int]


def assemble(source: str, directory: Path) -> Program:
    """Assemble a program for the start of flash with the GNU tools."""
    assembly, elf, binary = (directory / f"program.{suffix}" for suffix in ("s", "elf", "bin"))
    assembly.write_text(".syntax unified\n.cpu cortex-m7\n.thumb\n.text\n" + source)
    flags = ["-nostdlib", f"-Wl,-Ttext={FLASH:#x}", "-Wl,--entry=start", "-mcpu=cortex-m7", "-mthumb"]
    subprocess.run(["arm-none-eabi-gcc", *flags, assembly, "-o", elf], check=True)
    subprocess.run(["arm-none-eabi-objcopy", "-O", "binary", elf, binary], check=True)
    names = subprocess.run(["arm-none-eabi-nm", elf], check=True, capture_output=True, text=True).stdout
    labels = {name: int(value, 16) for value, _, name in (line.split() for line in names.splitlines())}
    return Program(elf, binary.read_bytes(), labels)


COUNTER = SRAM
"""Address of the program's counter."""

# Prints "u" on USART3, then counts in RAM without end, and reads the word after the counter each time.
PROGRAM = f"""
        .word   {DTCM + 0x1000:#x}
        .word   start + 1
        .rept 14
        .word   trap + 1
        .endr
        .thumb_func
        .global start
start:  ldr     r1, =0x40004800         @ USART3: enable it and its transmitter
        movs    r0, #9
        str     r0, [r1]
        movs    r0, #'u'
        str     r0, [r1, #0x28]
        movs    r0, #'\\n'
        str     r0, [r1, #0x28]
        ldr     r2, ={COUNTER:#x}
        movs    r0, #0
        str     r0, [r2]
        .thumb_func                     @ GNU ld 2.44 refuses a branch to a symbol without an instruction set.
        .global loop
loop:   adds    r0, r0, #1
        .global store
store:  str     r0, [r2]
        .global after
after:  ldr     r3, [r2, #4]
        b       loop
        .thumb_func
        .global trap
trap:   b       trap
        .ltorg
"""
