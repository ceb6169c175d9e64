# SPDX-License-Identifier: Apache-2.0
"""Layers of image and machine, built once for a lock and cached, and the container image as an OCI image layout.

Rebuilding a layer verifies that it is reproducible; a difference is an error. The layout is a folder of blobs
named by their SHA-256 (OCI image specification, "Image Layout"), with ``manifest.json`` for older engines. Layers
are not compressed: another compressor version would change the digest.
"""

import dataclasses
import fnmatch
import hashlib
import json
import logging
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import utvm
from utvm.base.storage.cache import cache_root, content_key, file_digest, is_sealed, mark_used, rename_durably, seal
from utvm.environment import rootfs
from utvm.environment.debian import DebianPackage
from utvm.environment.locked import Locked, Progress, Store, replace_folder, temporary_root
from utvm.environment.python_lock import Wheel
from utvm.environment.recipe import PythonPart, dpkg_filters
from utvm.environment.rootfs import Layer, Shape, compose, members_of_tree
from utvm.environment.sbom import bill_of_materials, debian_licences, wheel_licences
from utvm.errors import ProvisionError

VENV = "/opt/utvm"
"""Path of the virtual environment in the image."""
CHECKOUT = "/utvm"
"""Path of the checkout in a container."""


def make_python_layer(
    python: PythonPart, wheels: Sequence[Wheel], store: Store, folder: Path, epoch: int, files: Mapping[str, str]
) -> Layer:
    """Unpack the wheels without running any program, and write the layer ``python.tar`` into a folder.

    Uses Debian's interpreter, without bytecode.
    """
    # Only a build needs it: utvm's wheel comes without.
    from installer import install
    from installer.destinations import SchemeDictionaryDestination
    from installer.sources import WheelFile

    tree = folder / "venv"
    packages = tree / "lib" / f"python{python.version}" / "site-packages"
    packages.mkdir(parents=True)
    (tree / "bin").mkdir()
    for name in ("python", "python3"):
        (tree / "bin" / name).symlink_to(f"/usr/bin/python{python.version}")
    (tree / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n", encoding="utf-8")
    # Makes the container's checkout importable from everywhere.
    (packages / "utvm.pth").write_text(f"{CHECKOUT}\n", encoding="utf-8")
    schemes = {kind: str(packages) for kind in ("purelib", "platlib")}
    schemes |= {"scripts": str(tree / "bin"), "data": str(tree)}
    for wheel in wheels:
        # The installer needs the wheel's name; the store names it by its hash.
        link = folder / wheel.file
        link.symlink_to(store.verify(wheel))
        with WheelFile.open(link) as source:
            schemes["headers"] = str(tree / "include" / source.distribution)
            destination = SchemeDictionaryDestination(
                schemes, interpreter=f"{VENV}/bin/python", script_kind="posix", bytecode_optimization_levels=()
            )
            install(source, destination, additional_metadata={})
        link.unlink()
    for path in sorted(packages.rglob("*")):
        below = path.relative_to(packages).as_posix()
        if any(fnmatch.fnmatchcase(below, pattern) for pattern in python.leave_out) and not path.is_dir():
            path.unlink()
    for name, content in files.items():
        (tree / name).write_text(content, encoding="utf-8")
    layer = compose(members_of_tree(tree, VENV.lstrip("/")), folder / "python.tar", epoch)
    shutil.rmtree(tree)
    return layer


_log = logging.getLogger("utvm.environment")
_LAYER = "layer.tar"
_FACTS = "layer.json"


class Layers:
    """Builds the layers of a locked environment from the store, or takes them from the cache."""

    def __init__(
        self,
        locked: Locked,
        store: Store,
        *,
        folder: Path | None = None,
        anew: bool = False,
        say: Progress = lambda _: None,
    ) -> None:
        self._locked = locked
        self._store = store
        self._folder = folder or cache_root() / "layers"
        self._anew = anew
        self._say = say
        self.seconds: dict[str, float] = {}
        self._bill = ""

    def debian(self) -> Layer:
        return self._debian(rootfs.CONTAINER, self._locked.debian.packages)

    def machine(self, shape: Shape) -> Layer:
        packages = sorted(
            (*self._locked.debian.packages, *self._locked.debian.machine), key=lambda package: package.name
        )
        return self._debian(shape, packages)

    def bill(self, below: Layer) -> str:
        if self._bill:
            return self._bill
        locked = self._locked
        licences = debian_licences(below.path, [package.name for package in locked.debian.packages])
        terms = {package.sha256: licences[package.name] for package in locked.debian.packages}
        terms |= {wheel.sha256: wheel_licences(self._store.verify(wheel)) for wheel in locked.wheels}
        self._bill = bill_of_materials(locked.debian, locked.wheels, locked.digest, terms)
        return self._bill

    def python(self, below: Layer) -> Layer:
        locked = self._locked
        # ./inv compares the stamps with the checkout's lists.
        own_files = {
            "environment.json": json.dumps(locked.labels, indent=1) + "\n",
            "debian.stamp": locked.files["debian.txt"],
            "python.stamp": locked.files["pylock.toml"],
        }
        return self._build(
            "python",
            content_key(locked.digest, utvm.__version__, *_programs("rootfs.py", "image.py", "sbom.py")),
            lambda folder: make_python_layer(
                locked.recipe.python,
                locked.wheels,
                self._store,
                folder,
                locked.debian.epoch,
                own_files | {"sbom.cdx.json": self.bill(below)},
            ),
        )

    def _debian(self, shape: Shape, packages: Sequence[DebianPackage]) -> Layer:
        locked = self._locked
        key = content_key(
            locked.debian.date.isoformat(),
            *(package.model_dump_json(exclude={"source"}) for package in packages),
            *dpkg_filters(locked.recipe.debian),
            json.dumps(dataclasses.asdict(shape)),
            *_programs("rootfs.py"),
        )
        return self._build(
            shape.name,
            key,
            lambda folder: rootfs.make_debian_layer(
                locked.recipe.debian, packages, locked.debian.epoch, self._store, shape, folder
            ),
        )

    def _build(self, kind: str, key: str, make: Callable[[Path], Layer]) -> Layer:
        self._say(f"the {kind} layer")
        begin = time.monotonic()
        layer = _cached_layer(self._folder, f"{kind}-{key}", make, self._anew)
        self.seconds[kind] = time.monotonic() - begin
        return layer


def _programs(*names: str) -> list[bytes]:
    return [Path(__file__).with_name(name).read_bytes() for name in names]


def _cached_layer(cache: Path, name: str, make: Callable[[Path], Layer], anew: bool) -> Layer:
    entry = cache / name
    mark_used(entry)
    before = _read_layer(entry)
    if before is not None and not anew:
        return before
    with temporary_root(cache) as folder:
        layer = make(folder)
        if before is not None and before.sha256 != layer.sha256:
            raise ProvisionError(
                f"{name}: rebuilt from the same lock, the layer has the SHA-256 {layer.sha256}, not {before.sha256}",
                f"please report it; the earlier one is in {entry}",
            )
        complete = folder / "ready"
        complete.mkdir()
        layer.path.rename(complete / _LAYER)
        facts = {"sha256": layer.sha256, "size": layer.size, "unpacked": layer.unpacked}
        (complete / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        seal(complete, name)
        if entry.exists():
            entry.rename(folder / "earlier")
        # Another process may have stored the same layer meanwhile.
        if not entry.exists():
            rename_durably(complete, entry)
    return dataclasses.replace(layer, path=entry / _LAYER)


def _read_layer(entry: Path) -> Layer | None:
    if not entry.exists():
        return None
    if not is_sealed(entry, entry.name):
        _log.warning("%s: damaged, not used; it is built again", entry)
        return None
    facts = json.loads((entry / _FACTS).read_text(encoding="utf-8"))
    return Layer(entry / _LAYER, **facts)


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
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for _, layer in layers:
        link(layer.path, blobs / layer.sha256)
    # Bytecode is cached for later processes, but not beside the checkout's files.
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
    """Write a layout as a tar stream, the format that engines load."""
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
    """Hard-link a file, or copy it if links are not possible."""
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
    """Build the image, its bill of materials and checksums, replacing the whole output folder."""
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
