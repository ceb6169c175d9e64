# SPDX-License-Identifier: Apache-2.0
"""The peripherals of a chip without a model: registers that store values, and a note of the first access.

A chip's peripherals are a text. Its first line names the chip; each further line is a peripheral: name, address,
size, its group, interrupt lines (``-`` for none), and registers. All numbers but the lines are hexadecimal::

    STM32F746
    TIM2 40000000 400 TIM 28 0-14 18=ff 1c:r 20:w
    TIM3 40000400 400 TIM 29 @TIM2

A register is an offset, or the first and last offset of a run of words; ``=`` precedes its value after a reset,
``:r`` ignores writes, ``:w`` reads as zero. ``@`` names a peripheral with the same registers. Between registers,
words read as zero and ignore writes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from utvm.errors import ConfigError
from utvm.virtual.bus import PAGE, Bus, Device

_RUN_BYTES = 0x10000  # a device of registers ends at such a boundary
_PRIVATE = range(0xE0000000, 0xE0040000)  # the core's own (ARM DDI 0403E, B3.1)
_REGISTER = re.compile(r"([0-9a-f]+)(?:-([0-9a-f]+))?(?:=([0-9a-f]+))?(?::([rw]))?")


@dataclass(frozen=True)
class RegisterBlock:
    """A peripheral. ``registers`` are values after a reset and accesses (``r``, ``w`` or empty) by offset."""

    name: str
    address: int
    size: int
    group: str
    irqs: tuple[int, ...]
    registers: dict[int, tuple[int, str]] = field(repr=False)


@dataclass(frozen=True)
class ChipMap:
    """The peripherals of a chip."""

    chip: str
    blocks: tuple[RegisterBlock, ...]


def parse(text: str) -> ChipMap:
    """Parse a chip's peripherals."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    blocks: dict[str, RegisterBlock] = {}
    for number, words in enumerate(lines[1:], 2):
        with ConfigError.on(
            (ValueError, KeyError),
            f"peripherals: row {number}: {' '.join(words)[:60]!r} is not a peripheral",
            "NAME ADDRESS SIZE GROUP IRQS REGISTERS, as board.new --svd writes them",
        ):
            name, address, size, group, irqs, *registers = words
            if registers and registers[0].startswith("@"):
                values = blocks[registers[0][1:]].registers
            else:
                values = dict(pair for word in registers for pair in _registers(word))
            numbers = () if irqs == "-" else tuple(map(int, irqs.split(",")))
            blocks[name] = RegisterBlock(name, int(address, 16), int(size, 16), group, numbers, values)
    return ChipMap(lines[0][0] if lines else "", tuple(blocks.values()))


def _registers(word: str) -> Iterator[tuple[int, tuple[int, str]]]:
    match = _REGISTER.fullmatch(word)
    if match is None:
        raise ValueError(word)
    first, last, value, access = match.groups()
    for offset in range(int(first, 16), int(last or first, 16) + 4, 4):
        yield offset, (int(value or "0", 16), access or "")


class Blocks(Device):
    """Peripherals without a model; ``on_touch`` is called at the core's first access to one."""

    def __init__(
        self, chip: ChipMap, address: int, size: int, on_touch: Callable[[str, int], None] = lambda name, at: None
    ) -> None:
        self._address = address
        self.size = size
        self._on_touch = on_touch
        self._blocks = [block for block in chip.blocks if address - PAGE < block.address + block.size]
        self._untouched = {block.name for block in self._blocks}
        self._after_reset: dict[int, int] = {}
        self._access: dict[int, str] = {}
        for block in reversed(self._blocks):  # of two peripherals at an address, the first one counts
            for offset, (value, access) in block.registers.items():
                self._after_reset[block.address + offset - address] = value
                self._access[block.address + offset - address] = access
        self.reset()

    def reset(self) -> None:
        self.values = dict(self._after_reset)

    def touch(self, offset: int) -> None:
        if not self._untouched:
            return
        at = self._address + offset
        inside = [block for block in self._blocks if block.address <= at]
        block = max(inside, key=lambda block: block.address, default=None)
        if block and block.name in self._untouched:
            self._untouched.discard(block.name)
            self._on_touch(block.name, at)

    def load(self, offset: int) -> int:
        return 0 if self._access.get(offset) == "w" else self.values.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if self._access.get(offset, "r") != "r":
            self.values[offset] = self.values[offset] & ~lanes | value


def free_runs(chip: ChipMap, bus: Bus) -> Iterator[tuple[int, int]]:
    """Address and size of runs of pages of a chip's peripherals that neither memory nor a device takes."""
    pages: set[int] = set()
    for block in chip.blocks:
        pages.update(range(block.address & -PAGE, block.address + block.size, PAGE))
    free = sorted(page for page in pages if page not in _PRIVATE and not bus.overlaps(page, PAGE))
    start = end = -1
    for page in [*free, -1]:
        if page != end or page % _RUN_BYTES == 0:
            if start >= 0:
                yield start, end - start
            start = page
        end = page + PAGE
