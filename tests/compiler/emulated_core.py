# SPDX-License-Identifier: Apache-2.0
"""Run C functions on a core that QEMU emulates, in one small bare-metal program."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from convolutions import Functions, Int8

from utvm.base.process import run_tool
from utvm.compiler.kernels.records import Convolution

_FLAGS = ["-O2", "-std=gnu99", "-Wall", "-Wextra", "-Werror"]
_PATTERN = 0x5A
_GUARD = 64
_MAIN = """
#include <stddef.h>
extern uint8_t blob[];
static void say(const char *text) {{ {say} }}
static void print(const uint8_t *from, int count) {{
  static char line[129];
  while (count > 0) {{
    int at = 0;
    for (; at < 128 && count > 0; --count, ++from) {{
      line[at++] = "0123456789abcdef"[*from >> 4];
      line[at++] = "0123456789abcdef"[*from & 15];
    }}
    line[at] = 0;
    say(line);
  }}
  say("\\n");
}}
int main(void) {{
{calls}
  {leave}
  return 0;
}}
"""


@dataclass(frozen=True)
class Core:
    """An emulated core.

    Attributes:
        start: assembly at the start of the image that prepares the core and calls main.
        say, leave: C statements that print ``text`` by semihosting, and that end the emulator.
    """

    machine: str
    flags: tuple[str, ...]
    code: int
    data: int
    start: str
    say: str
    leave: str


_SEMIHOSTING = 'register int r0 __asm__("r0") = {0}; register const void *r1 __asm__("r1") = {1};' + (
    ' __asm__ volatile("{2}" : "+r"(r0) : "r"(r1) : "memory");'
)
CORTEX_M55 = Core(
    "mps3-an547",
    ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
    0,
    0x21000000,
    # CPACR: the vector unit is off after reset.
    ".word 0x20040000, begin\n.thumb_func\nbegin:\nldr r0, =0xE000ED88\nmov r1, #0xF00000\nstr r1, [r0]\n"
    "dsb\nisb\nbl main\n",
    _SEMIHOSTING.format("4", "text", "bkpt 0xAB"),
    _SEMIHOSTING.format("0x18", "(const void *)0x20026", "bkpt 0xAB"),
)

CORTEX_A9 = Core(
    "xilinx-zynq-a9",
    ("-mcpu=cortex-a9", "-marm", "-mfpu=neon-vfpv3", "-mfloat-abi=hard"),
    0x100000,
    0x200000,
    # The vector unit is off after reset.
    ".arm\nmrc p15, 0, r0, c1, c0, 2\norr r0, r0, #0xF00000\nmcr p15, 0, r0, c1, c0, 2\nisb\n"
    "mov r0, #0x40000000\n.fpu neon\nvmsr fpexc, r0\nldr sp, =0x4000000\nbl main\n",
    _SEMIHOSTING.format("4", "text", "svc 0x123456"),
    _SEMIHOSTING.format("0x18", "(const void *)0x20026", "svc 0x123456"),
)


@dataclass(frozen=True)
class Run:
    """One run of a function.

    Attributes:
        shared: an input that shares the output's memory: its index, and the output's distance before it in bytes.
    """

    number: int
    inputs: Sequence[Int8]
    shared: tuple[int, int] | None = None


def run_emulated(
    core: Core, functions: Functions, records: Sequence[Convolution], runs: Sequence[Run], directory: Path
) -> list[Int8]:
    """Run functions and return their outputs.

    Raises:
        AssertionError: a function wrote beyond its output or workspace.
    """
    blob = bytearray()
    calls: list[str] = []

    def place(content: bytes, guard_size: int = 0) -> int:
        offset = len(blob)
        blob.extend(content + bytes([_PATTERN]) * (guard_size + -(len(content) + guard_size) % 16))
        return offset

    for run in runs:
        record, printed = records[run.number], functions.printed[run.number]
        size = int(np.prod(record.output_shape))
        arrays = [*run.inputs, *functions.operators[run.number].constants]
        output, shared = -1, None
        offsets = []
        for input_index, array in enumerate(arrays):
            content = np.ascontiguousarray(array).tobytes()
            if run.shared is not None and run.shared[0] == input_index:
                before = run.shared[1]
                output = place(bytes(before) + content, max(0, size - before - len(content)) + _GUARD)
                shared = output + before
                offsets.append(shared)
            else:
                offsets.append(place(content))
        if shared is None:
            output = place(bytes(size), _GUARD)
        offsets.append(output)
        scratch = place(bytes([_PATTERN]) * (printed.workspace_bytes + _GUARD))
        if printed.workspace_bytes:
            offsets.append(scratch)
        arguments = ", ".join(f"(void *)(blob + {argument})" for argument in offsets)
        calls.append(f"  operator_{run.number}({arguments});")
        calls += [f"  print(blob + {output}, {size});"]
        calls += [f"  print(blob + {scratch + printed.workspace_bytes}, {_GUARD});"]
        calls += [f"  print(blob + {output + size}, {0 if run.shared else _GUARD});"]
    lines = _run_program(
        core, functions.text + _MAIN.format(say=core.say, calls="\n".join(calls), leave=core.leave), blob, directory
    )
    outputs = []
    guard = bytes([_PATTERN]) * _GUARD
    for run, (output_text, scratch_text, guard_text) in zip(runs, zip(*[iter(lines)] * 3, strict=True), strict=True):
        assert bytes.fromhex(scratch_text) == guard, "wrote behind its workspace"
        assert not guard_text or bytes.fromhex(guard_text) == guard, "wrote behind its output"
        shape = records[run.number].output_shape
        outputs.append(np.frombuffer(bytes.fromhex(output_text), np.int8).reshape(shape))
    return outputs


def _run_program(core: Core, program: str, blob: bytes, directory: Path) -> list[str]:
    (directory / "blob.bin").write_bytes(blob)
    (directory / "operators.c").write_text(program, encoding="utf-8")
    (directory / "start.S").write_text(
        '.syntax unified\n.section .start, "ax"\n' + core.start + ".ltorg\n.data\n.balign 16\n.global blob\nblob:\n"
        '.incbin "blob.bin"\n.balign 16\n.space 4096\n',
        encoding="utf-8",
    )
    linking = ["-nostartfiles", f"-Wl,--section-start=.start={core.code:#x}", f"-Wl,-Tdata={core.data:#x}"]
    linking += [f"-Wl,-Ttext={core.code + 0x100:#x}", f"-Wl,-e,{core.code:#x}", "-lc", "-lgcc"]
    run_tool(
        ["arm-none-eabi-gcc", *core.flags, *_FLAGS, "-o", "program.elf", "start.S", "operators.c", *linking],
        cwd=directory,
    )
    emulator = shutil.which("qemu-system-arm")
    assert emulator, "qemu-system-arm is not installed: see provision/debian.txt"
    options = ["-M", core.machine, "-display", "none", "-chardev", "stdio,id=semihosting"]
    options += ["-semihosting-config", "enable=on,target=native,chardev=semihosting", "-kernel", "program.elf"]
    output = run_tool([emulator, *options], cwd=directory)
    return output.split("\n")[:-1]
