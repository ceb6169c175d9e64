# SPDX-License-Identifier: Apache-2.0
"""The Cortex-M cores with a model, read from ``kinds.yaml``: Unicorn's core and identification registers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass
from unicorn import arm_const

from utvm.base.storage.config import read_yaml
from utvm.virtual import bus, dap, spec
from utvm.virtual.cortex_m.cycles import CORES, CoreTiming

TPIU = 0xE0040000

Words = Mapping[int, int]
"""Words of a constant page of 4 KiB, by offset."""


class ConstantPage(bus.PlainRegisters):
    """A page of constant words; writes are ignored."""

    def __init__(self, words: Words) -> None:
        super().__init__(words, range(0x1000), size=0x1000)


@dataclass(frozen=True)
class Watches:
    """The encoding of watchpoints in FUNCTION.

    Attributes:
        accesses: watched accesses by the bits of :attr:`kind`; other values are disabled.
        size: the field with log2 of the watched size; 0 if the MASK register has it.
        fixed: bits that read as one.
    """

    accesses: Mapping[int, int]
    kind: int
    size: int = 0
    fixed: int = 0


@dataclass(frozen=True)
class CoreKind:
    """A core.

    Attributes:
        unicorn_model: Unicorn's core that executes: with this core's floating-point unit, and at least its
            instructions.
        features: identification registers by their offset from 0xE000E000; others read as zero.
        configuration: writable bits of CCR.
        breakpoints: number of comparators of the breakpoint unit.
        breakpoint_version: 2 has breakpoints at any address, 1 only below 0x20000000.
        regions: number of regions of the memory protection unit.
        pages: ROM tables and other constant pages, by address.
        components: identification registers of scs, dwt, fpb, itm and tpiu.
        trace_port: address of the tpiu; another one is a SWO, without a formatter.
        exc_return: EXC_RETURN of a return to a handler, with floating-point registers in the frame.
        secure: has the Security Extension and stays in Secure state.
        timing: instruction timing; None if it is not modelled.
    """

    unicorn_model: int
    cpuid: int
    features: Words
    configuration: int
    breakpoints: int
    breakpoint_version: Literal[1, 2]
    port: dap.PortIds
    pages: Mapping[int, Words]
    components: Mapping[str, Words]
    exc_return: int = 0xFFFFFFE1
    regions: int = 8
    trace_port: int = TPIU
    watches: Watches = Watches({5: 1, 6: 2, 7: 3}, 0xF)  # of Armv7-M: WATCH_READ and WATCH_WRITE
    secure: bool = False
    timing: CoreTiming | None = None


def _load() -> dict[spec.CoreName, CoreKind]:
    rows = read_yaml(Path(__file__).with_suffix(".yaml"))[0]["kinds"]
    for row in rows.values():
        row["unicorn_model"] = getattr(arm_const, f"UC_CPU_ARM_{row['unicorn_model']}")
        row["timing"] = CORES[row["timing"]]
    return TypeAdapter(dict[spec.CoreName, CoreKind]).validate_python(rows)


KINDS: Mapping[spec.CoreName, CoreKind] = _load()
