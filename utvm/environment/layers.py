# SPDX-License-Identifier: Apache-2.0
"""The layers that the container image and the virtual machine's disk are made of, each made once for a lock.

A layer is kept under the user's cache by what it was made from. It may be made again to see that it comes out the
same; when it does not, that is an error: the promise of the whole environment is broken.
"""

import dataclasses
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import utvm
from utvm.base.storage.cache import content_key, is_sealed, seal, settle
from utvm.base.storage.cache_entries import cache_root, use
from utvm.environment import licences, python_layer, rootfs
from utvm.environment.debian import DebianPackage
from utvm.environment.layer import Layer
from utvm.environment.locked import Locked
from utvm.environment.recipe import dpkg_filters
from utvm.environment.rootfs import Shape
from utvm.environment.sbom import bill_of_materials
from utvm.environment.store import Progress, Store
from utvm.environment.temporary_roots import draft
from utvm.errors import ProvisionError

_log = logging.getLogger("utvm.environment")
_LAYER = "layer.tar"
_FACTS = "layer.json"
_PYTHON_PROGRAMS = ("layer.py", "python_layer.py", "licences.py", "sbom.py")


class Layers:
    """Makes the layers of one locked environment from files that are in the store, or takes those that are kept.

    Args:
        folder: where layers are kept; by default under the user's cache directory.
        anew: make them even if they are kept, and compare them with those.
        progress: told which layer is its concern now.

    Attributes:
        seconds: what each layer took.
    """

    def __init__(
        self,
        locked: Locked,
        store: Store,
        *,
        folder: Path | None = None,
        anew: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._locked = locked
        self._store = store
        self._folder = folder or cache_root() / "layers"
        self._anew = anew
        self._say = progress or (lambda _: None)
        self.seconds: dict[str, float] = {}
        self._bill = ""

    def debian(self) -> Layer:
        """Return the container's Debian packages. Every method raises ProvisionError: a file is damaged, a tool
        fails, the disk is full, or the layer came out differently."""
        return self._debian(rootfs.CONTAINER, self._locked.debian.packages)

    def machine(self, shape: Shape) -> Layer:
        """Return the virtual machine's Debian packages, shaped into a system that starts by itself."""
        packages = sorted(
            (*self._locked.debian.packages, *self._locked.debian.machine), key=lambda package: package.name
        )
        return self._debian(shape, packages)

    def bill(self, below: Layer) -> str:
        """Return the bill of materials of the image.

        Args:
            below: a layer with its Debian packages, those of a machine beside them or not.
        """
        if self._bill:
            return self._bill
        locked = self._locked
        of_debian = licences.of_debian(below.path, [package.name for package in locked.debian.packages])
        terms = {package.sha256: of_debian[package.name] for package in locked.debian.packages}
        terms |= {wheel.sha256: licences.of_wheel(self._store.verified(wheel)) for wheel in locked.wheels}
        self._bill = bill_of_materials(locked.debian, locked.wheels, locked.digest, terms)
        return self._bill

    def python(self, below: Layer) -> Layer:
        """Return the Python environment, with the bill of materials in it, for which there is the layer below."""
        locked = self._locked
        # By the stamps ./inv sees that the environment has what a checkout asks for.
        own_files = {
            "environment.json": json.dumps(locked.labels, indent=1) + "\n",
            "debian.stamp": locked.files["debian.txt"],
            "python.stamp": locked.files["pylock.toml"],
        }
        return self._made(
            "python",
            content_key(locked.digest, utvm.__version__, *map(_program, _PYTHON_PROGRAMS)),
            lambda folder: python_layer.make_python_layer(
                locked.recipe.python,
                locked.wheels,
                self._store,
                folder,
                locked.debian.epoch,
                own_files | {"sbom.cdx.json": self.bill(below)},
            ),
        )

    def _debian(self, shape: Shape, packages: "list[DebianPackage] | tuple[DebianPackage, ...]") -> Layer:
        locked = self._locked
        key = content_key(
            locked.debian.date.isoformat(),
            *(package.model_dump_json(exclude={"source"}) for package in packages),
            *dpkg_filters(locked.recipe.debian),
            json.dumps(dataclasses.asdict(shape)),
            _program("layer.py"),
            _program("rootfs.py"),
        )
        return self._made(
            shape.name,
            key,
            lambda folder: rootfs.make_debian_layer(
                locked.recipe.debian, packages, locked.debian.epoch, self._store, shape, folder
            ),
        )

    def _made(self, kind: str, key: str, make: Callable[[Path], Layer]) -> Layer:
        self._say(f"the {kind} layer")
        begin = time.monotonic()
        layer = _kept_layer(self._folder, f"{kind}-{key}", make, self._anew)
        self.seconds[kind] = time.monotonic() - begin
        return layer


def _program(name: str) -> bytes:
    return (Path(__file__).parent / name).read_bytes()


def _kept_layer(kept: Path, name: str, make: Callable[[Path], Layer], anew: bool) -> Layer:
    entry = kept / name
    use(entry)
    before = _read_layer(entry)
    if before is not None and not anew:
        return before
    with draft(kept) as folder:
        made = make(folder)
        if before is not None and before.sha256 != made.sha256:
            raise ProvisionError(
                f"{name}: made again from the same lock, the layer has the SHA-256 {made.sha256}, "
                f"not {before.sha256}",
                f"please report it; the earlier one is in {entry}",
            )
        ready = folder / "ready"
        ready.mkdir()
        made.path.rename(ready / _LAYER)
        facts = {"sha256": made.sha256, "size": made.size, "unpacked": made.unpacked}
        (ready / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        seal(ready, name)
        if entry.exists():
            entry.rename(folder / "earlier")
        # Another build may have put the same layer there meanwhile; it is as good.
        if not entry.exists():
            settle(ready, entry)
    return dataclasses.replace(made, path=entry / _LAYER)


def _read_layer(entry: Path) -> Layer | None:
    """Return a kept layer, hashed again, or None: there is none, or it is damaged."""
    if not entry.exists():
        return None
    if not is_sealed(entry, entry.name):
        _log.warning("%s: damaged, not used; it is made again", entry)
        return None
    facts = json.loads((entry / _FACTS).read_text(encoding="utf-8"))
    return Layer(entry / _LAYER, **facts)
