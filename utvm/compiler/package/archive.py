# SPDX-License-Identifier: Apache-2.0
"""A package: sources, build files, examples, licence, README, and ``metadata.json``, written and read.

The latter has Model Library Format 7 (TVM's ``model_library_format.py``), and additions under ``utvm``.
"""

import datetime
import hashlib
import importlib.metadata
import io
import json
import math
import os
import re
import struct
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Literal

import numpy.typing as npt
from pydantic import TypeAdapter

from utvm import errors, paths, version
from utvm.base.storage.files import write_whole
from utvm.base.text import templates
from utvm.compiler import Model, bounded, compile_model, load
from utvm.compiler.c_files import C_TYPES, literal
from utvm.compiler.library import ROWS, Arena, Call, Library, Placement, Tensor
from utvm.compiler.memory.regions import Memory
from utvm.compiler.target import ANY, Target

# Semantic Versioning 2.0.0, section 2, without pre-release and build tags, as Arduino's library manager requires.
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


@dataclass(frozen=True)
class Terms:
    """Author and licence terms of a package."""

    version: str = "0.1.0"
    author: str = "unknown"
    url: str = "https://example.invalid/"
    code_license: str = "Apache-2.0"
    weights_license: str = "NOASSERTION"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value.strip() or not value.isprintable():
                raise errors.ConfigError(f"a package's {field.name} cannot be {value!r}", "give one line of text")
        if not _VERSION.fullmatch(self.version):
            raise errors.ConfigError(f"a package's version cannot be {self.version!r}", "give three numbers: 1.0.0")


ALIGNMENT = 16  # Alignment in bytes of each region of working memory, as in NAME.h.
SOURCES = PurePosixPath("codegen/host/src")  # C files and private headers (Model Library Format's folder).
HEADERS = PurePosixPath("codegen/host/include")  # Public headers (Model Library Format's folder).
GRAPHS = PurePosixPath("executor-config/graph")
"""Graph executor descriptions (Model Library Format's folder)."""

ARDUINO = PurePosixPath("src")
"""Folder that Arduino compiles: its files include those above. In the format, it has the model's text."""


def public_headers(library: Library) -> list[str]:
    names = (f"{library.name}.h", f"{library.name}_graph_executor.h")
    return [name for name in names if name in library.sources]


def c_files(library: Library) -> list[str]:
    return sorted(name for name in library.sources if name.endswith(".c"))


def placed_sources(library: Library) -> Iterator[tuple[str, str]]:
    """Yield path in the package and text of each file of a library."""
    public = public_headers(library)
    for name, text in library.sources.items():
        if name.endswith(".json"):
            yield str(GRAPHS / f"{library.name}.graph"), text
        else:
            yield str((HEADERS if name in public else SOURCES) / name), text


def write_archive(path: Path, files: Mapping[str, bytes], time: int) -> None:
    """Write an uncompressed tar archive, reproducibly; as in TVM's archives, names begin with ``./``."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(files[name])
            member.mtime = time
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    write_whole(path, stream.getvalue())


_SCHEMA = paths.DATA / "docs" / "package.schema.json"
_HINT = "model.package writes one"


_TENSORS, _PLACES = TypeAdapter(tuple[Tensor, ...]), TypeAdapter(tuple[Placement, ...])


def read_package(name: str, files: Mapping[str, bytes]) -> Library:
    """Return the library of a package, without compiler-only data (single operators, weights)."""
    import jsonschema  # Slow to import, and few commands read packages.

    try:
        content = json.loads(files["metadata.json"])
        jsonschema.validate(content, json.loads(_SCHEMA.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise errors.ConfigError(f"{name}: metadata.json is not JSON", _HINT) from error
    except jsonschema.ValidationError as error:
        raise errors.ConfigError(f"{name}: metadata.json: {error.json_path}: {error.message[:200]}", _HINT) from error
    (module,) = list(content["modules"].values())[:1]
    own = content["utvm"]
    return Library(
        name=module["model_name"],
        sources={file: _source(name, file, digest, files) for file, digest in own["sources"].items()},
        inputs=_TENSORS.validate_python(own["inputs"]),
        outputs=_TENSORS.validate_python(own["outputs"]),
        arenas=tuple(Arena(region["name"], region["bytes"]) for region in own["regions"]),
        input_places=_PLACES.validate_python(own["inputs"]),
        output_places=_PLACES.validate_python(own["outputs"]),
        calls=TypeAdapter(tuple[Call, ...]).validate_python(own["calls"]),
        weights_bytes=module["memory"]["functions"]["main"][0]["constants_size_bytes"],
        target=Target(own["target"]["core"], tuple(own["target"]["extensions"]), own["target"]["row"]),
        executor=module["executors"][0],
        model=own["model"]["sha256"],
    )


def _source(name: str, file: str, digest: str, files: Mapping[str, bytes]) -> str:
    matches = [files[place] for folder in (SOURCES, HEADERS) if (place := f"{folder}/{file}") in files]
    if file.endswith(".json"):
        matches = [data for place, data in files.items() if place.startswith(f"{GRAPHS}/")]
    if "/" in file or not matches or hashlib.sha256(matches[0]).hexdigest() != digest:
        raise errors.ConfigError(f"{name}: {file} is missing or was changed since it was packaged", "package it again")
    return matches[0].decode("utf-8", "replace")


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
    library: Library, terms: Terms, example: Sequence[npt.NDArray[Any]] | None, stack: RunStack | None
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
        "alignment": ALIGNMENT,
        "sources": SOURCES,
        "headers": HEADERS,
        "c_files": c_files(library),
        "public_headers": public_headers(library),
        "inputs": _ports(library, "input", example),
        "outputs": _ports(library, "output", None),
    }
    rendered = {path: environment.get_template(template).render(values) for path, template in files.items()}
    # Arduino compiles only src/: it gets a file with one #include for each file elsewhere.
    for kind, folder, names in (("header", HEADERS, public_headers(library)), ("source", SOURCES, c_files(library))):
        template = environment.get_template(f"parts/arduino_{kind}")
        for file in names:
            rendered[str(ARDUINO / file)] = template.render(values, path=f"../{folder}/{file}")
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
                "c_type": C_TYPES[tensor.dtype],
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
    numbers = [literal(value, tensor.dtype) for value in array.ravel().tolist()]
    rows = (numbers[start : start + _ROW] for start in range(0, len(numbers), _ROW))
    return ",\n".join("    " + ", ".join(row) for row in rows)


def write_package(library: Library, path: Path, **contents: Any) -> Path:
    """Write :func:`package_files` as one archive; its only date is the epoch or ``SOURCE_DATE_EPOCH``."""
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
    """Return the files of a package: path to content.

    Args:
        example: inputs of the examples, in the library's order; zeros if there are none.
        relax: the model as Relax text.
        misra: finding counts per rule, from :func:`utvm.compiler.package.misra.misra_counts`.
        stack: maximum stack of a run, if a compiler for a core is known.
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
    values: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
    signature: str = "",
    name: str | None = None,
    target: Target = ANY,
    executor: Literal["aot", "graph"] = "aot",
    memory: Memory | None = None,
    terms: Terms | None = None,
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
