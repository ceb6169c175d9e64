# SPDX-License-Identifier: Apache-2.0
"""Configuration of a VTA: ``vta_config.json``, which has the logarithms (base 2) of all sizes."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from utvm.base.storage.config import Record, validate
from utvm.base.storage.files import read_text
from utvm.errors import ConfigError

MEMORIES = ("UOP", "WGT", "INP", "ACC", "OUT", "ACC_8BIT")
"""On-chip memories in the order of their numbers in instructions."""
DEFAULT = Path(__file__).with_name("vta_config.json")
VARIABLE = "UTVM_VTA_CONFIG"
"""Environment variable that names another configuration file."""

_HINT = f"for an example, see utvm/runtime/vta/{DEFAULT.name}"
_WORD_BITS = 64
_UOP_BITS = 32
_HEAD_BITS = 8  # Opcode, four tokens, and whether a GEMM resets.
_LOOP_BITS = 2 * 14
_SRAM_BITS = 16


class ConfigurationFile(Record):
    """Contents of ``vta_config.json``, all log2: widths in bits, buffers in bytes, block side and batch rows."""

    TARGET: Literal["sim", "tsim", "pynq"]
    HW_VER: str
    LOG_INP_WIDTH: Literal[3]
    LOG_WGT_WIDTH: Literal[3]
    LOG_ACC_WIDTH: Literal[5]
    LOG_BATCH: int = Field(ge=0, le=6, strict=True)
    LOG_BLOCK: int = Field(ge=0, le=6, strict=True)
    LOG_UOP_BUFF_SIZE: int = Field(ge=2, le=30, strict=True)
    LOG_INP_BUFF_SIZE: int = Field(ge=0, le=30, strict=True)
    LOG_WGT_BUFF_SIZE: int = Field(ge=0, le=30, strict=True)
    LOG_ACC_BUFF_SIZE: int = Field(ge=2, le=30, strict=True)


@dataclass(frozen=True)
class OnChipMemory:
    """An on-chip memory; ``element_bytes`` is an element's size in DRAM, ``sram_bytes`` on the chip."""

    name: str
    number: int
    element_bytes: int
    sram_bytes: int
    log_depth: int

    @property
    def depth(self) -> int:
        return 1 << self.log_depth


@dataclass(frozen=True)
class Configuration:
    """A valid configuration."""

    file: ConfigurationFile
    where: str = "vta_config.json"

    def __post_init__(self) -> None:
        if problems := "; ".join(f"{key}: {rule}" for key, rule in self._problems()):
            raise ConfigError(f"{self.where}: {problems}", _HINT)

    @property
    def batch(self) -> int:
        return 1 << self.file.LOG_BATCH

    @property
    def block(self) -> int:
        return 1 << self.file.LOG_BLOCK

    @cached_property
    def memories(self) -> dict[str, OnChipMemory]:
        """The memories by name. ACC_8BIT is ACC, filled with sign-extended int8 values."""
        file = self.file
        vector = file.LOG_BATCH + file.LOG_BLOCK
        inp, wgt, acc = vector, 2 * file.LOG_BLOCK, vector + 2  # Logarithms of an element's bytes.
        rows = {
            "UOP": (2, 2, file.LOG_UOP_BUFF_SIZE),
            "WGT": (wgt, wgt, file.LOG_WGT_BUFF_SIZE),
            "INP": (inp, inp, file.LOG_INP_BUFF_SIZE),
            "ACC": (acc, acc, file.LOG_ACC_BUFF_SIZE),
            "OUT": (inp, inp, file.LOG_ACC_BUFF_SIZE - 2),
            "ACC_8BIT": (inp, acc, file.LOG_ACC_BUFF_SIZE),
        }
        return {
            name: OnChipMemory(name, number, 1 << dram, 1 << sram, size - sram)
            for number, name in enumerate(MEMORIES)
            for dram, sram, size in (rows[name],)
        }

    @property
    def bitstream(self) -> str:
        """Name of the hardware build: ``1x16_i8w8a32_15_15_18_17``."""
        file = self.file
        types = f"i{1 << file.LOG_INP_WIDTH}w{1 << file.LOG_WGT_WIDTH}a{1 << file.LOG_ACC_WIDTH}"
        sizes = (getattr(file, f"LOG_{name}_BUFF_SIZE") for name in ("UOP", "INP", "WGT", "ACC"))
        return f"{self.batch}x{self.block}_{types}_{'_'.join(map(str, sizes))}"

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the text of each violated rule."""
        keys = {name: f"LOG_{name}_BUFF_SIZE" for name in ("UOP", "WGT", "INP", "ACC")}
        for name, key in keys.items():
            memory = self.memories[name]
            if memory.log_depth < 0:
                yield key, f"the buffer must hold one element, which takes {memory.sram_bytes} bytes"
            elif memory.log_depth > _SRAM_BITS:
                limit = 1 << _SRAM_BITS
                yield key, f"the buffer may hold {limit} elements at most: LOAD has {_SRAM_BITS} bits for one"
        uop, inp, wgt, acc = (self.memories[name].log_depth for name in ("UOP", "INP", "WGT", "ACC"))
        if min(uop, inp, wgt, acc) < 0:
            return
        if (bits := _HEAD_BITS + 2 * uop + 1 + _LOOP_BITS) > _WORD_BITS:
            yield "LOG_UOP_BUFF_SIZE", f"opcode, micro-op range and loops must fit in 64 bits, and take {bits}"
        if (bits := acc + max(acc, inp) + wgt) > _UOP_BITS:
            yield _widest(acc, inp, wgt), f"a micro-op's three indices must fit in 32 bits, and take {bits}"
        if (bits := 2 * (acc + inp + wgt)) > _WORD_BITS:
            yield _widest(acc, inp, wgt), f"GEMM's six factors must fit in 64 bits, and take {bits}"
        if (bits := 4 * acc + 3 + 1 + 16) > _WORD_BITS:
            yield "LOG_ACC_BUFF_SIZE", f"ALU's factors, operation and number must fit in 64 bits, and take {bits}"


def _widest(acc: int, inp: int, wgt: int) -> str:
    name = max((acc, "ACC"), (inp, "INP"), (wgt, "WGT"))[1]
    return f"LOG_{name}_BUFF_SIZE"


def load_configuration(path: str | Path | None = None) -> Configuration:
    """Read a configuration; by default that of ``UTVM_VTA_CONFIG``, or the built-in one."""
    file = Path(path or os.environ.get(VARIABLE) or DEFAULT)
    text = read_text(file, _HINT)
    with ConfigError.on((ValueError, RecursionError), f"{file}: is not valid JSON:", _HINT):
        content = json.loads(text)
    return Configuration(validate(ConfigurationFile, content, str(file), _HINT), str(file))
