# SPDX-License-Identifier: Apache-2.0
"""Cycle estimates of an image's code, from LLVM's pipeline models and its hot loops.

``llvm-objdump`` disassembles the image. The hot loop of a step is the innermost loop with the most
multiply-accumulates, or else the longest. ``llvm-mca`` gives its cycles per instruction, and all instructions of
the step are assumed to be as fast.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utvm.base.process.run import run_tool
from utvm.errors import ConfigError, ToolchainError
from utvm.firmware.image import Firmware
from utvm.toolchain.compiler import Cpu

LEAVES_OUT = (
    "wait states of flash and memory, caches, contention on buses, mispredicted branches, interrupts; "
    "code outside of the hot loops is assumed to be as fast as they are"
)
_FUNCTION = re.compile(r"[0-9a-f]+ <([^>]+)>:")
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\s+(\S+)\s*([^@]*)")
_TARGET = re.compile(r"0x([0-9a-f]+) <([^>+]+)(\+0x[0-9a-f]+)?>")
_MULTIPLY_ACCUMULATE = re.compile(r"(?:sml[as]|umla|mla|mls|vmla|vmls|vfma|vfms)")
_IT_BLOCK = re.compile(r"it[te]{0,3}")
_CONDITION = re.compile(r"(?:eq|ne|[ch]s|cc|lo|mi|pl|v[sc]|hi|ls|ge|lt|gt|le)(?=\.|$)")
_RATE = re.compile(r"Instructions:\s+(\d+)\nTotal Cycles:\s+(\d+)")
_TOOLS = ("llvm-mca", "llvm-objdump")
_HINT = "apt-get install llvm; without --estimate it is not needed"


@dataclass(frozen=True)
class Loop:
    function: str
    instructions: tuple[str, ...]

    @property
    def heat(self) -> tuple[int, int]:
        """Order of loops: number of multiply-accumulates, then length."""
        return sum(bool(_MULTIPLY_ACCUMULATE.match(line)) for line in self.instructions), len(self.instructions)


@dataclass(frozen=True)
class LoopRate:
    """Function and cycles per instruction of a step's hot loop."""

    function: str
    cycles_per_instruction: float


def check_pipeline(cpu: Cpu) -> None:
    """Refuse a core without a pipeline model in LLVM."""
    if not cpu.pipeline:
        raise ConfigError(
            f"cycles of {cpu.core} cannot be estimated: LLVM has no model of that core's own pipeline",
            "leave --estimate out; toolchains/ says which cores have one (pipeline)",
        )
    llvm_version()


def llvm_version() -> str:
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            raise ToolchainError(f"{tool} is not installed", _HINT)
    output = run_tool([_TOOLS[0], "--version"], error=ToolchainError)
    match = re.search(r"version (\S+)", output)
    return match[1] if match else "unknown"


def loop_rates(image: Firmware, functions: Sequence[str]) -> dict[str, LoopRate]:
    cpu = image.board.cpu_row
    command = [_TOOLS[1], "-d", "--no-show-raw-insn", f"--triple={cpu.pipeline}", f"--mcpu={cpu.core}"]
    listing = run_tool([*command, image.elf], error=ToolchainError)
    code = _functions(listing)
    rates: dict[Loop, float | None] = {}
    result = {}
    for function in functions:
        loops = [loop for name in _reachable(code, function) for loop in _loops(name, code[name])]
        if not loops:
            continue
        hot = max(loops, key=lambda loop: loop.heat)
        if hot not in rates:
            rates[hot] = _cycles_per_instruction(hot, cpu)
        if (rate := rates[hot]) is not None:
            result[function] = LoopRate(hot.function, rate)
    return result


def _functions(listing: str) -> dict[str, list[tuple[int, str, str]]]:
    code: dict[str, list[tuple[int, str, str]]] = {}
    current: list[tuple[int, str, str]] = []
    for line in listing.splitlines():
        if match := _FUNCTION.fullmatch(line):
            # $d marks data between instructions.
            if not match[1].startswith("$"):
                current = code.setdefault(match[1], [])
        elif (match := _INSTRUCTION.fullmatch(line.partition("@")[0])) and not match[2].startswith((".", "<")):
            current.append((int(match[1], 16), match[2], match[3].strip()))
    return code


def _reachable(code: Mapping[str, Sequence[tuple[int, str, str]]], function: str) -> list[str]:
    """A function and its direct and indirect callees."""
    reachable = [function] if function in code else []
    for name in reachable:
        for _, _, operands in code[name]:
            match = _TARGET.search(operands)
            if match and not match[3] and match[2] in code and match[2] not in reachable:
                reachable.append(match[2])
    return reachable


def _loops(function: str, code: Sequence[tuple[int, str, str]]) -> list[Loop]:
    """Innermost loops of a function: from the target of a backward branch to that branch."""
    first = code[0][0] if code else 0
    spans = []
    for address, mnemonic, operands in code:
        match = _TARGET.search(operands)
        if match and mnemonic.startswith(("b", "cb")) and first <= int(match[1], 16) < address:
            spans.append((int(match[1], 16), address))
    innermost = [
        (begin, end)
        for begin, end in spans
        if not any(begin <= other[0] and other[1] <= end and other != (begin, end) for other in spans)
    ]
    return [
        Loop(
            function,
            tuple(f"{name} {_TARGET.sub('2f', words)}" for at, name, words in code if begin <= at <= end),
        )
        for begin, end in innermost
    ]


def _cycles_per_instruction(loop: Loop, cpu: Cpu) -> float | None:
    """LLVM's estimate for many iterations of a loop; None if it does not know all instructions."""
    state = ".thumb" if cpu.breakpoint_kind == 2 else ".arm"
    text = "\n".join([".syntax unified", state, *_unconditional(loop.instructions), "2:", ""])
    command = [_TOOLS[0], f"-mtriple={cpu.pipeline}", f"-mcpu={cpu.core}", "--all-views=false", "--summary-view"]
    try:
        output = run_tool(command, stdin=text, error=ToolchainError)
    except ToolchainError:
        return None
    match = _RATE.search(output)
    return int(match[2]) / int(match[1]) if match else None


def _unconditional(instructions: Sequence[str]) -> list[str]:
    """Replace IT instructions of Thumb, which LLVM does not model, by NOPs, which take a cycle, too."""
    plain = []
    conditional = 0
    for line in instructions:
        mnemonic, _, operands = line.partition(" ")
        if _IT_BLOCK.fullmatch(mnemonic):
            conditional = len(mnemonic) - 1
            plain.append("nop")
        elif conditional:
            conditional -= 1
            plain.append(f"{_CONDITION.sub('', mnemonic)} {operands}")
        else:
            plain.append(line)
    return plain
