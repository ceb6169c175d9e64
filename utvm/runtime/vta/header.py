# SPDX-License-Identifier: Apache-2.0
"""The table of instructions and the sizes of a configuration, as the C of driver and simulator reads them."""

from collections.abc import Iterator
from pathlib import Path

from utvm.runtime.vta.configuration import Configuration
from utvm.runtime.vta.instructions import OPCODES, OPERATIONS, InstructionSet

INCLUDE = Path(__file__).resolve().parent
"""The folder of ``vta.h`` and the others that a device or a program includes."""

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
"""What ``vta.h`` offers. Each has the configuration in its name: an operator finds no other driver."""

DRIVER = tuple(sorted(INCLUDE.glob("*.c")))
"""The C files of the driver; they include ``vta_config.h``, which :func:`config_header` makes."""

REGISTERS = tuple(sorted(INCLUDE.glob("registers/*.c")))
"""What drives a VTA that is hardware; they include what all boards share."""

IN_IMAGE = tuple(sorted(INCLUDE.glob("image/*.c")))
"""What they need beside them in an image: a fault stops the program."""


QUEUE = 65536
"""Instructions that are run at once, at most, where there is room for them."""


def config_header(configuration: Configuration, queue: int = QUEUE) -> str:
    """Return ``vta_config.h``: sizes, and of each field its lowest bit and its width, with a comma between.

    Args:
        queue: how many instructions the driver has room for: so many are run at once, at most.
    """
    return "".join(f"{line}\n" for line in _lines(configuration, queue))


def symbol(call: str, configuration: Configuration) -> str:
    """Return what one of :data:`CALLS` is called in the driver for a configuration."""
    return f"{call}_{configuration.bitstream}"


def bitstream_of(name: str) -> str:
    """Return the configuration whose driver has a symbol, as :func:`symbol` made it; nothing where none has."""
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
