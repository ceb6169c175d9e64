# SPDX-License-Identifier: Apache-2.0
"""The archive of a package: its folders and terms; read a library from it."""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter

from utvm import errors, paths
from utvm.base.storage.files import write_whole
from utvm.compiler.library import Arena, Call, Library, Placement, Tensor
from utvm.compiler.target import Target

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
