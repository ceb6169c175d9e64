# SPDX-License-Identifier: Apache-2.0
"""Builds of the locks: image and box of a checkout if missing, the Vagrant box, and a signed release.

A release is a static web folder: ``utvm.json`` (Vagrant's catalogue of the box), ``utvm.box``, ``oci`` (the
container image), ``sbom.cdx.json`` (bill of materials).
"""

import contextlib
import json
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import docker
import docker.errors
from pydantic import Field

import utvm
from utvm import errors, paths
from utvm.base.process import run_tool
from utvm.base.process.interpreter import python_command
from utvm.base.storage import cache, config, lock
from utvm.environment import debian, engine, python_lock, rootfs
from utvm.environment.disk import make_disk
from utvm.environment.image import Image, Layers, build, link, tags, write_sums
from utvm.environment.locked import Locked, Progress, Store, fetch, load_lock_files, replace_folder
from utvm.provenance.location import MACHINE, read_checkout

_ROOT = f"{MACHINE}root/"  # files of the machine
_CONFIGURE = f"{MACHINE}configure.sh"  # runs when all packages are installed
# Vagrant's well-known public key (Vagrant documentation, "Creating a Base Box").
_KEY = f"{MACHINE}vagrant.pub"

# The drivers in the initial RAM disk must not depend on the machine that builds the box.
_BEFORE = """
set -e
mkdir -p "$1/etc/initramfs-tools/conf.d"
printf '%s\\n' $UTVM_DRIVERS > "$1/etc/initramfs-tools/modules"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/utvm"
"""


def machine_shape(locked: Locked) -> rootfs.Shape:
    drivers = locked.recipe.machine.early_drivers
    return rootfs.Shape(
        name="machine",
        # The kernel creates the device nodes; mmdebstrap's come from the build machine.
        leave_out=("dev/",),
        before=_BEFORE,
        files={name.removeprefix(_ROOT): text for name, text in locked.files.items() if name.startswith(_ROOT)},
        after=locked.files[_CONFIGURE],
        variables={"UTVM_DRIVERS": " ".join(drivers), "UTVM_VAGRANT_KEY": locked.files[_KEY].strip()},
    )


BOX = "utvm.box"
CATALOGUE = "utvm.json"
KERNEL = "vmlinuz"
"""Kernel in the box: starting it alone shows quickly whether an accelerator works."""

_VAGRANTFILE = Path(__file__).parent / "machine" / "Vagrantfile.txt"


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
    """Build the box, its catalogue and checksums, replacing the whole output folder."""
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
        digest = cache.file_digest(whole / BOX)
        (whole / CATALOGUE).write_text(_catalogue(locked, digest), encoding="utf-8")
        write_sums(whole)
    seconds = {**layers.seconds, "disk and box": time.monotonic() - begin}
    return BuiltBox(output, digest, (output / BOX).stat().st_size, seconds)


def _write_box(disk: Path, kernel: Path, output: Path, locked: Locked) -> None:
    """Write the archive (vagrant-libvirt, "Box Format"); the disk is already compressed."""
    metadata = {"provider": "libvirt", "format": "qcow2", "virtual_size": locked.recipe.machine.disk_gib}
    texts = {"Vagrantfile": _VAGRANTFILE.read_text("utf-8"), "metadata.json": json.dumps(metadata)}
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


IMAGE_FOLDER = paths.ROOT / "build" / "environment"
BOX_FOLDER = paths.ROOT / "build" / "box"
PUBLISHED = paths.PROVISION / "published.yaml"
_LOCK_TIMEOUT = 3600.0  # Seconds that another process may take to build it.
_MB = 1_000_000


@contextlib.contextmanager
def hold_alone(what: str, hint: str, patience: float, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock of this computer, see :func:`utvm.base.storage.lock.hold`, or raise ProvisionError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.hold(what, patience=patience, waiting=waiting))
        except errors.BoardError as error:
            raise errors.ProvisionError(error.message, hint) from None
        yield


def make_image(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> Image:
    store = Store()
    fetch(locked, store, archive, mirror, say)
    return build(locked, Layers(locked, store, anew=anew, say=say), IMAGE_FOLDER, say)


def make_box(
    locked: Locked, say: Progress, archive: Path | None = None, mirror: str = "", anew: bool = False
) -> BuiltBox:
    store = Store()
    fetch(locked, store, archive, mirror, say, machine=True)
    return build_box(locked, Layers(locked, store, anew=anew, say=say), BOX_FOLDER, say)


def ensure_image(client: docker.DockerClient, say: Progress) -> str:
    """Return the tag of the image of the checkout's locks; pull or build the image if missing."""
    locked = load_lock_files()
    name = tags(locked)[0]
    if not engine.has_tag(client, name):
        what = f"building the image {name}"
        with hold_alone(what, "wait for its end", _LOCK_TIMEOUT, lambda who: say(f"waiting: {what}, {who}")):
            # Another process may have built it meanwhile.
            if not engine.has_tag(client, name) and not _pull_published(client, locked, say):
                if paths.INSTALLED or shutil.which("mmdebstrap") is None:
                    message = f"the engine has no image {name}, and this computer cannot build it"
                    hint = "install the missing tools here, or load an image built on Debian (docs/hosts.md)"
                    raise errors.ProvisionError(message, hint)
                announce_image(locked, say)
                image = make_image(locked, say)
                say("loading it into the engine")
                engine.load_image(client, image)
    return name


class _Published(config.Record):
    """Published images: digest of the environment -> ``NAME@sha256:DIGEST``, with the digest of the manifest."""

    images: dict[str, Annotated[str, Field(pattern=r"^[^@\s]+@sha256:[0-9a-f]{64}$")]]


def _pull_published(client: docker.DockerClient, locked: Locked, say: Progress) -> bool:
    """Pull the published image of the locks, which the engine verifies by its digest; False if that fails."""
    reference = config.load_yaml(PUBLISHED, _Published).images.get(locked.digest)
    if reference is None:
        return False
    say(f"pulling {reference}")
    try:
        image = client.images.pull(reference)
    except docker.errors.APIError as error:
        say(f"{reference} cannot be pulled: {error.explanation or error}")
        return False
    return all(image.tag(tag) for tag in tags(locked))


def make_missing_box(locked: Locked, say: Progress) -> None:
    announce_box(locked, say)
    make_box(locked, say)


def announce_image(locked: Locked, say: Progress) -> None:
    # Minutes on two idle cores with an empty cache (benchmarks/README.md), rounded up.
    _announce("container image", locked.packages, 2, say)


def announce_box(locked: Locked, say: Progress) -> None:
    _announce("box", locked.machine_packages, 3, say)


def _announce(
    what: str, packages: Sequence[debian.DebianPackage | python_lock.Wheel], minutes: int, say: Progress
) -> None:
    store = Store()
    missing = sum(package.size for package in packages if not store.has(package)) // _MB
    fetching = f", with {missing} MB to fetch" if missing else ""
    say(f"no {what} for the checkout's locks: building it takes {minutes} minutes on two idle cores{fetching}")


_SUMS = "SHA256SUMS"


def write_release(sources: Sequence[Path], output: Path) -> Path:
    """Merge folders, such as an image and a box of one environment, into a new or replaced release folder.

    Files are hard-linked if possible.
    """
    if output.exists() and any(output.iterdir()) and not (output / _SUMS).is_file():
        raise errors.ConfigError(f"{output} is not empty and not a release", "name a new or empty folder")
    output = output.resolve()
    with replace_folder(output) as (whole, _):
        for source in sources:
            for path in sorted(source.rglob("*")):
                if path.is_file() and not path.name.startswith(_SUMS):
                    target = whole / path.relative_to(source)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    link(path, target)
        write_sums(whole)
    return output


def check_key(key: str) -> None:
    """Check minisign and a secret key before any work; an empty key means no signature."""
    if not key:
        return
    unreadable = errors.ConfigError.on_os_error(f"--sign {key}: cannot be read", "create a key: minisign -G")
    with unreadable, Path(key).open("rb") as file:
        begin = file.read(200)
    if b"secret key" not in begin.partition(b"\n")[0]:
        raise errors.ConfigError(f"--sign {key}: is not a secret key of minisign", "create: minisign -G -s FILE")
    if shutil.which("minisign") is None:
        raise errors.ProvisionError("minisign is not installed", "sudo apt-get install minisign")


def sign(folder: Path, key: str, comment: str) -> Path:
    """Sign a folder's checksum list with minisign, which may ask for a password; return the signature."""
    sums = folder / _SUMS
    signature = sums.with_name(f"{_SUMS}.minisig")
    result = subprocess.run(
        ["minisign", "-S", "-q", "-s", key, "-m", sums, "-x", signature, "-t", comment], check=False
    )
    if result.returncode != 0:
        raise errors.ProvisionError(f"{sums} is not signed: minisign ended with exit code {result.returncode}")
    return signature


NOTES = "NOTES.md"
_LINK_TO_A_PAGE = re.compile(r"\[([^]]*)\]\((?!https?:)[^)]*\)")
_USE = Path(__file__).with_name("release_notes.md")


def changes(changelog: str, version: str = utvm.__version__) -> str:
    for section in changelog.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title.startswith(f"{version}, "):
            # A release has no documentation pages to link to.
            text = _LINK_TO_A_PAGE.sub(r"\1", text.strip())
            return f"Of {title.removeprefix(f'{version}, ')}.\n\n{text}\n"
    raise errors.ConfigError(
        f"CHANGELOG.md has no section '## {version}, DATE'", "cut the version: in CHANGELOG.md, and in utvm/version.py"
    )


def build_package(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    run_tool(python_command("hatchling", "build", "-d", str(folder)), cwd=paths.ROOT, error=errors.ProvisionError)
    return {path.name: f"sha256:{cache.file_digest(path)}" for path in sorted(folder.iterdir())}


def write_notes(folder: Path, digests: Mapping[str, str], changed: str) -> None:
    sources = read_checkout(paths.ROOT)
    head = f"Commit {sources.commit}{', with changes' if sources.dirty else ''}.\n\n" if sources.commit else ""
    use = _USE.read_text("utf-8").format(wheel=next((name for name in digests if name.endswith(".whl")), "*.whl"))
    rows = "".join(f"| {name} | `{digest}` |\n" for name, digest in digests.items())
    text = f"# utvm {utvm.__version__}\n\n{head}{changed}\n## Digests\n\n| part | digest |\n|---|---|\n{rows}{use}"
    (folder / NOTES).write_text(text, encoding="utf-8")
