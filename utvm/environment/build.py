"""From the lock to an image: what is missing is fetched, layers are made once, the result appears whole or not.

A layer is kept under the user's cache by what it was made from. It may be made again to see that it comes out the
same; when it does not, that is an error: the promise of the whole environment is broken.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

import utvm
from utvm.cache import content_key, file_digest
from utvm.environment import debian, python_lock
from utvm.environment.debian import DebianLock, DebianPackage
from utvm.environment.drafts import draft
from utvm.environment.image import NAME, Image, write_image
from utvm.environment.layer import Layer
from utvm.environment.python_layer import PLACE, make_python_layer
from utvm.environment.python_lock import Wheel, WheelLock
from utvm.environment.recipe import PROVISION, Recipe, dpkg_filters, load_recipe
from utvm.environment.rootfs import make_debian_layer
from utvm.environment.sbom import bill_of_materials
from utvm.environment.store import Progress, Store
from utvm.errors import ConfigError, ProvisionError

_FILES = ("environment.yaml", "debian.txt", "debian.lock", "python.in", "python.lock", "wheels.lock")
_LAYER = "layer.tar"
_FACTS = "layer.json"


@dataclass(frozen=True)
class Locked:
    """The environment as it is locked; ``digest`` is a SHA-256 over all files in ``provision/`` that say so."""

    recipe: Recipe
    debian: DebianLock
    wheels: WheelLock
    digest: str
    files: Mapping[str, str]

    @property
    def packages(self) -> tuple[DebianPackage | Wheel, ...]:
        """All packages."""
        return (*self.debian.packages, *self.wheels.wheels)

    @property
    def bill(self) -> str:
        """The bill of materials."""
        return bill_of_materials(self.debian, self.wheels, self.digest)


@dataclass(frozen=True)
class Built:
    """An image that was made, and the seconds that each step took."""

    image: Image
    folder: Path
    seconds: Mapping[str, float]


def load_locked(folder: Path = PROVISION) -> Locked:
    """Read the recipe and its locks, and check that they belong together.

    Raises:
        ConfigError: one is missing, wrong, or was changed without the others.
    """
    recipe = load_recipe(folder)
    packages = debian.load_lock(folder / "debian.lock")
    debian.check_current(packages, recipe)
    wheels = python_lock.load_lock(folder / "wheels.lock")
    python_lock.check_current(wheels, python_lock.pins(folder / "python.lock", recipe.python), recipe)
    files = _read(folder)
    return Locked(recipe, packages, wheels, _digest(files), files)


def environment_digest(folder: Path = PROVISION) -> str:
    """Return the digest of the environment that is asked for, whether or not its lists and locks belong together.

    Raises:
        ConfigError: a file of them cannot be read.
    """
    return _digest(_read(folder))


def _read(folder: Path) -> dict[str, str]:
    try:
        return {name: (folder / name).read_text(encoding="utf-8") for name in _FILES}
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: cannot be read: {error.strerror}", "is the checkout complete?"
        ) from error


def _digest(files: Mapping[str, str]) -> str:
    return content_key(*(part for name in _FILES for part in (name, files[name])))


def fetch(
    locked: Locked, store: Store, archive: Path | None, mirror: str, progress: Progress | None = None
) -> None:
    """Have every package file in the store.

    Args:
        archive: folder of an archive that has them all; the network is left alone.
        mirror: see :func:`utvm.environment.debian.mirrors`.

    Raises:
        ProvisionError: one cannot be had, or is not what the lock says.
    """
    if archive is not None:
        missing = [package for package in locked.packages if not store.has(package)]
        Store(archive).copy(missing, store)
        return
    if not all(map(store.has, locked.debian.packages)):
        store.fetch_debian(locked.debian.packages, debian.mirrors(locked.recipe.debian, mirror), progress)
    store.fetch_wheels(locked.wheels.wheels, locked.recipe.python, progress)


def build(
    locked: Locked,
    store: Store,
    output: Path,
    *,
    anew: bool = False,
    layers: Path | None = None,
    progress: Progress | None = None,
) -> Built:
    """Make the image from files that are in the store, and write it beside its bill of materials and checksums.

    Args:
        output: the folder to write; an earlier image in it is replaced by the whole new one.
        anew: make the layers even if they are kept, and compare them with those.
        layers: where layers are kept; by default under the user's cache directory.

    Raises:
        ProvisionError: a file is damaged, a tool fails, the disk is full, or a layer came out differently.
    """
    kept = layers or Path(platformdirs.user_cache_dir("utvm")) / "layers"
    say = progress or (lambda _: None)
    seconds: dict[str, float] = {}

    def layer(kind: str, make: Callable[[Path], Layer]) -> Layer:
        say(f"the {kind} layer")
        begin = time.monotonic()
        made = _kept_layer(kept, f"{kind}-{_layer_key(locked, kind)}", make, anew)
        seconds[kind] = time.monotonic() - begin
        return made

    below = layer("debian", lambda folder: make_debian_layer(locked.recipe.debian, locked.debian, store, folder))
    above = layer(
        "python",
        lambda folder: make_python_layer(
            locked.recipe.python, locked.wheels, store, folder, locked.debian.epoch, _own_files(locked)
        ),
    )
    begin = time.monotonic()
    with draft(output.parent) as folder:
        whole = folder / "image"
        whole.mkdir()
        image = write_image(
            [("Debian packages, from debian.lock", below), ("Python packages, from wheels.lock", above)],
            whole / "oci",
            created=locked.debian.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            labels=_labels(locked),
            place=PLACE,
            tags=tags(locked),
        )
        (whole / "sbom.cdx.json").write_text(locked.bill, encoding="utf-8")
        _write_sums(whole)
        if output.exists():
            output.rename(folder / "earlier")
        whole.rename(output)
    seconds["image"] = time.monotonic() - begin
    return Built(dataclasses.replace(image, layout=output / "oci"), output, seconds)


def tags(locked: Locked) -> tuple[str, ...]:
    """Return what the image is called in an engine: after its environment, and as the latest one."""
    return (f"{NAME}:{locked.digest[:12]}", f"{NAME}:latest")


def _labels(locked: Locked) -> dict[str, str]:
    return {
        "org.opencontainers.image.title": "utvm environment",
        "org.opencontainers.image.version": utvm.__version__,
        "org.opencontainers.image.created": locked.debian.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "utvm.environment": locked.digest,
        **{
            f"utvm.{name}": hashlib.sha256(locked.files[name].encode()).hexdigest()
            for name in ("debian.lock", "python.lock", "wheels.lock")
        },
    }


def _own_files(locked: Locked) -> dict[str, str]:
    """Return what the image says of itself; by the stamps ``./inv`` sees that it has what a checkout asks for."""
    return {
        "environment.json": json.dumps(_labels(locked), indent=1) + "\n",
        "sbom.cdx.json": locked.bill,
        "debian.stamp": locked.files["debian.txt"],
        "python.stamp": locked.files["python.lock"],
    }


def _layer_key(locked: Locked, kind: str) -> str:
    """Return what tells a layer from others: what is in it, and the programs that shape it."""
    if kind == "debian":
        content = [locked.debian.model_dump_json(), *dpkg_filters(locked.recipe.debian)]
    else:
        content = [locked.digest, utvm.__version__]
    here = Path(__file__).parent
    programs = ("layer.py", {"debian": "rootfs.py", "python": "python_layer.py"}[kind])
    return content_key(*content, *((here / name).read_bytes() for name in programs))


def _kept_layer(kept: Path, name: str, make: Callable[[Path], Layer], anew: bool) -> Layer:
    entry = kept / name
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
        if entry.exists():
            entry.rename(folder / "earlier")
        # Another build may have put the same layer there meanwhile; it is as good.
        if not entry.exists():
            ready.rename(entry)
    return dataclasses.replace(made, path=entry / _LAYER)


def _read_layer(entry: Path) -> Layer | None:
    """Return a kept layer, hashed again, or None: there is none, or it is damaged."""
    path = entry / _LAYER
    if not path.is_file():
        return None
    facts = json.loads((entry / _FACTS).read_text(encoding="utf-8"))
    return Layer(path, **facts) if file_digest(path) == facts["sha256"] else None


def _write_sums(folder: Path) -> None:
    """Write the checksums of all files, as ``sha256sum --check`` reads them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = (f"{file_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
