# SPDX-License-Identifier: Apache-2.0
"""The C that is written for an image: the table of its programs, and what only one executor needs.

For RPC, that is what clients may know of the programs; for an image that stands alone, its stored inputs.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy.typing as npt

from utvm.base.text.templates import templates_of
from utvm.boards import Board
from utvm.compiler import Library, Tensor
from utvm.compiler.c_files import CFiles
from utvm.compiler.library import Placement, dlpack_code, item_bytes
from utvm.compiler.literals import C_TYPES
from utvm.errors import ConfigError
from utvm.firmware.inputs import as_bytes
from utvm.firmware.module import Module
from utvm.runtime import CLIENT_EXECUTORS, Executor

_ALIGNMENT = 16


def arena_base(library: Library, region: str) -> int:
    """Return where a library's region begins in the arena: regions lie one behind the other."""
    offset = 0
    for arena in library.arenas:
        if arena.region == region:
            return offset
        offset += -(-arena.size_bytes // _ALIGNMENT) * _ALIGNMENT
    raise KeyError(region)


def arena_address(library: Library, place: Placement) -> int:
    """Return where an input or output of a library is in the arena."""
    return arena_base(library, place.region) + place.offset


def arena_size(library: Library) -> int:
    """Return the bytes of arena that a library needs."""
    return max((arena_base(library, arena.region) + arena.size_bytes for arena in library.arenas), default=0)


@dataclass(frozen=True)
class Task:
    """One of the benchmark's tasks.

    Attributes:
        says: what it is.
        pictures: whether its files are bytes of colours, which an int8 model takes 128 lower.
        distance: whether its files are windows of float32, and a result is how far the model's output is from its
            input, the mean of squares; else it is the output.
    """

    says: str
    pictures: bool = False
    distance: bool = False

    def window_bytes(self, library: Library) -> int:
        """Return how many bytes the model is sent for one run."""
        (tensor,) = library.inputs
        return 4 * math.prod(tensor.shape) if self.distance else tensor.size_bytes


TASKS = {
    "ic01": Task("image classification", pictures=True),
    "vww01": Task("visual wake words", pictures=True),
    "kws01": Task("keyword spotting"),
    "ad01": Task("anomaly detection", distance=True),
}
"""By the name that a board says in answer to ``profile``."""


def task_of(library: Library) -> dict[str, object]:
    """Return what the template of a task's C is filled in with; a library is called as its task."""
    task = TASKS.get(library.name)
    if task is None:
        raise ConfigError(f"there is no task {library.name!r}", f"tasks: {', '.join(TASKS)}")
    if len(library.inputs) != 1 or len(library.outputs) != 1:
        found = f"{len(library.inputs)} inputs and {len(library.outputs)} outputs"
        raise ConfigError(f"{task.says} takes a model with one input and one output, not {found}")
    (tensor,), (output,) = library.inputs, library.outputs
    if task.distance and (tensor.shape != output.shape or {tensor.dtype, output.dtype} - {"int8", "float32"}):
        said = f"{tensor.dtype}{list(tensor.shape)} to {output.dtype}{list(output.shape)}"
        raise ConfigError(f"{task.says} takes a model whose output is as its input, int8 or float32, not {said}")
    return {
        "bytes": task.window_bytes(library),
        "distance": task.distance,
        "flip": task.pictures and tensor.dtype == "int8",
        "count": math.prod(output.shape),
        "input": tensor,
        "output": output,
        "c_types": C_TYPES,
    }


@dataclass(frozen=True)
class _ElementType:
    code: int
    bits: int


def _element_type(tensor: Tensor) -> _ElementType:
    return _ElementType(dlpack_code(tensor.dtype), 8 * item_bytes(tensor.dtype))


_TEMPLATES = templates_of("utvm.firmware")
_TEMPLATES.filters.update(base=arena_base, address=arena_address, element_type=_element_type)


def render(template: str, **values: object) -> str:
    """Fill in one of the templates."""
    return _TEMPLATES.get_template(template).render(**values)


def contents(libraries: Sequence[Library]) -> dict[str, dict[str, bytes]]:
    """Return of each C file of the libraries what its large arrays hold, which :func:`generate` leaves out."""
    return {
        file: large
        for library in libraries
        if isinstance(library.sources, CFiles)
        for file in library.sources
        if (large := library.sources.large_in(file))
    }


def generate(
    libraries: Sequence[Library],
    executor: Executor,
    stored: Sequence[npt.ArrayLike],
    linked_by_script: bool,
    module: Module | None = None,
) -> dict[str, str]:
    """Return file name to text: tables for some libraries, and the libraries' own files.

    Args:
        stored: the inputs that an image which stands alone runs its model on.
        linked_by_script: whether a linker script of ours decides where the working memory lies.
        module: what a client has uploaded, whose libraries are these.
    """
    resettable = [library for library in libraries if library.states and executor != "standing_alone"]
    names = [library.name for library in libraries] + [f"{library.name}_reset" for library in resettable]
    if (not names and module is None) or len(set(names)) != len(names):
        raise ConfigError(f"firmware needs libraries of different names, not {names}")
    files = {
        "programs.c": render(
            "programs.c.j2",
            libraries=libraries,
            resettable=resettable,
            arena_bytes=max(map(arena_size, libraries), default=0),
            steps=max((len(library.calls) for library in libraries), default=0) if executor == "rpc" else 0,
            inputs_apart=executor in CLIENT_EXECUTORS,
            stored=executor == "standing_alone",
            linked_by_script=linked_by_script,
        )
    }
    if executor == "rpc":
        files["signatures.c"] = render(
            "signatures.c.j2",
            libraries=libraries,
            resettable=resettable,
            compiled=module.functions if module else (),
            on_tensors=bool(module and module.libraries),
        )
    if executor == "mlperf":
        files["task.c"] = render("task.c.j2", **task_of(_only(libraries)))
    if executor == "standing_alone":
        library = _only(libraries)
        files["stored_input.c"] = render(
            "stored_input.c.j2", library=library, stored=as_bytes(stored, library.inputs)
        )
    for library in libraries:
        own = library.sources.brief if isinstance(library.sources, CFiles) else dict(library.sources)
        if taken := sorted(own.keys() & files.keys()):
            raise ConfigError(f"{library.name} has a file {taken[0]}, as the firmware has", "give it another name")
        files.update(own)
    return files | dict(module.sources if module else {})


def _only(libraries: Sequence[Library]) -> Library:
    if len(libraries) != 1:
        names = [library.name for library in libraries]
        raise ConfigError(f"firmware that stands alone runs one model, not {names}", "build one for each model")
    return libraries[0]


# What start-up code forbids below a stack: a region of the core's memory protection, as large as its alignment.
_GUARD_BYTES = 256


def by_region(board: Board) -> str:
    """Return the script for an image that starts by itself: each section in the region that the layout names."""
    regions = [board.region(name) for name in dict.fromkeys(board.layout.regions)]
    return _script(board, regions=regions, addresses={}, constants=(), heap=())


def by_address(
    board: Board,
    addresses: Mapping[str, int],
    constants: Collection[str] = (),
    heap: tuple[int, int] = (0, 0),
) -> str:
    """Return the script for an image that a debugger loads.

    Args:
        addresses: section name to address; a section without one lies anywhere.
        constants: names of read-only sections that are not to become a part of ``.rodata``.
        heap: where memory for clients begins and ends.
    """
    return _script(board, regions=(), addresses=addresses, constants=constants, heap=heap)


def _script(board: Board, **values: object) -> str:
    return render(
        "linker.ld.j2",
        board=board,
        fault_stack_size=board.cpu_row.handler_stack,
        guard_size=_GUARD_BYTES if board.guards_stack else 0,
        **values,
    )
