# SPDX-License-Identifier: Apache-2.0
"""Instruction fields and sizes of a configuration as a C header, for driver and simulator."""

from pathlib import Path

from utvm.base.text.templates import templates_of
from utvm.runtime.vta.configuration import Configuration
from utvm.runtime.vta.instructions import OPCODES, OPERATIONS, InstructionSet

INCLUDE = Path(__file__).resolve().parent
"""Folder of ``vta.h`` and other public headers."""

_CALLS = "BufferMap LoadBuffer2D StoreBuffer2D UopLoopBegin UopLoopEnd UopPush PushGEMMOp PushALUOp Synchronize Fault"
CALLS = tuple(f"VTA{name}" for name in _CALLS.split())
"""Functions of ``vta.h``. Their symbols contain the configuration, so an operator cannot call another driver."""

DRIVER = tuple(sorted(INCLUDE.glob("*.c")))
"""C files of the driver; they include ``vta_config.h``, written by :func:`config_header`."""

REGISTERS = tuple(sorted(INCLUDE.glob("registers/*.c")))
"""C files that drive a hardware VTA."""

IN_IMAGE = tuple(sorted(INCLUDE.glob("image/*.c")))
"""C files that an image needs in addition: a fault stops the program."""

QUEUE = 65536
"""Default length of the instruction queue."""


def config_header(configuration: Configuration, queue: int = QUEUE) -> str:
    """``vta_config.h``: sizes, lowest bit and width of each field, and the length of the driver's queue."""
    template = templates_of("utvm.runtime.vta").get_template("vta_config.h.j2")
    return template.render(
        configuration=configuration,
        queue=queue,
        groups={"OPCODE": OPCODES, "ALU": OPERATIONS},
        instructions=InstructionSet(configuration),
        symbols={name: symbol(name, configuration) for name in CALLS},
    )


def symbol(call: str, configuration: Configuration) -> str:
    """Symbol of one of :data:`CALLS` in the driver for a configuration."""
    return f"{call}_{configuration.bitstream}"


def bitstream_of(name: str) -> str:
    """Configuration in a name made by :func:`symbol`; empty for another name."""
    call, _, bitstream = name.partition("_")
    return bitstream if call in CALLS else ""
