# SPDX-License-Identifier: Apache-2.0
"""Run C functions on an emulated Cortex-M7 (Unicorn), compiled with the cross compiler."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import unicorn
from convolutions import Functions, Int8
from elftools.elf.elffile import ELFFile
from unicorn import arm_const

from utvm.base.process import run_tool
from utvm.compiler.kernels.records import Convolution

_CODE, _RAM, _STACK, _END = 0x10000, 0x20000000, 0x30000000, 0x8000
_SIZE = 1 << 20
_FLAGS = ["-mthumb", "-mfloat-abi=soft", "-O2", "-std=c99", "-Wall", "-Wextra", "-Werror"]
_REGISTERS = [arm_const.UC_ARM_REG_R0, arm_const.UC_ARM_REG_R1, arm_const.UC_ARM_REG_R2, arm_const.UC_ARM_REG_R3]


def run_on_cortex_m7(
    functions: Functions,
    records: Sequence[Convolution],
    inputs: Sequence[Sequence[Int8]],
    directory: Path,
    code: str = "cortex-m7",
) -> list[Int8]:
    """Run each function once and return its output.

    Args:
        code: the target core of the compiler.

    Raises:
        AssertionError: a function changed a callee-saved register.
    """
    machine, addresses = _machine(functions, directory, code)
    saved = [getattr(arm_const, f"UC_ARM_REG_R{number}") for number in range(4, 12)]
    outputs = []
    for number, record in enumerate(records):
        arguments, address = [], _RAM
        constants = functions.operators[number].constants
        for array in [*inputs[number], *constants, np.zeros(record.output_shape, np.int8)]:
            machine.mem_write(address, np.ascontiguousarray(array).tobytes())
            arguments.append(address)
            address += -(-array.nbytes // 16) * 16
        output = arguments[-1]
        arguments.append(address)
        for register, value in zip(_REGISTERS, arguments, strict=False):
            machine.reg_write(register, value)
        on_stack = np.array(arguments[4:], np.uint32).tobytes()
        stack = _STACK + _SIZE // 2
        machine.mem_write(stack, on_stack)
        machine.reg_write(arm_const.UC_ARM_REG_SP, stack)
        machine.reg_write(arm_const.UC_ARM_REG_LR, _END | 1)
        for register in saved:
            machine.reg_write(register, register * 3)
        machine.emu_start(addresses[f"operator_{number}"] | 1, _END)
        assert [machine.reg_read(register) for register in saved] == [register * 3 for register in saved]
        assert machine.reg_read(arm_const.UC_ARM_REG_SP) == stack
        content = bytes(machine.mem_read(output, int(np.prod(record.output_shape))))
        outputs.append(np.frombuffer(content, np.int8).reshape(record.output_shape))
    return outputs


def _machine(functions: Functions, directory: Path, code: str) -> tuple[unicorn.Uc, dict[str, int]]:
    source, program = directory / "arm.c", directory / "arm.elf"
    source.write_text(functions.text, encoding="utf-8")
    linking = ["-nostartfiles", f"-Wl,-Ttext={_CODE:#x}", "-Wl,-e,operator_0", "-lc", "-lgcc"]
    run_tool(["arm-none-eabi-gcc", f"-mcpu={code}", *_FLAGS, "-o", program, source, *linking])
    machine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    machine.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M7)
    machine.mem_map(0, _SIZE)
    machine.mem_map(_RAM, _SIZE)
    machine.mem_map(_STACK, _SIZE)
    with program.open("rb") as file:
        elf = ELFFile(file)
        for segment in elf.iter_segments("PT_LOAD"):
            if _CODE <= segment["p_vaddr"] < _SIZE:
                machine.mem_write(segment["p_vaddr"], segment.data())
        symbols = {symbol.name: symbol["st_value"] & ~1 for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
    return machine, symbols
