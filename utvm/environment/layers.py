# SPDX-License-Identifier: Apache-2.0
"""The layers that the container image and the virtual machine's disk are made of, each made once for a lock.

A layer is kept under the user's cache by what it was made from. It may be made again to see that it comes out the
same; when it does not, that is an error: the promise of the whole environment is broken.
"""

import dataclasses
import fnmatch
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

import utvm
from utvm.base.storage.cache import cache_root, content_key, is_sealed, mark_used, rename_durably, seal
from utvm.environment import rootfs
from utvm.environment.debian import DebianPackage
from utvm.environment.layer import Layer, compose, members_of_tree
from utvm.environment.locked import Locked
from utvm.environment.python_lock import Wheel
from utvm.environment.recipe import PythonPart, dpkg_filters
from utvm.environment.rootfs import Shape
from utvm.environment.sbom import bill_of_materials, debian_licences, wheel_licences
from utvm.environment.store import Progress, Store
from utvm.environment.temporary_roots import temporary_root
from utvm.errors import ProvisionError

VENV = "/opt/utvm"
"""Where the virtual environment is in the image."""
CHECKOUT = "/utvm"
"""Where a container has the checkout."""


def make_python_layer(
    python: PythonPart, wheels: Sequence[Wheel], store: Store, folder: Path, epoch: int, files: Mapping[str, str]
) -> Layer:
    """Lay the packages out and write the layer, ``python.tar``, into a folder.

    Args:
        files: other files of the layer, by their names below its place, with their content.
    """
    tree = folder / "venv"
    packages = tree / "lib" / f"python{python.version}" / "site-packages"
    packages.mkdir(parents=True)
    (tree / "bin").mkdir()
    for name in ("python", "python3"):
        (tree / "bin" / name).symlink_to(f"/usr/bin/python{python.version}")
    (tree / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n", encoding="utf-8")
    # The checkout that a container has is importable from everywhere, without being installed.
    (packages / "utvm.pth").write_text(f"{CHECKOUT}\n", encoding="utf-8")
    for wheel in wheels:
        # The name says what a wheel is for; in the store it is called after its hash.
        named = folder / wheel.file
        named.symlink_to(store.verified(wheel))
        with WheelFile.open(named) as source:
            install(source, _destination(tree, packages, source.distribution), additional_metadata={})
        named.unlink()
    for path in sorted(packages.rglob("*")):
        below = path.relative_to(packages).as_posix()
        if any(fnmatch.fnmatchcase(below, pattern) for pattern in python.leave_out) and not path.is_dir():
            path.unlink()
    for name, content in files.items():
        (tree / name).write_text(content, encoding="utf-8")
    layer = compose(members_of_tree(tree, VENV.lstrip("/")), folder / "python.tar", epoch)
    shutil.rmtree(tree)
    return layer


def _destination(tree: Path, packages: Path, distribution: str) -> SchemeDictionaryDestination:
    places = {
        "purelib": packages,
        "platlib": packages,
        "headers": tree / "include" / distribution,
        "scripts": tree / "bin",
        "data": tree,
    }
    return SchemeDictionaryDestination(
        {kind: str(place) for kind, place in places.items()},
        interpreter=f"{VENV}/bin/python",
        script_kind="posix",
        bytecode_optimization_levels=(),
    )


_log = logging.getLogger("utvm.environment")
_LAYER = "layer.tar"
_FACTS = "layer.json"
_PYTHON_PROGRAMS = ("layer.py", "layers.py", "sbom.py")


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
        licences = debian_licences(below.path, [package.name for package in locked.debian.packages])
        terms = {package.sha256: licences[package.name] for package in locked.debian.packages}
        terms |= {wheel.sha256: wheel_licences(self._store.verified(wheel)) for wheel in locked.wheels}
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
            lambda folder: make_python_layer(
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
    mark_used(entry)
    before = _read_layer(entry)
    if before is not None and not anew:
        return before
    with temporary_root(kept) as folder:
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
            rename_durably(ready, entry)
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
