# SPDX-License-Identifier: Apache-2.0
"""The C that is written for an image: the table of its programs, and what only one executor needs.

For RPC, that is what clients may know of the programs; for an image that stands alone, its stored inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy.typing as npt

from utvm.base.text.templates import templates_of
from utvm.compiler import Library, Tensor
from utvm.compiler.c_files import CFiles
from utvm.compiler.library import dlpack_code, item_bytes
from utvm.errors import ConfigError
from utvm.firmware import working_memory
from utvm.firmware.inputs import as_bytes
from utvm.firmware.module import Module
from utvm.firmware.tasks import task_of
from utvm.runtime import ASKED, Executor


@dataclass(frozen=True)
class _ElementType:
    code: int
    bits: int


def _element_type(tensor: Tensor) -> _ElementType:
    return _ElementType(dlpack_code(tensor.dtype), 8 * item_bytes(tensor.dtype))


_TEMPLATES = templates_of("utvm.firmware")
_TEMPLATES.filters.update(base=working_memory.base, address=working_memory.address, element_type=_element_type)


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
            arena_bytes=max(map(working_memory.size, libraries), default=0),
            steps=max((len(library.calls) for library in libraries), default=0) if executor == "rpc" else 0,
            inputs_apart=executor in ASKED,
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
