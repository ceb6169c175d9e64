# SPDX-License-Identifier: Apache-2.0
"""The C that runs on boards: start-up code, fault handlers, the cycle counter and the executors.

``include/utvm.h`` is what board ports and programs are written against. ``host_driven/``, ``mlperf/``, ``rpc/``
and ``standing_alone/`` are the executors: one is in an image. ``cortex_m/`` and ``host/`` have what one
architecture needs, and in a folder named after an executor what only that one needs of it; ``bare_metal/`` has in
the same way what all architectures without an operating system share, and the C files beside this one are for
every image. Below ``rpc/``, these have a folder for each pipe that RPC can go through, and in ``ports/`` the ports
that boards share: ``plain`` is that of a board without one; in ``flash/`` what a debugger runs to program flash.
``portable/`` has what becomes a part of libraries. This module only says where they are.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

DIRECTORY = Path(__file__).resolve().parent
INCLUDE = DIRECTORY / "include"
PORTABLE = DIRECTORY / "portable"

_BARE_METAL = DIRECTORY / "bare_metal"
_HOSTED = frozenset({"host"})  # Architectures whose programs run in an operating system.

Executor = Literal["host_driven", "mlperf", "rpc", "standing_alone"]
"""What is in an image beside the programs: the debug port drives it, MLPerf Tiny's runner does, RPC, or nobody."""
CLIENT_EXECUTORS: frozenset[Executor] = frozenset({"mlperf", "rpc"})
"""Those that a client asks, through a pipe."""
Pipe = Literal["console", "rtt", "semihosting", "stdio", "tcp"]
"""What RPC goes through: a serial line, buffers in memory, the debugger's file calls, a process's streams, TCP."""

_WITHOUT: Mapping[str, frozenset[Pipe]] = {
    "cortex_a": frozenset({"rtt", "semihosting"}),
    "riscv": frozenset({"semihosting"}),
}
"""Pipes that an architecture cannot have although it shares the code: on a Cortex-A, caches hide memory from a
probe, and the debugger does not see the call; on RISC-V, the call is what C's ``__builtin_trap()`` becomes."""

PIPE_NEEDS: Mapping[Pipe, str] = {"console": "console", "rtt": "debug port", "semihosting": "debug port"}
"""What a board must be capable of for a pipe, where that is more than code for its architecture."""

PORT_NEEDS: Mapping[str, Mapping[str, str]] = {
    "riscv": {
        "clint": "the address of the core-local interruptor, whose timer ends what takes too long",
        "tick": "how many instructions go by in one tick of that timer",
    },
    "cortex_a": {
        "ticks": "of the core's global timer, that go by in so many cycles",
        "cycles": "that go by in so many ticks",
    },
}
"""Numbers that a port needs on an architecture, whatever it is a port of, where it is not a ``port.c``."""

RPC_PROTOCOL = "0.8.0"
"""The version of TVM's RPC protocol that the server speaks."""

RPC_PACKET_BYTES = 2048
"""Bytes of the server's longest request and answer."""

RPC_EVALUATOR_HANDLE = 0x10000
"""The handle of the first of the server's time evaluators."""

RPC_EVALUATORS = 4
"""How many time evaluators there are at once."""


_NO_PACKETS = "UTVM_RPC_PACKET_BYTES=16u"  # A report is said, and nobody asks.


def defines(executor: Executor, pipe: Pipe | None = None) -> tuple[str, ...]:
    """Return the C macros, ``NAME=value``, that an executor's sources need."""
    if executor != "rpc" and pipe is not None:
        # A console is written to at once: what a queue sends later would count in a run.
        return (*(() if pipe == "console" else ("UTVM_REPORT_THROUGH_PIPE=1",)), _NO_PACKETS)
    if executor != "rpc":
        return ()
    return (
        f'UTVM_RPC_PROTOCOL="{RPC_PROTOCOL}"',
        f"UTVM_RPC_PACKET_BYTES={RPC_PACKET_BYTES}u",
        f"UTVM_EVALUATOR_HANDLE={RPC_EVALUATOR_HANDLE:#x}u",
        f"UTVM_EVALUATORS={RPC_EVALUATORS}u",
    )


def _folders(architecture: str) -> tuple[Path, ...]:
    own = DIRECTORY / architecture
    return (own,) if architecture in _HOSTED else (_BARE_METAL, own)


@functools.cache
def architectures() -> tuple[str, ...]:
    """Return the architectures that there are, sorted."""
    return tuple(sorted({"host", *(core.parent.name for core in DIRECTORY.glob("*/core.h"))}))


def pipes(architecture: str) -> tuple[Pipe, ...]:
    """Return the pipes that an architecture has code for, sorted."""
    folders = _folders(architecture)
    known = [pipe for pipe in get_args(Pipe) if any((folder / "rpc" / pipe).is_dir() for folder in folders)]
    return tuple(pipe for pipe in known if pipe not in _WITHOUT.get(architecture, ()))


def images(architecture: str) -> tuple[tuple[Executor, Pipe | None], ...]:
    """Return every pair of executor and pipe that an image for an architecture can have."""
    others = tuple((executor, None) for executor in get_args(Executor) if executor not in CLIENT_EXECUTORS)
    known = pipes(architecture)
    return (*others, ("mlperf", known[0]), *(("rpc", pipe) for pipe in known))


def sources(architecture: str, executor: Executor, pipe: Pipe | None = None) -> tuple[Path, ...]:
    """Return the C and assembler files of the runtime for an architecture, in a fixed order.

    Args:
        pipe: what RPC goes through, or the report of an image that stands alone on a board without a console.
    """
    places = [DIRECTORY, DIRECTORY / executor]
    for folder in _folders(architecture):
        places += [folder, folder / executor]
        if pipe is not None:
            places.append(folder / "rpc" / pipe)
    return tuple(path for pattern in ("*.S", "*.c") for where in places for path in sorted(where.glob(pattern)))


def portable_files(executor: Executor) -> tuple[Path, ...]:
    """Return the C files of the runtime that need no architecture, for whoever brings a port of their own."""
    return tuple(path for where in (DIRECTORY, DIRECTORY / executor) for path in sorted(where.glob("*.c")))


def include(architecture: str, executor: Executor, pipe: Pipe | None = None) -> tuple[Path, ...]:
    """Return the folders of header files that these sources need."""
    pipes_too = (DIRECTORY / "rpc",) if pipe is not None and executor != "rpc" else ()
    return (INCLUDE, *_folders(architecture), DIRECTORY / executor, *pipes_too)


Shared = Literal["ports", "flash"]
"""Folders of what boards share by name: ports, and algorithms by which a debugger programs flash."""


def shared(architecture: str, folder: Shared, name: str) -> Path | None:
    """Return the C file of what boards of an architecture share, if there is one of that name."""
    files = (where / folder / f"{name}.c" for where in _folders(architecture))
    return next((file for file in files if file.is_file()), None)


def shared_names(architecture: str, folder: Shared) -> tuple[str, ...]:
    """Return the names of what boards of an architecture share, sorted."""
    return tuple(sorted(file.stem for where in _folders(architecture) for file in where.glob(f"{folder}/*.c")))
