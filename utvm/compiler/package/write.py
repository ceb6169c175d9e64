# SPDX-License-Identifier: Apache-2.0
"""Writing a package: the whole content, and the way from a model file."""

import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy.typing as npt

from utvm.compiler import Library, Model, Target, compile_model, load
from utvm.compiler.bounded import bounded
from utvm.compiler.memory.regions import Memory
from utvm.compiler.package.metadata import RunStack, metadata
from utvm.compiler.package.read import Terms, placed_sources, write_archive
from utvm.compiler.package.texts import texts
from utvm.compiler.target import ANY
from utvm.errors import ConfigError

# A parameter file of TVM's NDArray list format without arrays: magic number, reserved word, no names, no arrays
# (src/runtime/file_utils.h of TVM). The weights are in the C sources.
_NO_PARAMETERS = struct.pack("<4Q", 0xF7E58D4F05049CB7, 0, 0, 0)


def write_package(library: Library, path: Path, **contents: Any) -> Path:
    """Write a library as one archive; arguments as :func:`package_files`, which decide its bytes.

    The only date in it is the epoch, or the environment's ``SOURCE_DATE_EPOCH``.
    """
    write_archive(path, package_files(library, **contents), _time())
    return path


def package_files(
    library: Library,
    *,
    model: Model,
    terms: Terms | None = None,
    example: Sequence[npt.NDArray[Any]] | None = None,
    relax: str | None = None,
    misra: Mapping[str, int] | None = None,
    stack: RunStack | None = None,
) -> dict[str, bytes]:
    """The files of a package: path to content.

    Args:
        model: from which the library was compiled.
        terms: version, author and licences.
        example: inputs that the examples run on, in the library's order; zeros if there are none.
        relax: the model as Relax text.
        misra: findings for each MISRA rule, from :func:`utvm.compiler.package.misra.misra_counts`.
        stack: of a run, where a compiler for a core is known.
    """
    terms = terms or Terms()
    time = _time()
    facts = metadata(library, model, terms, time=time, misra=misra, stack=stack)
    files = dict(placed_sources(library)) | texts(library, terms, example, stack)
    files["metadata.json"] = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    if relax is not None:
        files[f"src/{library.name}.relax"] = relax
    content = {name: text.encode() for name, text in files.items()}
    content[f"parameters/{library.name}.params"] = _NO_PARAMETERS
    return content


def package_model(
    model_path: Path,
    path: Path,
    *,
    run_python: bool = False,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    name: str | None = None,
    target: Target = ANY,
    executor: Literal["aot", "graph"] = "aot",
    memory: Memory | None = None,
    terms: Terms | None = None,
    example: Sequence[npt.NDArray[Any]] | None = None,
    stack: RunStack | None = None,
) -> Path:
    """Compile a model file and write the library as one archive.

    Args:
        run_python, shapes: as :func:`utvm.compiler.load`.
        name: of the library; by default the model's.
        target: the CPU that kernels are chosen for; by default, any.
        executor: ahead of time, or driven by a graph description.
        memory: regions and pins; one region as large as it must be if there are none.
    """
    model = load(model_path, run_python=run_python, shapes=shapes)
    library = compile_model(model, name=name, target=target, executor=executor, memory=memory)
    # TVM takes seconds to import, and is needed only here if the library came out of the cache.
    from utvm.compiler.frontend import import_model

    def script() -> str:
        return str(import_model(model).module.script(show_meta=False))

    text = bounded(model.origin, "print the model", script)
    return write_package(library, path, model=model, terms=terms, example=example, relax=text + "\n", stack=stack)


def _time() -> int:
    said = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not said.isdecimal():
        raise ConfigError(f"SOURCE_DATE_EPOCH is {said!r}", "give seconds since 1970")
    return int(said)
