# SPDX-License-Identifier: Apache-2.0
"""How large a VTA is: ``vta_config.json``, which has the logarithms (base 2) of all its sizes."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from utvm.base.storage.config import Record, validate
from utvm.errors import ConfigError

MEMORIES = ("UOP", "WGT", "INP", "ACC", "OUT", "ACC_8BIT")
"""The memories on the chip, as instructions number them."""
DEFAULT = Path(__file__).with_name("vta_config.json")
VARIABLE = "UTVM_VTA_CONFIG"
"""The environment variable that names a configuration of one's own."""

_HINT = f"{DEFAULT.name} beside utvm/runtime/vta/configuration.py is a whole one"
_WORD_BITS = 64
_UOP_BITS = 32
_HEAD_BITS = 8  # Opcode, four tokens, and whether a GEMM resets.
_LOOP_BITS = 2 * 14
_SRAM_BITS = 16


class ConfigurationFile(Record):
    """What ``vta_config.json`` says; every key must be there.

    Widths are those of an element in bits, buffer sizes are in bytes, ``LOG_BLOCK`` is both sides of a block of
    weights, and ``LOG_BATCH`` how many rows go through it together.
    """

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
    """A memory on the chip.

    Attributes:
        name, number: what instructions call it.
        element_bytes: of one element as it lies in DRAM; ``sram_bytes`` as it lies on the chip.
        log_depth: logarithm of how many elements there are.
    """

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
    """A VTA that can be built."""

    file: ConfigurationFile
    where: str = "vta_config.json"

    def __post_init__(self) -> None:
        if broken := "; ".join(f"{key}: {rule}" for key, rule in self._broken()):
            raise ConfigError(f"{self.where}: {broken}", _HINT)

    @property
    def batch(self) -> int:
        return 1 << self.file.LOG_BATCH

    @property
    def block(self) -> int:
        return 1 << self.file.LOG_BLOCK

    @cached_property
    def memories(self) -> dict[str, OnChipMemory]:
        """The memories by name. ACC_8BIT is ACC, filled from int8 values whose sign is extended."""
        given = self.file
        vector = given.LOG_BATCH + given.LOG_BLOCK
        inp, wgt, acc = vector, 2 * given.LOG_BLOCK, vector + 2  # Logarithms of an element's bytes.
        rows = {
            "UOP": (2, 2, given.LOG_UOP_BUFF_SIZE),
            "WGT": (wgt, wgt, given.LOG_WGT_BUFF_SIZE),
            "INP": (inp, inp, given.LOG_INP_BUFF_SIZE),
            "ACC": (acc, acc, given.LOG_ACC_BUFF_SIZE),
            "OUT": (inp, inp, given.LOG_ACC_BUFF_SIZE - 2),
            "ACC_8BIT": (inp, acc, given.LOG_ACC_BUFF_SIZE),
        }
        return {
            name: OnChipMemory(name, number, 1 << dram, 1 << sram, size - sram)
            for number, name in enumerate(MEMORIES)
            for dram, sram, size in (rows[name],)
        }

    @property
    def bitstream(self) -> str:
        """What the hardware's builders call it: ``1x16_i8w8a32_15_15_18_17``."""
        given = self.file
        types = f"i{1 << given.LOG_INP_WIDTH}w{1 << given.LOG_WGT_WIDTH}a{1 << given.LOG_ACC_WIDTH}"
        sizes = (
            given.LOG_UOP_BUFF_SIZE,
            given.LOG_INP_BUFF_SIZE,
            given.LOG_WGT_BUFF_SIZE,
            given.LOG_ACC_BUFF_SIZE,
        )
        return f"{self.batch}x{self.block}_{types}_{'_'.join(map(str, sizes))}"

    def _broken(self) -> Iterator[tuple[str, str]]:
        """Go through the rules that are broken: the key that is at fault, and the rule."""
        keys = {name: f"LOG_{name}_BUFF_SIZE" for name in ("UOP", "WGT", "INP", "ACC")}
        for name, key in keys.items():
            memory = self.memories[name]
            if memory.log_depth < 0:
                yield key, f"the buffer must hold one element, which takes {memory.sram_bytes} bytes"
            elif memory.log_depth > _SRAM_BITS:
                yield (
                    key,
                    f"the buffer may hold {1 << _SRAM_BITS} elements at most: LOAD has {_SRAM_BITS} bits for one",
                )
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
    """Read a configuration.

    Args:
        path: the file; by default what the environment variable ``UTVM_VTA_CONFIG`` names, else the project's.
    """
    place = Path(path or os.environ.get(VARIABLE) or DEFAULT)
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{place}: cannot be read: {error.strerror}", _HINT) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: is not valid JSON: {error}", _HINT) from error
    return Configuration(validate(ConfigurationFile, content, str(place), _HINT), str(place))
