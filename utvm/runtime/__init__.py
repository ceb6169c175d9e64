# SPDX-License-Identifier: Apache-2.0
"""C that runs on boards: start-up code, fault handlers, cycle counters and executors.

Ports and programs include ``include/utvm.h``. ``host_driven/``, ``mlperf/``, ``rpc/`` and ``standing_alone/`` are
the executors, one in an image. ``bare_metal/`` is shared by all architectures without an operating system;
``cortex_m/``, ``host/`` and others are architectures. In these, a subfolder named after an executor is for it,
``rpc/PIPE/`` is for one pipe, ``ports/`` has ports that boards share (``plain`` does nothing), and ``flash/`` has
flash algorithms. ``portable/`` becomes part of libraries. This module lists the files.
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
"""Executors of an image's programs: by the debug port, MLPerf Tiny's runner, RPC, or without a host."""
CLIENT_EXECUTORS: frozenset[Executor] = frozenset({"mlperf", "rpc"})
"""Executors that serve a client through a pipe."""
Pipe = Literal["console", "rtt", "semihosting", "stdio", "tcp"]
"""Channels of RPC: a serial line, buffers in memory, the debugger's file calls, a process's streams, TCP."""

_WITHOUT: Mapping[str, frozenset[Pipe]] = {
    "cortex_a": frozenset({"rtt", "semihosting"}),
    "riscv": frozenset({"semihosting"}),
}
"""Pipes that do not work on an architecture although it shares their code: on a Cortex-A, caches hide memory from
probes, and the debugger does not see the call; on RISC-V, ``__builtin_trap()`` compiles to the same call."""

PIPE_NEEDS: Mapping[Pipe, str] = {"console": "console", "rtt": "debug port", "semihosting": "debug port"}
"""The capability of a board that a pipe needs."""

PORT_NEEDS: Mapping[str, Mapping[str, str]] = {
    "riscv": {
        "clint": "address of the core-local interruptor, whose timer ends runs that take too long",
        "tick": "instructions for each tick of that timer",
    },
    "cortex_a": {
        "ticks": "ticks of the core's global timer in that many cycles",
        "cycles": "cycles in that many ticks",
    },
}
"""Numbers that every shared port of an architecture needs."""

RPC_PROTOCOL = "0.8.0"
"""The version of TVM's RPC protocol that the server speaks."""

RPC_PACKET_BYTES = 2048
"""Size limit of the server's requests and replies."""

RPC_EVALUATOR_HANDLE = 0x10000
"""Handle of the server's first time evaluator."""

RPC_EVALUATORS = 4
"""Maximum number of time evaluators."""

_NO_PACKETS = "UTVM_RPC_PACKET_BYTES=16u"  # Reports are sent without requests.


def defines(executor: Executor, pipe: Pipe | None = None) -> tuple[str, ...]:
    """C macros of an executor's sources, ``NAME=value``."""
    if executor != "rpc" and pipe is not None:
        # A console is written to directly: a queue would send during a run.
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
    """All architectures, sorted."""
    return tuple(sorted({"host", *(core.parent.name for core in DIRECTORY.glob("*/core.h"))}))


def pipes(architecture: str) -> tuple[Pipe, ...]:
    """Pipes of an architecture, sorted."""
    folders = _folders(architecture)
    known = [pipe for pipe in get_args(Pipe) if any((folder / "rpc" / pipe).is_dir() for folder in folders)]
    return tuple(pipe for pipe in known if pipe not in _WITHOUT.get(architecture, ()))


def images(architecture: str) -> tuple[tuple[Executor, Pipe | None], ...]:
    """Every pair of executor and pipe of an architecture's images."""
    others = tuple((executor, None) for executor in get_args(Executor) if executor not in CLIENT_EXECUTORS)
    known = pipes(architecture)
    return (*others, ("mlperf", known[0]), *(("rpc", pipe) for pipe in known))


def sources(architecture: str, executor: Executor, pipe: Pipe | None = None) -> tuple[Path, ...]:
    """C and assembler files for an architecture, in a fixed order; ``pipe`` is for RPC or a standalone report."""
    folders = [DIRECTORY, DIRECTORY / executor]
    for folder in _folders(architecture):
        folders += [folder, folder / executor]
        if pipe is not None:
            folders.append(folder / "rpc" / pipe)
    return tuple(path for pattern in ("*.S", "*.c") for where in folders for path in sorted(where.glob(pattern)))


def portable_files(executor: Executor) -> tuple[Path, ...]:
    """C files of the runtime that need no architecture, for a project with its own port."""
    return tuple(path for where in (DIRECTORY, DIRECTORY / executor) for path in sorted(where.glob("*.c")))


def include(architecture: str, executor: Executor, pipe: Pipe | None = None) -> tuple[Path, ...]:
    """Include folders of these sources."""
    pipes_too = (DIRECTORY / "rpc",) if pipe is not None and executor != "rpc" else ()
    return (INCLUDE, *_folders(architecture), DIRECTORY / executor, *pipes_too)


Shared = Literal["ports", "flash"]
"""Folders of C files that boards share by name: ports and flash algorithms."""


def find_shared(architecture: str, folder: Shared, name: str) -> Path | None:
    """The shared C file of that name, if any."""
    files = (where / folder / f"{name}.c" for where in _folders(architecture))
    return next((file for file in files if file.is_file()), None)


def shared_names(architecture: str, folder: Shared) -> tuple[str, ...]:
    """Names of an architecture's shared C files, sorted."""
    return tuple(sorted(file.stem for where in _folders(architecture) for file in where.glob(f"{folder}/*.c")))
