# SPDX-License-Identifier: Apache-2.0
"""How many cycles the code of an image is estimated to take: LLVM's model of a core's pipeline, on its hot loops.

``llvm-objdump`` takes an image's functions apart. Of the innermost loops that a step can reach, the hot one has
the most multiply-accumulates, or else is the longest. ``llvm-mca`` says how many cycles it takes for an
instruction when it runs for long, and all instructions of the step are taken to be as fast as that.
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
    "what is outside of the hot loops is taken to be as fast as they are"
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
    """An innermost loop: the function that it is in, its instructions without targets of branches."""

    function: str
    instructions: tuple[str, ...]

    @property
    def heat(self) -> tuple[int, int]:
        """What makes one loop hotter than another: multiply-accumulates, then length."""
        return sum(bool(_MULTIPLY_ACCUMULATE.match(each)) for each in self.instructions), len(self.instructions)


@dataclass(frozen=True)
class LoopRate:
    """A step's hot loop: the function that it is in, and its cycles for each instruction."""

    function: str
    cycles_per_instruction: float


def check_pipeline(cpu: Cpu) -> None:
    """Refuse a core whose pipeline LLVM does not model."""
    if not cpu.pipeline:
        raise ConfigError(
            f"cycles of {cpu.core} cannot be estimated: LLVM has no model of that core's own pipeline",
            "leave --estimate out; toolchains/ says which cores have one (pipeline)",
        )
    llvm_version()


def llvm_version() -> str:
    """Return which LLVM it is that estimates."""
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            raise ToolchainError(f"{tool} is not installed", _HINT)
    said = run_tool([_TOOLS[0], "--version"], error=ToolchainError)
    match = re.search(r"version (\S+)", said)
    return match[1] if match else "unknown"


def loop_rates(image: Firmware, functions: Sequence[str]) -> dict[str, LoopRate]:
    """Return the hot loop of each function that has one, in itself or in what it calls."""
    cpu = image.board.cpu_row
    command = [_TOOLS[1], "-d", "--no-show-raw-insn", f"--triple={cpu.pipeline}", f"--mcpu={cpu.core}"]
    listing = run_tool([*command, image.elf], error=ToolchainError)
    code = _functions(listing)
    rates: dict[Loop, float | None] = {}
    found = {}
    for function in functions:
        loops = [loop for name in _reached(code, function) for loop in _loops(name, code[name])]
        if not loops:
            continue
        hot = max(loops, key=lambda loop: loop.heat)
        if hot not in rates:
            rates[hot] = _cycles_per_instruction(hot, cpu)
        if (rate := rates[hot]) is not None:
            found[function] = LoopRate(hot.function, rate)
    return found


def _functions(listing: str) -> dict[str, list[tuple[int, str, str]]]:
    """Return each function's instructions: address, mnemonic, operands. What is data is left out."""
    code: dict[str, list[tuple[int, str, str]]] = {}
    current: list[tuple[int, str, str]] = []
    for line in listing.splitlines():
        if match := _FUNCTION.fullmatch(line):
            # Data between instructions have a heading of their own.
            if not match[1].startswith("$"):
                current = code.setdefault(match[1], [])
        elif (match := _INSTRUCTION.fullmatch(line.partition("@")[0])) and not match[2].startswith((".", "<")):
            current.append((int(match[1], 16), match[2], match[3].strip()))
    return code


def _reached(code: Mapping[str, Sequence[tuple[int, str, str]]], function: str) -> list[str]:
    """Return a function, and what it calls, and what that calls."""
    found = [function] if function in code else []
    for name in found:
        for _, _, operands in code[name]:
            match = _TARGET.search(operands)
            if match and not match[3] and match[2] in code and match[2] not in found:
                found.append(match[2])
    return found


def _loops(function: str, code: Sequence[tuple[int, str, str]]) -> list[Loop]:
    """Return the innermost loops of a function: from where a branch goes back to, up to that branch."""
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
    """Return what LLVM says of a loop that runs for long; None where it does not read all of its instructions."""
    state = ".thumb" if cpu.breakpoint_kind == 2 else ".arm"
    text = "\n".join([".syntax unified", state, *_unconditional(loop.instructions), "2:", ""])
    command = [_TOOLS[0], f"-mtriple={cpu.pipeline}", f"-mcpu={cpu.core}", "--all-views=false", "--summary-view"]
    try:
        said = run_tool(command, stdin=text, error=ToolchainError)
    except ToolchainError:
        return None
    match = _RATE.search(said)
    return int(match[2]) / int(match[1]) if match else None


def _unconditional(instructions: Sequence[str]) -> list[str]:
    """Return a loop without Thumb's IT instructions, which LLVM does not model: they take a cycle, as NOP does."""
    plain = []
    conditional = 0
    for each in instructions:
        mnemonic, _, operands = each.partition(" ")
        if _IT_BLOCK.fullmatch(mnemonic):
            conditional = len(mnemonic) - 1
            plain.append("nop")
        elif conditional:
            conditional -= 1
            plain.append(f"{_CONDITION.sub('', mnemonic)} {operands}")
        else:
            plain.append(each)
    return plain
