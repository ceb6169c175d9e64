# SPDX-License-Identifier: Apache-2.0
"""Write a package: sources, build files, examples, licence, README, and ``metadata.json``.

The latter has Model Library Format 7 (TVM's ``model_library_format.py``), and additions under ``utvm``.
"""

import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy.typing as npt

from utvm import errors, version
from utvm.base.text import templates
from utvm.compiler import Model, Target, bounded, c_files, compile_model, load
from utvm.compiler.library import ROWS, Library, Placement, Tensor
from utvm.compiler.memory.regions import Memory
from utvm.compiler.package import read
from utvm.compiler.package.read import ALIGNMENT, Terms
from utvm.compiler.target import ANY

# Names reserved by CMake (policy CMP0037), and libraries linked into every program.
_CMAKE_TAKEN = {"all", "help", "install", "preinstall", "clean", "edit_cache", "rebuild_cache", "test", "package"}
_CMAKE_TAKEN |= {"package_source", "ALL_BUILD", "INSTALL", "RUN_TESTS", "PACKAGE", "ZERO_CHECK", "m", "c", "gcc"}

_ROW = 8  # Numbers per line of an example's input.
_ARDUINO_NAME = 63  # Maximum length of an Arduino library's name.

# printf format and cast of an element, so that its text reads back as the same number.
_PRINTED = dict.fromkeys(("bool", "int8", "int16", "int32"), ("%ld", "long"))
_PRINTED |= dict.fromkeys(("uint8", "uint16", "uint32"), ("%lu", "unsigned long"))
_PRINTED |= {"int64": ("%lld", "long long"), "uint64": ("%llu", "unsigned long long")}
_PRINTED |= {"float32": ("%.9g", "double"), "float64": ("%.17g", "double")}

# An empty parameter file in TVM's NDArray list format: magic number, reserved word, no names, no arrays
# (src/runtime/file_utils.h of TVM). The weights are in the C sources.
_NO_PARAMETERS = struct.pack("<4Q", 0xF7E58D4F05049CB7, 0, 0, 0)
VERSION = 7  # Version of Model Library Format.
_OWN_VERSION = 2  # Version of the keys under "utvm".
_CPU = 1  # DLPack's kDLCPU: the only device type of a microcontroller.
_TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")


@dataclass(frozen=True)
class RunStack:
    """Maximum stack of a run, without interrupts, when compiled by this compiler for this core."""

    bytes: int
    cpu: str
    compiler: str


def texts(
    library: Library, terms: read.Terms, example: Sequence[npt.NDArray[Any]] | None, stack: RunStack | None
) -> dict[str, str]:
    """Return path and text of all text files of a package except the sources and ``metadata.json``."""
    environment = templates.templates_of("utvm.compiler.package")
    # NAME in a file's name is the library's; files in parts/ are included by others.
    sources = (name for name in environment.list_templates() if not name.startswith("parts/"))
    files = {name.replace("NAME", library.name): name for name in sources}
    values: dict[str, object] = {
        "name": library.name,
        "target": cmake_target(library.name),
        "macro": library.name.upper(),
        "arduino_name": library.name[:_ARDUINO_NAME],
        "library": library,
        "terms": terms,
        "stack": stack,
        "alignment": read.ALIGNMENT,
        "sources": read.SOURCES,
        "headers": read.HEADERS,
        "c_files": read.c_files(library),
        "public_headers": read.public_headers(library),
        "inputs": _ports(library, "input", example),
        "outputs": _ports(library, "output", None),
    }
    rendered = {path: environment.get_template(template).render(values) for path, template in files.items()}
    # Arduino compiles only src/: it gets a file with one #include for each file elsewhere.
    for kind, folder, names in (
        ("header", read.HEADERS, read.public_headers(library)),
        ("source", read.SOURCES, read.c_files(library)),
    ):
        template = environment.get_template(f"parts/arduino_{kind}")
        for file in names:
            rendered[str(read.ARDUINO / file)] = template.render(values, path=f"../{folder}/{file}")
    return rendered


def cmake_target(name: str) -> str:
    return f"{name}_model" if name in _CMAKE_TAKEN else name


def _ports(library: Library, kind: str, stored: Sequence[npt.NDArray[Any]] | None) -> list[dict[str, object]]:
    tensors, places = (
        (library.inputs, library.input_places) if kind == "input" else (library.outputs, library.output_places)
    )
    if stored is not None and len(stored) != len(tensors):
        raise errors.ConfigError(f"{library.name} takes {len(tensors)} inputs; the example has {len(stored)}")
    regions = [arena.region for arena in library.arenas]
    ports: list[dict[str, object]] = []
    for number, (tensor, place) in enumerate(zip(tensors, places, strict=True)):
        format_, passed_as = _PRINTED[tensor.dtype]
        ports.append(
            {
                "name": f"{kind}_{number}",
                "description": tensor.description,
                "c_type": c_files.C_TYPES[tensor.dtype],
                "elements": math.prod(tensor.shape),
                "bytes": tensor.size_bytes,
                "place": place,
                "region": regions.index(place.region) if place.region != ROWS else None,
                "offset_macro": f"{library.name.upper()}_{kind.upper()}_{number}_OFFSET",
                "format": format_,
                "passed_as": passed_as,
                "rows": _rows(tensor, stored[number]) if stored is not None else "",
            }
        )
    return ports


def _rows(tensor: Tensor, array: npt.NDArray[Any]) -> str:
    if array.shape != tensor.shape or str(array.dtype) != tensor.dtype:
        raise errors.ConfigError(
            f"the example for {tensor.name} is {array.dtype}{list(array.shape)}",
            f"the model takes {tensor.dtype}{list(tensor.shape)}",
        )
    numbers = [c_files.literal(value, tensor.dtype) for value in array.ravel().tolist()]
    rows = (numbers[start : start + _ROW] for start in range(0, len(numbers), _ROW))
    return ",\n".join("    " + ", ".join(row) for row in rows)


def write_package(library: Library, path: Path, **contents: Any) -> Path:
    """Write :func:`package_files` as one archive; its only date is the epoch or ``SOURCE_DATE_EPOCH``."""
    read.write_archive(path, package_files(library, **contents), _time())
    return path


def package_files(
    library: Library,
    *,
    model: Model,
    terms: read.Terms | None = None,
    example: Sequence[npt.NDArray[Any]] | None = None,
    relax: str | None = None,
    misra: Mapping[str, int] | None = None,
    stack: RunStack | None = None,
) -> dict[str, bytes]:
    """Return the files of a package: path to content.

    Args:
        example: inputs of the examples, in the library's order; zeros if there are none.
        relax: the model as Relax text.
        misra: finding counts per rule, from :func:`utvm.compiler.package.misra.misra_counts`.
        stack: maximum stack of a run, if a compiler for a core is known.
    """
    terms = terms or read.Terms()
    time = _time()
    facts = metadata(library, model, terms, time=time, misra=misra, stack=stack)
    files = dict(read.placed_sources(library)) | texts(library, terms, example, stack)
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
    values: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
    signature: str = "",
    name: str | None = None,
    target: Target = ANY,
    executor: Literal["aot", "graph"] = "aot",
    memory: Memory | None = None,
    terms: read.Terms | None = None,
    example: Sequence[npt.NDArray[Any]] | None = None,
    stack: RunStack | None = None,
) -> Path:
    """Compile a model file and write the library as one archive; arguments as ``load`` and ``compile_model``."""
    model = load(model_path, run_python=run_python, shapes=shapes, values=values, signature=signature)
    library = compile_model(model, name=name, target=target, executor=executor, memory=memory)
    return package_library(library, path, model=model, terms=terms, example=example, stack=stack)


def package_library(library: Library, path: Path, *, model: Model, **contents: Any) -> Path:
    """Write a compiled model as :func:`write_package` does, with the model as Relax text."""
    # TVM takes seconds to import, and is needed only here if the library is from the cache.
    from utvm.compiler.frontend import import_model

    def script() -> str:
        return str(import_model(model).module.script(show_meta=False))

    text = bounded.run_bounded(model.origin, "print the model", script)
    return write_package(library, path, model=model, relax=text + "\n", **contents)


def _time() -> int:
    output = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not output.isdecimal():
        raise errors.ConfigError(f"SOURCE_DATE_EPOCH is {output!r}", "give seconds since 1970")
    return int(output)


def metadata(
    library: Library, model: Model, terms: Terms, *, time: int, misra: Mapping[str, int] | None, stack: RunStack | None
) -> dict[str, object]:
    """Return the content of ``metadata.json``."""
    moment = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
    return {
        "version": VERSION,
        "modules": {
            library.name: {
                "model_name": library.name,
                "export_datetime": moment.strftime("%Y-%m-%d %H:%M:%SZ"),
                "style": "full-model",
                "target": ["c"],
                "executors": [library.executor],
                "memory": _memory(library),
                "external_dependencies": [],
            }
        },
        "utvm": _own(library, model, terms)
        | ({} if misra is None else {"misra": dict(misra)})
        | ({} if stack is None else {"stack": asdict(stack)}),
    }


def _memory(library: Library) -> dict[str, object]:
    workspaces = {call.function: 0 for call in library.calls if call.function != "memcpy"}
    for block in library.blocks:
        if block.kind == "workspace" and library.calls[block.first].function in workspaces:
            function = library.calls[block.first].function
            workspaces[function] = max(workspaces[function], block.size)
    memory: dict[str, object] = {
        "functions": {
            "main": [
                {
                    "device": _CPU,
                    # One arena that includes inputs and outputs; io_size_bytes counts these again.
                    "workspace_size_bytes": library.arena_bytes,
                    "constants_size_bytes": library.weights_bytes,
                    "io_size_bytes": sum(tensor.size_bytes for tensor in (*library.inputs, *library.outputs)),
                    "inputs": _by_name(library.inputs),
                    "outputs": _by_name(library.outputs),
                }
            ],
            "operator_functions": [
                {"function_name": function, "workspace": [{"device": _CPU, "workspace_size_bytes": size}]}
                for function, size in workspaces.items()
            ],
        }
    }
    if library.executor == "graph":
        memory["sids"] = [
            {"storage_id": number, "size_bytes": block.size}
            | ({"input_binding": block.tensor} if block.kind == "input" else {})
            for number, block in enumerate(library.blocks)
        ]
    return memory


def _by_name(tensors: Iterable[Tensor]) -> dict[str, object]:
    by_name: dict[str, object] = {}
    for number, tensor in enumerate(tensors):
        name = tensor.name if tensor.name not in by_name else f"{tensor.name}#{number}"
        by_name[name] = {"dtype": tensor.dtype, "size": tensor.size_bytes}
    return by_name


def _own(library: Library, model: Model, terms: Terms) -> dict[str, object]:
    return {
        "version": _OWN_VERSION,
        "generator": {"utvm": version.VERSION, **{package: importlib.metadata.version(package) for package in _TOOLS}},
        "model": {
            "format": model.format,
            "sha256": hashlib.sha256(model.content).hexdigest(),
            "bytes": len(model.content),
        },
        "library_sha256": library.digest,
        "sources": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(library.sources.items())},
        "target": library.target.fields,
        "regions": [
            {"name": arena.region, "bytes": arena.size_bytes, "alignment": ALIGNMENT} for arena in library.arenas
        ],
        "lower_bound_bytes": library.lower_bound_bytes,
        "inputs": _placements(library.inputs, library.input_places),
        "outputs": _placements(library.outputs, library.output_places),
        "calls": [asdict(call) for call in library.calls],
        "plan": [asdict(block) for block in library.blocks],
        "float_leftovers": [asdict(leftover) for leftover in library.leftovers],
        "licenses": {"code": terms.code_license, "weights": terms.weights_license},
    }


def _placements(tensors: Sequence[Tensor], places: Sequence[Placement]) -> list[dict[str, object]]:
    return [
        {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "bytes": tensor.size_bytes,
            "scaling": asdict(tensor.scaling) if tensor.scaling else None,
            "region": place.region,
            "offset": place.offset,
        }
        for tensor, place in zip(tensors, places, strict=True)
    ]
