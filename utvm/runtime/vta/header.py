# SPDX-License-Identifier: Apache-2.0
"""Instruction fields and sizes of a configuration as a C header, for driver and simulator."""

from collections.abc import Iterator
from pathlib import Path

from utvm.runtime.vta.configuration import Configuration
from utvm.runtime.vta.instructions import OPCODES, OPERATIONS, InstructionSet

INCLUDE = Path(__file__).resolve().parent
"""Folder of ``vta.h`` and other public headers."""

CALLS = (
    "VTABufferMap",
    "VTALoadBuffer2D",
    "VTAStoreBuffer2D",
    "VTAUopLoopBegin",
    "VTAUopLoopEnd",
    "VTAUopPush",
    "VTAPushGEMMOp",
    "VTAPushALUOp",
    "VTASynchronize",
    "VTAFault",
)
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
    return "".join(f"{line}\n" for line in _lines(configuration, queue))


def symbol(call: str, configuration: Configuration) -> str:
    """Symbol of one of :data:`CALLS` in the driver for a configuration."""
    return f"{call}_{configuration.bitstream}"


def bitstream_of(name: str) -> str:
    """Configuration in a name made by :func:`symbol`; empty for another name."""
    call, _, bitstream = name.partition("_")
    return bitstream if call in CALLS else ""


def _lines(configuration: Configuration, queue: int) -> Iterator[str]:
    yield "/* Made from a vta_config.json; see utvm/runtime/vta/header.py. */"
    yield "#ifndef VTA_CONFIG_H"
    yield "#define VTA_CONFIG_H"
    yield f"#define VTA_BATCH {configuration.batch}u"
    yield f"#define VTA_BLOCK {configuration.block}u"
    yield f"#define VTA_QUEUE_LENGTH {queue}u"
    yield f"#define VTA_MEMORIES {len(configuration.memories)}u"
    for name, memory in configuration.memories.items():
        yield f"#define VTA_{name} {memory.number}u"
        yield f"#define VTA_{name}_DEPTH {memory.depth}u"
        yield f"#define VTA_{name}_ELEMENT_BYTES {memory.element_bytes}u"
    for group, names in (("OPCODE", OPCODES), ("ALU", OPERATIONS)):
        for name, number in names.items():
            yield f"#define VTA_{group}_{name.upper()} {number}u"
    yield "#define VTA_FIELD_OPCODE 0u, 3u"
    for kind, fields in InstructionSet(configuration).fields.items():
        for field in fields:
            yield f"#define VTA_{kind.upper()}_{field.name.upper()} {field.low}u, {field.width}u"
    for name in CALLS:
        yield f"#define {name} {symbol(name, configuration)}"
    yield "#endif"
