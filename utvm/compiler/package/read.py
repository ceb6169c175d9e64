# SPDX-License-Identifier: Apache-2.0
"""Packages as archives, and reading one back: the library, as far as a firmware needs it."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from utvm.base.storage.files import write_whole
from utvm.compiler.library import Arena, Call, Library, Placement, Scaling, Tensor
from utvm.compiler.package.layout import GRAPHS, HEADERS, SOURCES
from utvm.compiler.target import Target
from utvm.errors import ConfigError
from utvm.paths import DATA


def write_archive(path: Path, files: Mapping[str, bytes], time: int) -> None:
    """Write files into an uncompressed tar archive.

    Names are sorted and begin with ``./``, as in the archives of TVM, whose readers open ``./metadata.json``.
    Owner, group and mode are the same for all, so equal files give equal bytes.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(files[name])
            member.mtime = time
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    write_whole(path, stream.getvalue())


_SCHEMA = DATA / "docs" / "package.schema.json"
_HINT = "model.package writes one"


def read_package(name: str, files: Mapping[str, bytes]) -> Library:
    """The library of a package, without what only its compiler knows: operators by themselves, weights."""
    import jsonschema  # Slow to import, and few commands read packages.

    try:
        content = json.loads(files["metadata.json"])
        jsonschema.validate(content, json.loads(_SCHEMA.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: metadata.json is no JSON", _HINT) from error
    except jsonschema.ValidationError as error:
        raise ConfigError(f"{name}: metadata.json: {error.json_path}: {error.message[:200]}", _HINT) from error
    (module,) = list(content["modules"].values())[:1]
    own = content["utvm"]
    return Library(
        name=module["model_name"],
        sources={file: _source(name, file, digest, files) for file, digest in own["sources"].items()},
        inputs=_tensors(own["inputs"]),
        outputs=_tensors(own["outputs"]),
        arenas=tuple(Arena(region["name"], region["bytes"]) for region in own["regions"]),
        input_places=_places(own["inputs"]),
        output_places=_places(own["outputs"]),
        calls=tuple(
            Call(
                item["function"],
                item["kind"],
                item["macs"],
                tuple(item["reads"]),
                tuple(item["writes"]),
                item.get("kernel", ""),
            )
            for item in own["calls"]
        ),
        weights_bytes=module["memory"]["functions"]["main"][0]["constants_size_bytes"],
        target=Target(own["target"]["core"], tuple(own["target"]["extensions"]), own["target"]["row"]),
        executor=module["executors"][0],
        model=own["model"]["sha256"],
    )


def _source(name: str, file: str, digest: str, files: Mapping[str, bytes]) -> str:
    found = [files[place] for folder in (SOURCES, HEADERS) if (place := f"{folder}/{file}") in files]
    if file.endswith(".json"):
        found = [data for place, data in files.items() if place.startswith(f"{GRAPHS}/")]
    if "/" in file or not found or hashlib.sha256(found[0]).hexdigest() != digest:
        raise ConfigError(f"{name}: {file} is missing or was changed since it was packaged", "package it again")
    return found[0].decode("utf-8", "replace")


def _tensors(described: Iterable[Mapping[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            item["name"],
            tuple(item["shape"]),
            item["dtype"],
            Scaling(item["scaling"]["scale"], item["scaling"]["zero_point"]) if item["scaling"] else None,
        )
        for item in described
    )


def _places(described: Iterable[Mapping[str, Any]]) -> tuple[Placement, ...]:
    return tuple(Placement(item["region"], item["offset"]) for item in described)
