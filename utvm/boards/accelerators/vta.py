# SPDX-License-Identifier: Apache-2.0
"""VTA beside a CPU."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from utvm.boards.accelerators import Accelerator, AcceleratorPart, BoardAccelerator, Sources
from utvm.boards.parts import Address
from utvm.compiler.accelerator import Offer
from utvm.compiler.library import Library
from utvm.runtime.vta.configuration import load_configuration
from utvm.runtime.vta.header import DRIVER, IN_IMAGE, INCLUDE, QUEUE, REGISTERS, bitstream_of, config_header
from utvm.runtime.vta.instructions import InstructionSet, explain_message
from utvm.virtual.vta import MODEL
from utvm.virtual.vta.neighbour import REGISTER_BYTES, VtaNeighbour
from utvm.virtual.vta.on_bus import on_bus
from utvm.virtual.vta.simulator import STAGES
from utvm.virtual.vta.steps import modelled_steps

_SHOWN = (
    "instructions",
    "dram_nbytes",
    "tokens",
    *(f"modelled_{stage}_cycles" for stage in STAGES),
    "modelled_cycles",
)

_LINE = 64  # Bytes of a cache's line, at most.


class _Vta(AcceleratorPart):
    """``config`` is a ``vta_config.json`` in the board's folder; by default the project's.

    ``registers`` are four pages, and a fifth of a model. ``queue`` is how many instructions the driver has room
    for.
    """

    registers: Annotated[Address, Field(multiple_of=4096, le=2**32 - REGISTER_BYTES)] | None = None
    config: str = ""
    queue: int = Field(QUEUE, ge=256, le=QUEUE)


def _fit(block: _Vta, folder: Path) -> BoardAccelerator:
    configuration = load_configuration(str(folder / block.config) if block.config else None)

    def offer(record: Any) -> Offer:
        # TVM takes seconds to import, and a library that is in the cache needs none.
        from utvm.compiler.targets.vta.network import offers

        return offers(configuration)(record)

    def told(words: str) -> str:
        return explain_message(InstructionSet(configuration), words)

    def modelled(library: Library) -> list[dict[str, int]]:
        sizes = ([each.size_bytes for each in part] for part in (library.inputs, library.outputs, library.arenas))
        first, second, third = sizes
        steps = modelled_steps(
            configuration, library.sources, f"{library.name}_run", len(library.calls), (first, second, third)
        )
        return [{name: step[name] for name in _SHOWN} for step in steps]

    def neighbour(memory: Sequence[tuple[int, int]]) -> VtaNeighbour:
        assert block.registers is not None
        return VtaNeighbour(configuration, block.registers, memory)

    header = {"vta_config.h": config_header(configuration, block.queue)}
    driver = Sources((*DRIVER, *IN_IMAGE), (INCLUDE,), header)
    model = Sources(MODEL, (MODEL[0].parent,))
    identity = _identity(configuration.bitstream)
    reads = (Path(configuration.where),)
    if block.registers is None:
        return BoardAccelerator(identity, offer, driver, model, reads=reads, told=told, modelled=modelled)
    # VTA counts elements from one address, so that clients' tensors begin at whole ones.
    largest = max(memory.element_bytes for memory in configuration.memories.values())
    # What VTA writes shares no line of a cache with anything that an interrupt writes.
    defines = (
        f"UTVM_ACCELERATOR={block.registers:#x}u",
        f"UTVM_ALIGNMENT={_LINE}",
        f"UTVM_MEMORY_ALIGNMENT={max(_LINE, largest)}u",
    )
    registers = Sources(REGISTERS, defines=defines)
    return BoardAccelerator(
        identity,
        offer,
        driver,
        model,
        registers,
        neighbour,
        on_bus(configuration, block.registers),
        reads,
        told,
        modelled,
    )


def _wanted(names: Collection[str]) -> str:
    return next((_identity(found) for name in sorted(names) if (found := bitstream_of(name))), "")


def _identity(bitstream: str) -> str:
    return f"vta {bitstream}"


ACCELERATOR = Accelerator("vta", _Vta, _fit, _wanted)
