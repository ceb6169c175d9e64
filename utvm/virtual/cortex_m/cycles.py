# SPDX-License-Identifier: Apache-2.0
"""Instruction timing of the Cortex-M cores, from ``cycles.yaml``, as data for the model in ``cycles.c``.

Sources: tables of instruction timing in ARM DDI 0432 (Cortex-M0, 3.3), ARM DDI 0484 (Cortex-M0+, 3.3), ARM DDI
0337 (Cortex-M3, 3.3) and ARM DDI 0439 (Cortex-M4, 3.3 and 7.2). The manual of the Cortex-M33 (ARM 100230) has none:
its table is that of the M4, except that a value of a load or of a multiplication is ready a cycle late, IT is not
folded, and branches are decided in the second of three stages. The manual of the Cortex-M7 (ARM DDI 0489) has none
either: pairs of instructions, when operands are needed and results are ready, and the cost of a mispredicted branch
are from LLVM (ARMScheduleM7.td); that extensions use the shifter is a measurement by C. L. Biffle on an STM32H7. The
Cortex-M55's are from LLVM (ARMScheduleM55.td).
docs/time.md compares the model with silicon.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter

from utvm.base.storage.config import read_yaml
from utvm.virtual.bus import Bus
from utvm.virtual.cortex_m.core import Core
from utvm.virtual.native import cached_unit, fields
from utvm.virtual.spec import MAX_CACHE_LINES, WAITS, CacheSpec, RegionSpec, TimingSpec

_CODE_MEGABYTES = 4096
_NO_PART = 0xFFFFFFFF


@dataclass(frozen=True)
class CoreTiming:
    """Cycles of a core.

    Attributes:
        costs: cycles by operation, if not 1; a load or store of many takes one more for each register.
        latencies: cycles by operation until the result can be used, if not 1.
        refill: cycles to refill the pipeline after a taken branch.
        indirect: additional cycles if the target is in a register or in memory.
        split: additional cycles if the branch target is a four-byte instruction across two words.
        wide_branch: additional cycles of a four-byte branch.
        pipelined: True if loads and stores depend on the instruction before, as ARM DDI 0439, 3.3.2, has it.
        bus: bytes that a load reads in one access.
        pairs: 1 if two instructions may issue in a cycle; 2 if both must have 16 bits, and one be simple.
        slow: additional latency of loaded bytes and halfwords, and of saturated values.
        mispredicted: cycles of a mispredicted branch; 0 without branch prediction.
    """

    costs: Mapping[str, int]
    latencies: Mapping[str, int] = field(default_factory=dict)
    refill: int = 2
    indirect: int = 0
    split: int = 1
    wide_branch: int = 0
    pipelined: bool = False
    bus: int = 4
    pairs: int = 0
    slow: int = 0
    mispredicted: int = 0


CORES: Mapping[str, CoreTiming] = TypeAdapter(dict[str, CoreTiming]).validate_python(
    read_yaml(Path(__file__).with_suffix(".yaml"))[0]
)
"""Timing by the core's name."""


class _Operations(ctypes.Structure):
    """A number for ``enum operation``."""

    _fields_ = fields(
        ctypes.c_uint32,
        "undecoded plain load store load_many store_many multiply multiply_add multiply_long divide branch "
        "table_branch condition float float_accumulate float_divide float_pair vector_memory vector_integer "
        "vector_multiply loop_end",
    )


class _Cache(ctypes.Structure):
    _fields_ = (
        *fields(ctypes.c_uint32, "first bytes part_bits line_bits sets ways wait last"),
        ("lines", ctypes.c_uint32 * MAX_CACHE_LINES),
        ("parts", ctypes.c_uint8 * MAX_CACHE_LINES),
    )


class _State(ctypes.Structure):
    """``cycles_t`` of ``cycles.h``."""

    _fields_ = (
        ("cycles", ctypes.c_uint64),
        ("waited", ctypes.c_uint64 * len(WAITS)),
        ("flash_bytes", ctypes.c_uint64),
        *fields(_Operations, "costs latencies"),
        *fields(ctypes.c_uint32, "refill indirect split wide_branch pipelined bus pairs slow mispredicted"),
        *fields(_Cache, "code data"),
        *fields(ctypes.c_uint32, "unified next slot units loaded pair_of_loads bank pending"),
        ("previous", ctypes.c_void_p),
        ("ready", ctypes.c_uint64 * 16),
        ("decoded", ctypes.c_void_p * _CODE_MEGABYTES),
    )


class Cycles:
    """The model of cycles of a core that runs."""

    def __init__(self, core: Core, bus: Bus, timing: CoreTiming, board: TimingSpec) -> None:
        self._state = _state(timing, board, [memory.region for memory in bus.memories])
        self.selected = 0  # 0: all cycles; N: those of the N-th of WAITS, or FLASH_BYTES
        core.model_cycles(ctypes.addressof(self._state))

    @property
    def count(self) -> int:
        """Cycles since the model was created, those of the selected wait, or bytes read from flash."""
        numbers = (self._state.cycles, *self._state.waited, self._state.flash_bytes)
        return cast(int, numbers[self.selected])


def qemu_plugin(core: str, board: TimingSpec, regions: Sequence[RegionSpec], file: Path) -> str:
    """Return QEMU's ``-plugin`` that counts modelled cycles of a core; ``file`` is for its numbers."""
    timing = CORES[core]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(_state(timing, board, regions)))
    folder = Path(__file__).parent
    library = cached_unit(*(folder / f"{name}.c" for name in ("plugin", "cycles", "loads")))
    return ",state=".join(str(path).replace(",", ",,") for path in (library, file))


def _state(timing: CoreTiming, board: TimingSpec, regions: Sequence[RegionSpec]) -> _State:
    flash = [region for region in regions if region.kind == "flash"]
    first = min((region.address for region in flash), default=0)
    last = max((region.address + region.size for region in flash), default=0) - 1
    numbers = {name: value for name, value in vars(timing).items() if name not in ("costs", "latencies")}
    return _State(
        costs=_numbers(timing.costs),
        latencies=_numbers(timing.latencies),
        code=_cache(board.code, first, last),
        data=_cache(board.data, first, last),
        unified=board.unified,
        **numbers,
    )


def _numbers(values: Mapping[str, int]) -> _Operations:
    return _Operations(*(values.get(name, 1) for name, _ in _Operations._fields_))


def _cache(spec: CacheSpec, first: int, last: int) -> _Cache:
    part = spec.part or spec.line
    part_bits, line_bits = part.bit_length() - 1, (spec.line // part).bit_length() - 1
    return _Cache(
        first, last + 1 - first, part_bits, line_bits, spec.lines // spec.ways, spec.ways, spec.wait, _NO_PART
    )
