# SPDX-License-Identifier: Apache-2.0
"""What went wrong on the accelerator, in words that name the instruction."""

import re

from utvm.errors import ConfigError
from utvm.runtime.vta.instructions import INSTRUCTION_BYTES, InstructionSet

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_SENT = re.compile(r"vta:(\d+): ([\w-]{22}) (-?\d+) (-?\d+) (.*)", re.DOTALL)


def explained(instructions: InstructionSet, number: int, raw: bytes, rule: str, value: int, limit: int) -> str:
    """Return a fault in words.

    Args:
        number: of the instruction in its run; -1 where it was not queued.
        raw: the instruction, or zeros.
        rule: what should have been; ``value`` and ``limit`` are what was compared, or 0 both.
    """
    compared = f" (found {value}, limit {limit})" if value or limit else ""
    where = f"VTA: instruction {number}" if number >= 0 else "VTA, while queueing"
    try:
        line = f" ({instructions.disassemble(raw)})" if any(raw) or number >= 0 else ""
    except ConfigError:
        line = f" ({raw.hex()})"
    return f"{where}{line}: {rule}{compared}"


def read(instructions: InstructionSet, words: str) -> str:
    """Return in words what an image says of a fault; anything else as it is."""
    found = _SENT.fullmatch(words)
    if not found:
        return words
    number, letters, value, limit, rule = found.groups()
    bits = sum(_LETTERS.index(letter) << 6 * place for place, letter in enumerate(letters))
    raw = (bits & ((1 << 8 * INSTRUCTION_BYTES) - 1)).to_bytes(INSTRUCTION_BYTES, "little")
    return explained(instructions, int(number) - 1, raw, rule, int(value), int(limit))
