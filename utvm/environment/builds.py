# SPDX-License-Identifier: Apache-2.0
"""The Vagrant box, and building image or box of the checkout's locks if it is missing.

The box is the machine's disk with its metadata, and a catalogue with the box's checksum.
"""

import contextlib
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker

from utvm.base.storage.cache import file_digest
from utvm.base.storage.lock import hold
from utvm.environment import engine
from utvm.environment.debian import DebianPackage
from utvm.environment.disk import make_disk
from utvm.environment.image import Image, build, tags, write_sums
from utvm.environment.layers import Layers
from utvm.environment.locked import Locked, fetch, load_locked
from utvm.environment.python_lock import Wheel
from utvm.environment.rootfs import Shape
from utvm.environment.store import Progress, Store, replace_folder
from utvm.errors import BoardError, ProvisionError
from utvm.paths import ROOT
from utvm.provenance.location import MACHINE

_ROOT = f"{MACHINE}root/"  # files of the machine
_CONFIGURE = f"{MACHINE}configure.sh"  # runs when all packages are installed
# The public half of the pair that every Vagrant has (its documentation, "Creating a Base Box").
_KEY = f"{MACHINE}vagrant.pub"

# The drivers in the initial RAM disk must not depend on the machine that builds the box.
_BEFORE = """
set -e
mkdir -p "$1/etc/initramfs-tools/conf.d"
printf '%s\\n' $UTVM_DRIVERS > "$1/etc/initramfs-tools/modules"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/utvm"
"""


def machine_shape(locked: Locked) -> Shape:
    drivers = locked.recipe.machine.early_drivers
    return Shape(
        name="machine",
        # The kernel makes the nodes; mmdebstrap's are those of the computer at hand.
        leave_out=("dev/",),
        before=_BEFORE,
        files={name.removeprefix(_ROOT): text for name, text in locked.files.items() if name.startswith(_ROOT)},
        after=locked.files[_CONFIGURE],
        variables={"UTVM_DRIVERS": " ".join(drivers), "UTVM_VAGRANT_KEY": locked.files[_KEY].strip()},
    )


BOX = "utvm.box"
CATALOGUE = "utvm.json"
KERNEL = "vmlinuz"
"""In the box beside the disk: starting the kernel alone shows quickly whether an accelerator works."""

# How the disk is attached.
_VAGRANTFILE = """Vagrant.configure("2") do |config|
  config.vm.provider :libvirt do |libvirt|
    libvirt.disk_bus = "virtio"
  end
end
"""


@dataclass(frozen=True)
class BuiltBox:
    """A built box: ``digest`` is the SHA-256 of its file, ``seconds`` the time of each step."""

    folder: Path
    digest: str
    size: int
    seconds: Mapping[str, float]


def box_name(locked: Locked) -> str:
    return f"utvm/{locked.digest[:12]}"


def box_version(locked: Locked) -> str:
    return f"{locked.debian.date:%Y.%m.%d}"


def build_box(locked: Locked, layers: Layers, output: Path, say: Progress = lambda _: None) -> BuiltBox:
    """Build the box, its catalogue and checksums; they replace the output folder as a whole."""
    system = layers.machine(machine_shape(locked))
    python = layers.python(system)
    begin = time.monotonic()
    with replace_folder(output) as (whole, folder):
        work = folder / "work"
        work.mkdir()
        say("the disk")
        make_disk(
            [system.path, python.path],
            work,
            folder / "disk.qcow2",
            folder / KERNEL,
            name=locked.digest,
            epoch=locked.debian.epoch,
            gib=locked.recipe.machine.disk_gib,
        )
        say("the box")
        _write_box(folder / "disk.qcow2", folder / KERNEL, whole / BOX, locked)
        digest = file_digest(whole / BOX)
        (whole / CATALOGUE).write_text(_catalogue(locked, digest), encoding="utf-8")
        write_sums(whole)
    seconds = {**layers.seconds, "disk and box": time.monotonic() - begin}
    return BuiltBox(output, digest, (output / BOX).stat().st_size, seconds)


def _write_box(disk: Path, kernel: Path, output: Path, locked: Locked) -> None:
    """Write the archive (vagrant-libvirt, "Box Format"); the disk is already compressed."""
    metadata = {"provider": "libvirt", "format": "qcow2", "virtual_size": locked.recipe.machine.disk_gib}
    texts = {"Vagrantfile": _VAGRANTFILE, "metadata.json": json.dumps(metadata)}
    with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in sorted(texts.items()):
            (output.parent / name).write_text(text, encoding="utf-8")
            _add(tar, output.parent / name, name, locked.debian.epoch)
            (output.parent / name).unlink()
        _add(tar, disk, "box.img", locked.debian.epoch)
        _add(tar, kernel, KERNEL, locked.debian.epoch)


def _add(tar: tarfile.TarFile, path: Path, name: str, epoch: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = path.stat().st_size, epoch, 0o644
    with path.open("rb") as content:
        tar.addfile(info, content)


def _catalogue(locked: Locked, digest: str) -> str:
    """Catalogue of the box beside it (Vagrant, "Box Catalog Metadata")."""
    provider = {"name": "libvirt", "url": BOX, "checksum_type": "sha256", "checksum": digest}
    catalogue = {
        "name": box_name(locked),
        "description": f"utvm environment {locked.digest}",
        "versions": [{"version": box_version(locked), "providers": [provider]}],
    }
    return json.dumps(catalogue, indent=1) + "\n"


IMAGE_FOLDER = ROOT / "build" / "environment"
BOX_FOLDER = ROOT / "build" / "box"
# On two idle cores with an empty cache (benchmarks/README.md), rounded up.
_IMAGE_MINUTES = 2
_BOX_MINUTES = 3
_LOCK_TIMEOUT = 3600.0  # Seconds that another process may take to build it.
_MB = 1_000_000


@contextlib.contextmanager
def hold_alone(what: str, hint: str, patience: float, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock of this computer, see :func:`utvm.base.storage.lock.hold`, or raise ProvisionError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold(what, patience=patience, waiting=waiting))
        except BoardError as error:
            raise ProvisionError(error.message, hint) from None
        yield


def make_image(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> Image:
    """Build the container image in its folder in the checkout."""
    store = Store()
    fetch(locked, store, archive, mirror, say)
    return build(locked, Layers(locked, store, anew=anew, say=say), IMAGE_FOLDER, say)


def make_box(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> BuiltBox:
    """Build the machine's box in its folder in the checkout, see :func:`make_image`."""
    store = Store()
    fetch(locked, store, archive, mirror, say, machine=True)
    return build_box(locked, Layers(locked, store, anew=anew, say=say), BOX_FOLDER, say)


def ensure_image(client: docker.DockerClient, say: Progress) -> str:
    """Tag of the image of the checkout's locks, which is built if the engine has none."""
    locked = load_locked()
    name = tags(locked)[0]
    if not engine.has_tag(client, name):
        what = f"making the image {name}"
        with hold_alone(what, "wait for its end", _LOCK_TIMEOUT, lambda who: say(f"waiting: {what}, {who}")):
            # Another process may have built it meanwhile.
            if not engine.has_tag(client, name):
                _announce("container image", locked.packages, _IMAGE_MINUTES, say)
                built = make_image(locked, say)
                say("loading it into the engine")
                engine.load_image(client, built)
    return name


def make_missing_box(locked: Locked, say: Progress) -> None:
    _announce("box", locked.machine_packages, _BOX_MINUTES, say)
    make_box(locked, say)


def _announce(what: str, packages: Sequence[DebianPackage | Wheel], minutes: int, say: Progress) -> None:
    store = Store()
    missing = sum(package.size for package in packages if not store.has(package)) // _MB
    fetching = f", with {missing} MB to fetch" if missing else ""
    say(f"there is no {what} of the checkout's locks: making it, in {minutes} minutes on two idle cores{fetching}")
