# SPDX-License-Identifier: Apache-2.0
"""VTA beside a CPU."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from utvm.boards import accelerators, parts
from utvm.compiler.accelerator import Offer
from utvm.compiler.library import Library
from utvm.runtime.vta.configuration import load_configuration
from utvm.runtime.vta.header import DRIVER, IN_IMAGE, INCLUDE, QUEUE, REGISTERS, bitstream_of, config_header
from utvm.runtime.vta.instructions import InstructionSet, explain_message
from utvm.virtual.vta import MODEL
from utvm.virtual.vta.device import REGISTER_BYTES, VtaModel, vta_peripheral
from utvm.virtual.vta.simulator import STAGES, modelled_steps

_SHOWN = ("instructions", "dram_nbytes", "tokens", *(f"modelled_{stage}_cycles" for stage in STAGES), "modelled_cycles")

_LINE = 64  # Bytes of the longest cache line.


class _Vta(accelerators.AcceleratorPart):
    """``config`` is a file in the board's folder instead of the built-in one, ``queue`` the length of the queue.

    ``registers`` is the address of four pages, and of a fifth one if it is a model.
    """

    registers: Annotated[parts.Address, Field(multiple_of=4096, le=2**32 - REGISTER_BYTES)] | None = None
    config: str = ""
    queue: int = Field(QUEUE, ge=256, le=QUEUE)


def _fit(block: _Vta, folder: Path) -> accelerators.BoardAccelerator:
    configuration = load_configuration(str(folder / block.config) if block.config else None)

    def offer(record: Any) -> Offer:
        # TVM takes seconds to import; libraries in the cache do not need it.
        from utvm.compiler.targets.vta.network import offers

        return offers(configuration)(record)

    def explain(message: str) -> str:
        return explain_message(InstructionSet(configuration), message)

    def model_steps(library: Library) -> list[dict[str, int]]:
        inputs, outputs, arenas = (
            [tensor.size_bytes for tensor in tensors] for tensors in (library.inputs, library.outputs, library.arenas)
        )
        function, calls = f"{library.name}_run", len(library.calls)
        steps = modelled_steps(configuration, library.sources, function, calls, (inputs, outputs, arenas))
        return [{name: step[name] for name in _SHOWN} for step in steps]

    def neighbour(memory: Sequence[tuple[int, int]]) -> VtaModel:
        assert block.registers is not None
        return VtaModel(configuration, block.registers, memory)

    header = {"vta_config.h": config_header(configuration, block.queue)}
    driver = accelerators.Sources((*DRIVER, *IN_IMAGE), (INCLUDE,), header)
    model = accelerators.Sources(MODEL, (MODEL[0].parent,))
    identity = _identity(configuration.bitstream)
    accelerator = accelerators.BoardAccelerator(
        identity, offer, driver, model, reads=(Path(configuration.where),), explain=explain, model_steps=model_steps
    )
    if block.registers is None:
        return accelerator
    # VTA counts elements from one address, so tensors of clients are aligned to whole elements.
    largest = max(memory.element_bytes for memory in configuration.memories.values())
    # No cache line holds both data of VTA and data of an interrupt handler.
    defines = (
        f"UTVM_ACCELERATOR={block.registers:#x}u",
        f"UTVM_ALIGNMENT={_LINE}",
        f"UTVM_MEMORY_ALIGNMENT={max(_LINE, largest)}u",
    )
    return replace(
        accelerator,
        registers=accelerators.Sources(REGISTERS, defines=defines),
        neighbour=neighbour,
        on_bus=vta_peripheral(configuration, block.registers),
    )


def _identify(names: Collection[str]) -> str:
    return next((_identity(bitstream) for name in sorted(names) if (bitstream := bitstream_of(name))), "")


def _identity(bitstream: str) -> str:
    return f"vta {bitstream}"


ACCELERATOR = accelerators.Accelerator("vta", _Vta, _fit, _identify)
