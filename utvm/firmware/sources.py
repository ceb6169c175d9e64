# SPDX-License-Identifier: Apache-2.0
"""Generated files of an image: program table, client signatures or stored inputs, linker script, MLPerf tasks."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy.typing as npt

from utvm import errors, runtime
from utvm.base.text import quoting, templates
from utvm.boards import Board
from utvm.compiler import Library, Tensor
from utvm.compiler.c_files import CFiles
from utvm.compiler.library import ROWS, Placement, dlpack_code, item_bytes
from utvm.firmware.inputs import as_bytes
from utvm.firmware.module import Module

_ALIGNMENT = 16


def arena_base(library: Library, region: str) -> int:
    offset = 0
    for arena in library.arenas:
        if arena.region == region:
            return offset
        offset += -(-arena.size_bytes // _ALIGNMENT) * _ALIGNMENT
    if region != ROWS:
        raise KeyError(region)
    return offset  # The host writes the whole image behind the arenas.


def arena_address(library: Library, place: Placement) -> int:
    return arena_base(library, place.region) + place.offset


def _arena_size(library: Library, with_inputs: bool) -> int:
    """Return the bytes for the arenas of a library, and for an image of which the firmware hands over the rows."""
    if library.takes_rows and with_inputs:
        return arena_base(library, ROWS) + library.inputs[0].size_bytes
    return max((arena_base(library, arena.region) + arena.size_bytes for arena in library.arenas), default=0)


@dataclass(frozen=True)
class Task:
    """A task of MLPerf Tiny. For ``pictures``, files are unsigned colours; an int8 model takes them minus 128.

    For ``distance``, files are windows of float32, and the result is the mean squared difference between the
    model's output and input.
    """

    says: str
    pictures: bool = False
    distance: bool = False

    def window_bytes(self, library: Library) -> int:
        (tensor,) = library.inputs
        return 4 * math.prod(tensor.shape) if self.distance else tensor.size_bytes


TASKS = {
    "ic01": Task("image classification", pictures=True),
    "vww01": Task("visual wake words", pictures=True),
    "kws01": Task("keyword spotting"),
    "ad01": Task("anomaly detection", distance=True),
}
"""Tasks by the name in a board's reply to ``profile``."""


def task_of(library: Library) -> dict[str, object]:
    """Return the template values of a task; the library's name is that of the task."""
    task = TASKS.get(library.name)
    if task is None:
        raise errors.ConfigError(f"there is no task {library.name!r}", f"tasks: {', '.join(TASKS)}")
    if len(library.inputs) != 1 or len(library.outputs) != 1:
        raise errors.ConfigError(
            f"{task.says} needs a model with one input and one output, not "
            f"{len(library.inputs)} inputs and {len(library.outputs)} outputs"
        )
    (tensor,), (output,) = library.inputs, library.outputs
    if task.distance and (tensor.shape != output.shape or {tensor.dtype, output.dtype} - {"int8", "float32"}):
        raise errors.ConfigError(
            f"{task.says} needs a model with an output like its input, int8 or float32, not "
            f"{tensor.dtype}{list(tensor.shape)} to {output.dtype}{list(output.shape)}"
        )
    return {
        "bytes": task.window_bytes(library),
        "distance": task.distance,
        "flip": task.pictures and tensor.dtype == "int8",
        "count": math.prod(output.shape),
        "input": tensor,
        "output": output,
    }


def _element_type(tensor: Tensor) -> dict[str, int]:
    return {"code": dlpack_code(tensor.dtype), "bits": 8 * item_bytes(tensor.dtype)}


_TEMPLATES = templates.templates_of("utvm.firmware")
_TEMPLATES.filters.update(base=arena_base, address=arena_address, element_type=_element_type)


def _render(template: str, **values: object) -> str:
    return _TEMPLATES.get_template(template).render(**values)


def contents(libraries: Sequence[Library]) -> dict[str, dict[str, bytes]]:
    """Return the contents of large arrays in the libraries' C files, omitted by :func:`generate`."""
    return {
        file: large
        for library in libraries
        if isinstance(library.sources, CFiles)
        for file in library.sources
        if (large := library.sources.large_in(file))
    }


def generate(
    libraries: Sequence[Library],
    executor: runtime.Executor,
    stored: Sequence[npt.ArrayLike],
    linked_by_script: bool,
    module: Module | None = None,
) -> dict[str, str]:
    """Return the generated and the libraries' own files as text by name; a linker script may place the arena."""
    resettable = [library for library in libraries if library.states and executor != "standing_alone"]
    names = [library.name for library in libraries] + [f"{library.name}_reset" for library in resettable]
    if (not names and module is None) or len(set(names)) != len(names):
        raise errors.ConfigError(f"firmware needs libraries of different names, not {names}")
    inputs_apart, stored_inputs = executor in runtime.CLIENT_EXECUTORS, executor == "standing_alone"
    with_inputs = not (inputs_apart or stored_inputs)
    files = {
        "programs.c": _render(
            "programs.c.j2",
            libraries=libraries,
            resettable=resettable,
            arena_bytes=max((_arena_size(library, with_inputs) for library in libraries), default=0),
            steps=max((len(library.calls) for library in libraries), default=0) if executor == "rpc" else 0,
            inputs_apart=inputs_apart,
            stored=stored_inputs,
            linked_by_script=linked_by_script,
        )
    }
    if executor == "rpc":
        files["signatures.c"] = _render(
            "signatures.c.j2",
            libraries=libraries,
            resettable=resettable,
            compiled=module.functions if module else (),
            on_tensors=bool(module and module.libraries),
        )
    if executor == "mlperf":
        files["task.c"] = _render("task.c.j2", **task_of(_only(libraries)))
    if executor == "standing_alone":
        library = _only(libraries)
        files["stored_input.c"] = _render("stored_input.c.j2", library=library, stored=as_bytes(stored, library.inputs))
    for library in libraries:
        own = library.sources.brief if isinstance(library.sources, CFiles) else dict(library.sources)
        if clashes := sorted(own.keys() & files.keys()):
            raise errors.ConfigError(f"{library.name} has a file {clashes[0]}, like the firmware", "rename the library")
        files.update(own)
    return files | dict(module.sources if module else {})


def _only(libraries: Sequence[Library]) -> Library:
    if len(libraries) != 1:
        names = [library.name for library in libraries]
        raise errors.ConfigError(f"standalone firmware runs one model, not {names}", "build one image for each model")
    return libraries[0]


# The protected memory below a stack: an MPU region, aligned to its size.
_GUARD_BYTES = 256


def linker_script(
    board: Board,
    addresses: Mapping[str, int] | None = None,
    constants: Collection[str] = (),
    heap: tuple[int, int] = (0, 0),
) -> str:
    """Return the linker script of an image that starts by itself or, with section addresses, is loaded by a
    debugger.

    ``constants`` are read-only sections kept apart from ``.rodata``; ``heap`` is start and end of clients' memory.
    """
    names = dict.fromkeys(board.layout.regions) if addresses is None else ()
    return _render(
        "linker.ld.j2",
        board=board,
        fault_stack_size=board.cpu_row.handler_stack,
        guard_size=_GUARD_BYTES if board.guards_stack else 0,
        linker_name=quoting.linker_name,
        regions=[board.region(name) for name in names],
        addresses=addresses or {},
        constants=constants,
        heap=heap,
    )
