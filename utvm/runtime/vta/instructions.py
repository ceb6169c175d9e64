# SPDX-License-Identifier: Apache-2.0
"""VTA's instructions: one table of their fields; encoder, decoder, assembler, disassembler and fault messages.

An instruction has 128 bits, a micro-op 32. Both are little-endian, fields start at the lowest bit, and no field
crosses bit 64. Widths depend on the configuration.
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
# Names in the hardware's own sources.
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
    """A field of an instruction: lowest bit, width, names of values, and whether it is two's complement."""

    name: str
    low: int
    width: int
    names: Mapping[str, int] | None = None
    signed: bool = False

    def bits(self, value: int, kind: str) -> int:
        """A value, shifted to its place in an instruction."""
        least, limit = (-(1 << self.width - 1), 1 << self.width - 1) if self.signed else (0, 1 << self.width)
        if not least <= value < limit:
            raise ConfigError(f"{kind}: {self.name}={value} is not in {least}..{limit - 1}, its {self.width} bits")
        return (value & (1 << self.width) - 1) << self.low

    def value(self, bits: int) -> int:
        """The field's value in an instruction."""
        value = bits >> self.low & (1 << self.width) - 1
        return value - (1 << self.width) if self.signed and value >> self.width - 1 else value

    def parse(self, text: str, kind: str) -> int:
        """Parse a value: a number, or one of the names."""
        if self.names and text.upper() in self.names:
            return self.names[text.upper()]
        try:
            return int(text, 0)
        except ValueError:
            known = f", and none of {', '.join(self.names)}" if self.names else ""
            raise ConfigError(f"{kind}: {self.name}={text!r} is not a number{known}") from None

    def format(self, value: int) -> str:
        """A value as text, by name if it has one."""
        names = {number: name for name, number in (self.names or {}).items()}
        return names.get(value, str(value))


class InstructionSet:
    """The instructions of one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration

    @cached_property
    def fields(self) -> dict[str, tuple[Field, ...]]:
        """Fields of each kind of instruction, lowest first, without the opcode."""
        depth = {name: memory.log_depth for name, memory in self.configuration.memories.items()}
        uop, inp, wgt, acc = (depth[name] for name in ("UOP", "INP", "WGT", "ACC"))
        head = [(token, 1) for token in TOKENS]
        move = [*head, ("mem", 3), ("sram", 16), ("dram", 32)]
        tile = [("y_size", 16), ("x_size", 16), ("x_stride", 16)]
        tile += [("ypad0", 4), ("ypad1", 4), ("xpad0", 4), ("xpad1", 4)]
        loops = [*head, ("reset", 1), ("uop_bgn", uop), ("uop_end", uop + 1), ("iter_out", 14), ("iter_in", 14)]
        gemm = [
            (f"{what}_{loop}", bits) for what, bits in (("dst", acc), ("src", inp), ("wgt", wgt)) for loop in _LOOPS
        ]
        alu = [(f"{what}_{loop}", acc) for what in ("dst", "src") for loop in _LOOPS]
        alu += [("op", 3), ("use_imm", 1), ("imm", 16)]
        transfer, tail = _place(move, 3), _SECOND_WORD
        return {
            "load": (*transfer, *_place(tile, tail)),
            "store": (*transfer, *_place(tile, tail)),
            "gemm": (*_place(loops, 3), *_place(gemm, tail)),
            "alu": (*_place(loops, 3), *_place(alu, tail)),
            "finish": _place(head, 3),
            "uop": _place([("dst_idx", acc), ("src_idx", max(acc, inp)), ("wgt_idx", wgt)], 0),
        }

    def encode(self, kind: str, values: Mapping[str, int]) -> bytes:
        """Encode an instruction or a micro-op; other fields are 0."""
        fields = {field.name: field for field in self._of(kind)}
        bits = OPCODES.get(kind, 0)
        for name, value in values.items():
            if name not in fields:
                raise ConfigError(f"{kind}: has no field {name!r}", f"fields: {', '.join(fields)}")
            bits |= fields[name].bits(value, kind)
        return bits.to_bytes(UOP_BYTES if kind == "uop" else INSTRUCTION_BYTES, "little")

    def decode(self, raw: bytes) -> tuple[str, dict[str, int]]:
        """Kind and fields of an instruction (16 bytes) or a micro-op (4)."""
        bits = int.from_bytes(raw, "little")
        if len(raw) not in (UOP_BYTES, INSTRUCTION_BYTES):
            raise ConfigError(f"{raw.hex()}: has {len(raw)} bytes, an instruction has 16 and a micro-op 4")
        kinds = {opcode: kind for kind, opcode in OPCODES.items()}
        kind = "uop" if len(raw) == UOP_BYTES else kinds.get(bits & 7)
        if kind is None:
            raise ConfigError(f"{raw.hex()}: opcode {bits & 7} is none of VTA's")
        values = {field.name: field.value(bits) for field in self._of(kind)}
        if self.encode(kind, values) != raw:
            raise ConfigError(f"{raw.hex()}: has bits set that belong to no field of {kind}")
        return kind, values

    def assemble(self, line: str) -> bytes:
        """Assemble a line, a kind and ``name=value`` fields; also by names of the hardware's own sources."""
        kind, *words = line.split() or [""]
        kind = kind.lower()
        fields = {field.name: field for field in self._of(kind)}
        values: dict[str, int] = {}
        for word in words:
            name, _, text = word.partition("=")
            name = _OTHER_NAMES.get(name, name)
            if not text:
                raise ConfigError(f"{kind}: {word!r} is not NAME=VALUE")
            if name in values:
                raise ConfigError(f"{kind}: {name} is given twice")
            values[name] = fields[name].parse(text, kind) if name in fields else 0
        return self.encode(kind, values)

    def disassemble(self, raw: bytes) -> str:
        """The line for :meth:`assemble`; tokens that are 0 are left out."""
        kind, values = self.decode(raw)
        words = [
            f"{field.name}={field.format(values[field.name])}"
            for field in self._of(kind)
            if values[field.name] or field.name not in TOKENS
        ]
        return " ".join([kind, *words])

    def _of(self, kind: str) -> tuple[Field, ...]:
        if kind not in self.fields:
            raise ConfigError(f"{kind!r} is not a kind of instruction", f"kinds: {', '.join(self.fields)}")
        return self.fields[kind]


def _place(rows: list[tuple[str, int]], low: int) -> tuple[Field, ...]:
    """Place fields one after the other; an index into a buffer of one element has no bits."""
    fields = []
    for name, width in rows:
        fields.append(Field(name, low, width, _NAMES.get(name), signed=name == "imm"))
        low += width
    return tuple(fields)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_MESSAGE = re.compile(r"vta:(\d+): ([\w-]{22}) (-?\d+) (-?\d+) (.*)", re.DOTALL)


def explain_fault(instructions: InstructionSet, number: int, raw: bytes, rule: str, value: int, limit: int) -> str:
    """Describe a fault of instruction ``number`` (-1: not queued); ``raw`` and compared numbers may be 0."""
    compared = f" (found {value}, limit {limit})" if value or limit else ""
    where = f"VTA: instruction {number}" if number >= 0 else "VTA, while queueing"
    try:
        line = f" ({instructions.disassemble(raw)})" if any(raw) or number >= 0 else ""
    except ConfigError:
        line = f" ({raw.hex()})"
    return f"{where}{line}: {rule}{compared}"


def explain_message(instructions: InstructionSet, message: str) -> str:
    """Describe a fault that an image reports; another message is returned unchanged."""
    match = _MESSAGE.fullmatch(message)
    if not match:
        return message
    number, letters, value, limit, rule = match.groups()
    bits = sum(_LETTERS.index(letter) << 6 * place for place, letter in enumerate(letters))
    raw = (bits & ((1 << 8 * INSTRUCTION_BYTES) - 1)).to_bytes(INSTRUCTION_BYTES, "little")
    return explain_fault(instructions, int(number) - 1, raw, rule, int(value), int(limit))
