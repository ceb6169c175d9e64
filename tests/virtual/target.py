# SPDX-License-Identifier: Apache-2.0
"""Run short assembly programs on a virtual STM32 and read the results through the debug registers."""

import re
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from elftools.elf.elffile import ELFFile

from utvm import boards
from utvm.virtual.machine import BoardModel
from utvm.virtual.spec import CoreName

FLASH = 0x08000000
STACK_TOP = 0x20010000
RAM = 0x20010000

DHCSR, DCRSR, DCRDR, DEMCR, DFSR = 0xE000EDF0, 0xE000EDF4, 0xE000EDF8, 0xE000EDFC, 0xE000ED30
CFSR, HFSR, MMFAR, BFAR, SHCSR = 0xE000ED28, 0xE000ED2C, 0xE000ED34, 0xE000ED38, 0xE000ED24
CCR, CPACR, ICSR, AIRCR = 0xE000ED14, 0xE000ED88, 0xE000ED04, 0xE000ED0C
DEBUG_KEY = 0xA05F0000
ENABLE, HALT, STEP, MASK_INTERRUPTS = 1, 2, 4, 8
S_HALT, S_SLEEP, S_LOCKUP = 1 << 17, 1 << 18, 1 << 19
TRCENA, VC_CORERESET = 1 << 24, 1 << 0
XPSR, MSP, PSP, CONTROL_AND_MASKS = 16, 17, 18, 20

_FAULT_HANDLERS = ["nmi", "hard_fault", "mem_manage", "bus_fault", "usage_fault"]
_LATER_HANDLERS = ["sv_call", "debug_monitor", None, "pend_sv", "sys_tick"]
_SYSTEM_HANDLERS = ["reset", *_FAULT_HANDLERS, None, None, None, None, *_LATER_HANDLERS]
_INTERRUPTS = 98


def _vectors(defined: set[str]) -> str:
    """Vector table; handlers that a program does not define branch to a BKPT 0xEE."""
    names = [*_SYSTEM_HANDLERS, *(f"irq{number}" for number in range(_INTERRUPTS))]
    lines = ['.section .vectors, "a"', f".word {STACK_TOP:#x}"]
    lines += [f".word {name if name in defined else 'unexpected'}" if name else ".word 0" for name in names]
    lines += [".text", ".thumb_func", "unexpected: bkpt #0xee"]
    return "\n".join(lines)


class Target:
    """A powered board with an attached debugger.

    Programs start at ``reset`` and end with BKPT. Handlers are labels: ``hard_fault``, ``sv_call``, ``irq28``...
    ``done`` is a macro that ends a program; ``handler NAME`` starts a handler.
    """

    def __init__(
        self,
        directory: Path,
        board: str = "stm32f746",
        *,
        cycles: bool = False,
        core: CoreName | None = None,
        timing: Mapping[str, object] | None = None,
    ) -> None:
        self._directory = directory
        spec = boards.load(board + (":cycles=model" if cycles else "")).machine_spec()
        if timing and spec.timing:
            spec = spec.model_copy(update={"timing": spec.timing.model_copy(update=timing)})
        self.machine = BoardModel(spec.model_copy(update={"cpu": core}) if core else spec)
        self.output = bytearray()
        self.machine.on_console_output = self.output.extend
        self.symbols: dict[str, int] = {}

    def __enter__(self) -> "Target":
        self.machine.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.machine.close()

    # Memory and registers

    def peek(self, address: int) -> int:
        return int(struct.unpack("<I", self.machine.read(address, 4))[0])

    def poke(self, address: int, value: int) -> None:
        self.machine.write(address, struct.pack("<I", value))

    def words(self, symbol: str, count: int) -> list[int]:
        return list(struct.unpack(f"<{count}I", self.machine.read(self.symbols[symbol], 4 * count)))

    def register(self, selector: int) -> int:
        self.poke(DCRSR, selector)
        return self.peek(DCRDR)

    def set_register(self, selector: int, value: int) -> None:
        self.poke(DCRDR, value)
        self.poke(DCRSR, 1 << 16 | selector)

    @property
    def pc(self) -> int:
        return self.register(15)

    # Programs

    def load(self, program: str) -> None:
        """Assemble a program, flash it through the flash controller, and halt at its reset vector."""
        image = self.assemble(program)
        self.poke(DHCSR, DEBUG_KEY | ENABLE | HALT)
        self.poke(DEMCR, TRCENA | VC_CORERESET)
        self.machine.hold_reset()
        self.program(image)
        self.machine.release_reset()
        assert self.machine.read(FLASH, len(image)) == image

    def program(self, image: bytes) -> None:
        """Flash an image, by the flash controller of the STM32F4 or F7."""
        for key in (0x45670123, 0xCDEF89AB):
            self.poke(0x40023C04, key)
        self.poke(0x40023C10, 1 << 16 | 2 << 8 | 1 << 2)  # mass erase
        self.poke(0x40023C10, 2 << 8 | 1)  # program, 32 bits at a time
        self.machine.write(FLASH, image)

    def run(self, program: str) -> None:
        """Load a program and run it until it halts."""
        self.load(program)
        self.resume()
        self.wait_for_halt()

    def resume(self, *, mask_interrupts: bool = False) -> None:
        self.poke(DHCSR, DEBUG_KEY | ENABLE | (MASK_INTERRUPTS if mask_interrupts else 0))

    def halt(self) -> None:
        self.poke(DHCSR, DEBUG_KEY | ENABLE | HALT)

    def step(self, *, mask_interrupts: bool = False) -> None:
        self.poke(DHCSR, DEBUG_KEY | ENABLE | STEP | (MASK_INTERRUPTS if mask_interrupts else 0))

    def wait_for(self, status: int) -> None:
        """Wait until a bit of DHCSR is set, at most a minute."""
        deadline = time.monotonic() + 60
        while not self.peek(DHCSR) & status:
            assert time.monotonic() < deadline, f"DHCSR is {self.peek(DHCSR):#x}"
            time.sleep(0.001)

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, at most ten seconds."""
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def wait_for_halt(self) -> None:
        self.wait_for(S_HALT)

    def assemble(self, program: str) -> bytes:
        defined = set(re.findall(r"^\s*handler (\w+)", program, re.MULTILINE))
        source = self._directory / "program.s"
        elf = self._directory / "program.elf"
        source.write_text(
            ".syntax unified\n.thumb\n.cpu cortex-m7\n.fpu fpv5-sp-d16\n"
            ".macro done\nbkpt #0\n.endm\n"
            ".macro handler name\n.thumb_func\n.global \\name\n\\name:\n.endm\n"
            f"{_vectors(defined)}\n.text\n.balign 4\n{program}\n.ltorg\n"
            f".section .bss\n.balign 8\n.global result\nresult: .space 256\n"
        )
        linker = ["-nostdlib", "-Wl,--section-start=.vectors=0x08000000", "-Wl,-Ttext=0x08000200", "-Wl,-e,reset"]
        linker += [f"-Wl,-Tbss={RAM:#x}", "-Wl,--no-warn-rwx-segments"]
        command = ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16", "-mthumb"]
        completed = subprocess.run(
            [*command, *linker, "-o", elf, source], capture_output=True, text=True, check=False, timeout=60
        )
        assert completed.returncode == 0, completed.stderr
        with elf.open("rb") as file:
            elf_file = ELFFile(file)
            self.symbols = {
                symbol.name: symbol["st_value"] & ~1
                for symbol in elf_file.get_section_by_name(".symtab").iter_symbols()
            }
            image = b""
            for name in (".vectors", ".text"):
                section = elf_file.get_section_by_name(name)
                image = image.ljust(section["sh_addr"] - FLASH, b"\xff") + section.data()
        return image.ljust(-(-len(image) // 4) * 4, b"\xff")
