# SPDX-License-Identifier: Apache-2.0
"""The layers of the container image and of the virtual machine's disk, built once for a lock and cached.

A layer may be built again to verify that it is reproducible; a difference is an error.
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
from utvm.environment.locked import Locked
from utvm.environment.python_lock import Wheel
from utvm.environment.recipe import PythonPart, dpkg_filters
from utvm.environment.rootfs import Layer, Shape, compose, members_of_tree
from utvm.environment.sbom import bill_of_materials, debian_licences, wheel_licences
from utvm.environment.store import Progress, Store, temporary_root
from utvm.errors import ProvisionError

VENV = "/opt/utvm"
"""Path of the virtual environment in the image."""
CHECKOUT = "/utvm"
"""Path of the checkout in a container."""


def make_python_layer(
    python: PythonPart, wheels: Sequence[Wheel], store: Store, folder: Path, epoch: int, files: Mapping[str, str]
) -> Layer:
    """Unpack the wheels without running any program, and write the layer ``python.tar`` into a folder.

    The interpreter is Debian's. Nothing is compiled to bytecode.
    """
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
        # The installer needs the wheel's name; in the store it has its hash.
        named = folder / wheel.file
        named.symlink_to(store.verified(wheel))
        with WheelFile.open(named) as source:
            schemes["headers"] = str(tree / "include" / source.distribution)
            destination = SchemeDictionaryDestination(
                schemes, interpreter=f"{VENV}/bin/python", script_kind="posix", bytecode_optimization_levels=()
            )
            install(source, destination, additional_metadata={})
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


_log = logging.getLogger("utvm.environment")
_LAYER = "layer.tar"
_FACTS = "layer.json"


class Layers:
    """Builds the layers of a locked environment from files in the store, or takes them from the cache.

    Args:
        anew: build cached layers again, and compare.
    """

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
        """Layer of the virtual machine's Debian packages, configured as a bootable system."""
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
        terms |= {wheel.sha256: wheel_licences(self._store.verified(wheel)) for wheel in locked.wheels}
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
            content_key(locked.digest, utvm.__version__, *_programs("rootfs.py", "layers.py", "sbom.py")),
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
                f"{name}: made again from the same lock, the layer has the SHA-256 {layer.sha256}, "
                f"not {before.sha256}",
                f"please report it; the earlier one is in {entry}",
            )
        ready = folder / "ready"
        ready.mkdir()
        layer.path.rename(ready / _LAYER)
        facts = {"sha256": layer.sha256, "size": layer.size, "unpacked": layer.unpacked}
        (ready / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        seal(ready, name)
        if entry.exists():
            entry.rename(folder / "earlier")
        # Another process may have stored the same layer meanwhile.
        if not entry.exists():
            rename_durably(ready, entry)
    return dataclasses.replace(layer, path=entry / _LAYER)


def _read_layer(entry: Path) -> Layer | None:
    """Cached layer, or None if it is missing or damaged."""
    if not entry.exists():
        return None
    if not is_sealed(entry, entry.name):
        _log.warning("%s: damaged, not used; it is built again", entry)
        return None
    facts = json.loads((entry / _FACTS).read_text(encoding="utf-8"))
    return Layer(entry / _LAYER, **facts)
