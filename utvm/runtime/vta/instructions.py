# SPDX-License-Identifier: Apache-2.0
"""VTA's instructions: one table of their fields, and what it means to write, read and name them.

An instruction has 128 bits, a micro-op 32; both are little-endian, their fields stand from the lowest bit on, and
no field lies across bit 64. Widths depend on the configuration, so the table is made for one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from utvm.errors import ConfigError
from utvm.runtime.vta.configuration import MEMORIES, Configuration

OPCODES = {"load": 0, "store": 1, "gemm": 2, "finish": 3, "alu": 4}
OPERATIONS = {"MIN": 0, "MAX": 1, "ADD": 2, "SHR": 3}
TOKENS = ("pop_prev", "pop_next", "push_prev", "push_next")
INSTRUCTION_BYTES = 16
UOP_BYTES = 4

_SECOND_WORD = 64
_LOOPS = ("out", "in")
_NAMES = {"mem": {name: number for number, name in enumerate(MEMORIES)}, "op": OPERATIONS}
# What the hardware's own sources call them.
_OTHER_NAMES = {
    **{f"{token}_dep": token for token in TOKENS},
    "memory_type": "mem",
    "sram_base": "sram",
    "dram_base": "dram",
    **{f"{axis}_pad_{side}": f"{axis}pad{side}" for axis in "xy" for side in "01"},
    "reset_reg": "reset",
    **{f"{what}_factor_{loop}": f"{what}_{loop}" for what in ("dst", "src", "wgt") for loop in ("out", "in")},
    "alu_opcode": "op",
    "dst": "dst_idx",
    "src": "src_idx",
    "wgt": "wgt_idx",
}


@dataclass(frozen=True)
class Field:
    """A field of an instruction.

    Attributes:
        low: its lowest bit.
        names: what its values are called, where they have names.
        signed: whether it is a number in two's complement.
    """

    name: str
    low: int
    width: int
    names: Mapping[str, int] | None = None
    signed: bool = False

    def bits(self, value: int, kind: str) -> int:
        """Return a value where it stands in an instruction."""
        least, limit = (-(1 << self.width - 1), 1 << self.width - 1) if self.signed else (0, 1 << self.width)
        if not least <= value < limit:
            raise ConfigError(f"{kind}: {self.name}={value} is not in {least}..{limit - 1}, its {self.width} bits")
        return (value & (1 << self.width) - 1) << self.low

    def value(self, bits: int) -> int:
        """Return the value in an instruction."""
        found = bits >> self.low & (1 << self.width) - 1
        return found - (1 << self.width) if self.signed and found >> self.width - 1 else found

    def parse(self, text: str, kind: str) -> int:
        """Read a value: a number, or a name of one."""
        if self.names and text.upper() in self.names:
            return self.names[text.upper()]
        try:
            return int(text, 0)
        except ValueError:
            known = f", and none of {', '.join(self.names)}" if self.names else ""
            raise ConfigError(f"{kind}: {self.name}={text!r} is no number{known}") from None

    def spelled(self, value: int) -> str:
        """Return a value as a reader wants it: by name, where it has one."""
        called = {number: name for name, number in (self.names or {}).items()}
        return called.get(value, str(value))


class InstructionSet:
    """The instructions of one configuration.

    Attributes:
        fields: by kind (``load``, ``store``, ``gemm``, ``alu``, ``finish``, ``uop``), from the lowest bit on; the
            opcode is not among them.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration

    @cached_property
    def fields(self) -> dict[str, tuple[Field, ...]]:
        """The table."""
        depth = {name: memory.log_depth for name, memory in self.configuration.memories.items()}
        uop, inp, wgt, acc = (depth[name] for name in ("UOP", "INP", "WGT", "ACC"))
        head = [(token, 1) for token in TOKENS]
        move = [*head, ("mem", 3), ("sram", 16), ("dram", 32)]
        tile = [("y_size", 16), ("x_size", 16), ("x_stride", 16)]
        tile += [("ypad0", 4), ("ypad1", 4), ("xpad0", 4), ("xpad1", 4)]
        loops = [*head, ("reset", 1), ("uop_bgn", uop), ("uop_end", uop + 1), ("iter_out", 14), ("iter_in", 14)]
        gemm = [
            (f"{what}_{loop}", bits)
            for what, bits in (("dst", acc), ("src", inp), ("wgt", wgt))
            for loop in _LOOPS
        ]
        alu = [(f"{what}_{loop}", acc) for what in ("dst", "src") for loop in _LOOPS]
        alu += [("op", 3), ("use_imm", 1), ("imm", 16)]
        return {
            "load": (*_placed(move, 3), *_placed(tile, _SECOND_WORD)),
            "store": (*_placed(move, 3), *_placed(tile, _SECOND_WORD)),
            "gemm": (*_placed(loops, 3), *_placed(gemm, _SECOND_WORD)),
            "alu": (*_placed(loops, 3), *_placed(alu, _SECOND_WORD)),
            "finish": _placed(head, 3),
            "uop": _placed([("dst_idx", acc), ("src_idx", max(acc, inp)), ("wgt_idx", wgt)], 0),
        }

    def encode(self, kind: str, values: Mapping[str, int]) -> bytes:
        """Write an instruction or a micro-op; fields that are not named are 0."""
        fields = {field.name: field for field in self._of(kind)}
        bits = OPCODES.get(kind, 0)
        for name, value in values.items():
            if name not in fields:
                raise ConfigError(f"{kind}: has no field {name!r}", f"fields: {', '.join(fields)}")
            bits |= fields[name].bits(value, kind)
        return bits.to_bytes(UOP_BYTES if kind == "uop" else INSTRUCTION_BYTES, "little")

    def decode(self, raw: bytes) -> tuple[str, dict[str, int]]:
        """Read an instruction (16 bytes) or a micro-op (4).

        Returns:
            Its kind, and the values of all its fields.
        """
        bits = int.from_bytes(raw, "little")
        if len(raw) == UOP_BYTES:
            kind = "uop"
        elif len(raw) == INSTRUCTION_BYTES:
            found = next((name for name, opcode in OPCODES.items() if opcode == bits & 7), None)
            if found is None:
                raise ConfigError(f"{raw.hex()}: opcode {bits & 7} is none of VTA's")
            kind = found
        else:
            raise ConfigError(f"{raw.hex()}: has {len(raw)} bytes, an instruction has 16 and a micro-op 4")
        values = {field.name: field.value(bits) for field in self._of(kind)}
        if self.encode(kind, values) != raw:
            raise ConfigError(f"{raw.hex()}: has bits set that belong to no field of {kind}")
        return kind, values

    def assemble(self, line: str) -> bytes:
        """Write what a line says: a kind, and fields as ``name=value``.

        The names of the hardware's own sources (``sram_base``, ``dst_factor_out``) are understood too.
        """
        kind, *words = line.split() or [""]
        kind = kind.lower()
        fields = {field.name: field for field in self._of(kind)}
        values: dict[str, int] = {}
        for word in words:
            given, _, text = word.partition("=")
            name = _OTHER_NAMES.get(given, given)
            if not text:
                raise ConfigError(f"{kind}: {word!r} is not NAME=VALUE")
            if name in values:
                raise ConfigError(f"{kind}: {name} is given twice")
            values[name] = fields[name].parse(text, kind) if name in fields else 0
        return self.encode(kind, values)

    def disassemble(self, raw: bytes) -> str:
        """Return the line that :meth:`assemble` makes the same bytes of; tokens are named where there are any."""
        kind, values = self.decode(raw)
        said = [
            f"{field.name}={field.spelled(values[field.name])}"
            for field in self._of(kind)
            if values[field.name] or field.name not in TOKENS
        ]
        return " ".join([kind, *said])

    def _of(self, kind: str) -> tuple[Field, ...]:
        if kind not in self.fields:
            raise ConfigError(f"{kind!r} is no kind of instruction", f"kinds: {', '.join(self.fields)}")
        return self.fields[kind]


def _placed(rows: list[tuple[str, int]], low: int) -> tuple[Field, ...]:
    """Give fields their places, one after the other; an index into a buffer of one element has no bits."""
    made = []
    for name, width in rows:
        made.append(Field(name, low, width, _NAMES.get(name), signed=name == "imm"))
        low += width
    return tuple(made)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_SENT = re.compile(r"vta:(\d+): ([\w-]{22}) (-?\d+) (-?\d+) (.*)", re.DOTALL)


def explain_fault(instructions: InstructionSet, number: int, raw: bytes, rule: str, value: int, limit: int) -> str:
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
    return explain_fault(instructions, int(number) - 1, raw, rule, int(value), int(limit))
