# SPDX-License-Identifier: Apache-2.0
"""The container image, as an OCI image layout, with its bill of materials and checksums.

The layout is a folder of blobs named by their SHA-256 (OCI image specification, "Image Layout"). It also has the
``manifest.json`` by which engines older than that specification load images. Layers are not compressed:
compressors differ from one version to the next, and with them the image's digest would.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from utvm.base.storage.cache import file_digest
from utvm.environment.layers import VENV, Layers
from utvm.environment.locked import Locked
from utvm.environment.rootfs import Layer
from utvm.environment.store import Progress, replace_folder

NAME = "utvm"
"""Name of the image in an engine."""
_OCI = "application/vnd.oci.image"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """A written image. ``digest`` is of its manifest, ``config`` of its configuration; both with ``sha256:``.

    ``seconds`` is the time of each step.
    """

    layout: Path
    digest: str
    config: str
    tags: tuple[str, ...]
    size: int
    unpacked: int
    seconds: Mapping[str, float] = field(default_factory=dict)


def write_image(
    layers: Sequence[tuple[str, Layer]],
    layout: Path,
    *,
    created: str,
    labels: Mapping[str, str],
    place: str,
    tags: Sequence[str],
) -> Image:
    """Write an image layout into a new folder."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for _, layer in layers:
        link(layer.path, blobs / layer.sha256)
    # Bytecode is kept for later processes, but not beside the checkout's files.
    bytecode = "PYTHONPYCACHEPREFIX=/tmp/python"
    environment = [f"PATH={place}/bin:{_PATH}", f"UTVM_VENV={place}", "LANG=C.UTF-8", bytecode]
    config = _blob(
        blobs,
        {
            "architecture": "amd64",
            "os": "linux",
            "created": created,
            "config": {"Env": environment, "Cmd": ["bash"], "Labels": dict(sorted(labels.items()))},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.sha256}" for _, layer in layers]},
            "history": [{"created": created, "created_by": description} for description, _ in layers],
        },
    )
    manifest = _blob(
        blobs,
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": {"mediaType": f"{_OCI}.config.v1+json", **config},
            "layers": [
                {"mediaType": f"{_OCI}.layer.v1.tar", "digest": f"sha256:{layer.sha256}", "size": layer.size}
                for _, layer in layers
            ],
            "annotations": dict(sorted(labels.items())),
        },
    )
    _write(layout / "oci-layout", {"imageLayoutVersion": "1.0.0"})
    _write_index(layout, manifest, tags)
    digests = [str(config["digest"]), *(f"sha256:{layer.sha256}" for _, layer in layers)]
    own, *files = [f"blobs/{digest.replace(':', '/')}" for digest in digests]
    older = {"Config": own, "RepoTags": list(tags), "Layers": files}
    _write(layout / "manifest.json", [older])
    return Image(
        layout=layout,
        digest=str(manifest["digest"]),
        config=str(config["digest"]),
        tags=tuple(tags),
        size=sum(layer.size for _, layer in layers),
        unpacked=sum(layer.unpacked for _, layer in layers),
    )


def _write_index(layout: Path, manifest: Mapping[str, object], tags: Sequence[str]) -> None:
    entries = [
        {
            "mediaType": f"{_OCI}.manifest.v1+json",
            **manifest,
            "annotations": {
                "io.containerd.image.name": f"docker.io/library/{tag}",
                "org.opencontainers.image.ref.name": tag.rpartition(":")[2],
            },
        }
        for tag in tags
    ]
    _write(layout / "index.json", {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": entries})


def write_archive(layout: Path, output: IO[bytes]) -> None:
    """Write a layout as one tar, the format that engines load, to a stream."""
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(layout.rglob("*")):
            info = tarfile.TarInfo(path.relative_to(layout).as_posix())
            if path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            else:
                info.size = path.stat().st_size
                with path.open("rb") as content:
                    tar.addfile(info, content)


def link(source: Path, target: Path) -> None:
    """Link a file under another name, or copy it if links are not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _blob(blobs: Path, content: object) -> dict[str, object]:
    raw = _json(content)
    digest = hashlib.sha256(raw).hexdigest()
    (blobs / digest).write_bytes(raw)
    return {"digest": f"sha256:{digest}", "size": len(raw)}


def _write(path: Path, content: object) -> None:
    path.write_bytes(_json(content))


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def build(locked: Locked, layers: Layers, output: Path, say: Progress = lambda _: None) -> Image:
    """Build the image, its bill of materials and checksums; they replace the output folder as a whole."""
    below = layers.debian()
    above = layers.python(below)
    say("the image")
    begin = time.monotonic()
    with replace_folder(output) as (whole, _):
        image = write_image(
            [("Debian packages, from debian.lock", below), ("Python packages, from pylock.toml", above)],
            whole / "oci",
            created=locked.debian.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            labels=locked.labels,
            place=VENV,
            tags=tags(locked),
        )
        (whole / "sbom.cdx.json").write_text(layers.bill(below), encoding="utf-8")
        write_sums(whole)
    seconds = {**layers.seconds, "image": time.monotonic() - begin}
    return dataclasses.replace(image, layout=output / "oci", seconds=seconds)


def tags(locked: Locked) -> tuple[str, ...]:
    return (f"{NAME}:{locked.digest[:12]}", f"{NAME}:latest")


def write_sums(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = (f"{file_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
