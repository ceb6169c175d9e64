"""The layer of Debian packages: a root file system that mmdebstrap installs from the locked files alone.

The files become an archive of one suite in a folder, so a build from a mirror and one from an old disk are the
same build. mmdebstrap needs no root where a user has numbers of users to give away (``/etc/subuid``).
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from utvm import process
from utvm.environment.debian import DebianLock
from utvm.environment.drafts import disk_full, draft
from utvm.environment.layer import Layer, compose, members_of_tar
from utvm.environment.recipe import DebianPart, dpkg_filters
from utvm.environment.store import Store
from utvm.errors import ProvisionError

_PATIENCE = 3600.0  # Seconds. Two cores take two minutes; a busy machine takes its time.

_SOURCES = "# This image was made from locked packages, see /opt/utvm/environment.json. A mirror goes here.\n"
# What mmdebstrap leaves that tells of how it was called.
_TIDY = """
set -e
printf %s "$UTVM_SOURCES" > "$1/etc/apt/sources.list"
rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1"/var/cache/debconf/*-old
: > "$1/var/lib/apt/extended_states"
"""
# The engine makes these for every container; mmdebstrap's are this machine's.
_OF_THE_MACHINE = ("dev/", "etc/hostname", "etc/resolv.conf", "etc/hosts")
# What goes before mmdebstrap, so that it ends with us even when we are killed outright. Without namespaces of its
# own, its mounts would stay on this machine; as a user, it makes its own and has to be told to take them down.
_WHOLLY_GONE = {
    "root": ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--mount-proc", "--kill-child"),
    "unshare": ("setpriv", "--pdeathsig", "TERM"),
}


def make_debian_layer(debian: DebianPart, lock: DebianLock, store: Store, folder: Path) -> Layer:
    """Install the locked packages and write the layer, ``debian.tar``, into a folder.

    Raises:
        ProvisionError: a package file is missing or damaged, or mmdebstrap fails.
    """
    if shutil.which("mmdebstrap") is None:
        raise ProvisionError("mmdebstrap is not installed", "sudo apt-get install mmdebstrap uidmap")
    with _workshop(folder) as work:
        _make_repository(lock, store, work / "repository")
        root = work / "root.tar"
        _install(debian, lock, work, root)
        with members_of_tar(root, lambda name: not f"{name}/".startswith(_OF_THE_MACHINE)) as members:
            layer = compose(members, folder / "debian.tar", lock.epoch)
        root.unlink()
        shutil.rmtree(work / "repository")
    return layer


@contextlib.contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """Yield the folder to work in: for a user's mmdebstrap, one that the users it becomes can get at."""
    if os.geteuid() == 0:
        yield folder
        return
    place = Path(tempfile.gettempdir()) / f"utvm-{os.geteuid()}"
    with draft(place) as work:
        for open_to_all in (place, work):
            open_to_all.chmod(0o755)
        yield work


def _install(debian: DebianPart, lock: DebianLock, work: Path, root: Path) -> None:
    """Have mmdebstrap install the packages that are in the repository, and write what comes of it as a tar."""
    options = [f"--dpkgopt={line}" for line in dpkg_filters(debian)]
    # All by name: from a flat archive mmdebstrap would not take those that Debian requires.
    names = ",".join(f"{package.name}={package.version}" for package in lock.packages)
    mode = "root" if os.geteuid() == 0 else "unshare"
    command: list[str | Path] = [
        *_WHOLLY_GONE[mode],
        *("env", f"SOURCE_DATE_EPOCH={lock.epoch}", f"TMPDIR={work}", f"UTVM_SOURCES={_SOURCES}"),
        *("LC_ALL=C.UTF-8", "TZ=UTC", "sh", "-c", 'umask 022; exec "$@"', "mmdebstrap"),
        *("mmdebstrap", "--variant=apt", "--format=tar", f"--mode={mode}"),
        # Whether apt gives up root, where it can read the files as another user, shows in who owns its folders.
        *("--aptopt=APT::Sandbox::User root", f"--architectures={debian.architecture}", *options),
        *(f"--include={names}", f"--customize-hook={_TIDY}"),
        *("", root, f"deb [trusted=yes] copy:{quote(str(work / 'repository'))} ./"),
    ]
    try:
        process.run(command, timeout=_PATIENCE, error=ProvisionError)
    except ProvisionError as error:
        if "No space left on device" in error.message:
            raise disk_full(work.parent) from error
        raise _in_short(error) from error


def _in_short(error: ProvisionError) -> ProvisionError:
    """Say in a few lines what mmdebstrap said, which quotes command lines with every package's name in them."""
    lines = [line[:200] for line in error.message.splitlines() if line.startswith(("E:", "dpkg: error"))]
    return ProvisionError("\n".join(["mmdebstrap failed:", *lines[:8]]), error.hint)


def _make_repository(lock: DebianLock, store: Store, folder: Path) -> None:
    """Lay out the package files, each verified, with the index that apt wants to see."""
    folder.mkdir()
    folder.chmod(0o755)
    stanzas = []
    for package in lock.packages:
        path = store.verified(package)
        name = package.file.rpartition("/")[2]
        # A copy that all may read, not a link into the user's cache: mmdebstrap's apt may be another user.
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o644)
        control = process.run(["dpkg-deb", "--field", path], error=ProvisionError).rstrip()
        stanzas.append(f"{control}\nFilename: ./{name}\nSize: {package.size}\nSHA256: {package.sha256}\n")
    index = folder / "Packages"
    index.write_text("\n".join(stanzas), encoding="utf-8")
    index.chmod(0o644)
