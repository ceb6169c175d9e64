# SPDX-License-Identifier: Apache-2.0
"""A layer of Debian packages: a root file system that mmdebstrap installs from the locked files alone.

The files become an archive of one suite in a folder, so a build from a mirror and one from an old disk are the
same build. mmdebstrap needs no root where a user has numbers of users to give away (``/etc/subuid``).
"""

import contextlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from utvm.base.process.run import clean_environment, run_tool
from utvm.base.storage.files import create_own_folder
from utvm.environment.debian import DebianPackage
from utvm.environment.layer import Layer, compose, members_of_tar, members_of_tree
from utvm.environment.recipe import DebianPart, dpkg_filters
from utvm.environment.store import Store
from utvm.environment.temporary_roots import disk_full, temporary_root
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
# What goes before mmdebstrap, so that it ends with us even when we are killed outright. Without namespaces of its
# own, its mounts would stay on this machine; as a user, it makes its own and has to be told to take them down.
_WHOLLY_GONE = {
    "root": ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--mount-proc", "--kill-child"),
    "unshare": ("setpriv", "--pdeathsig", "TERM"),
}


@dataclass(frozen=True)
class Shape:
    """What a layer is made for.

    Attributes:
        name: its file is called so.
        leave_out: what names of files begin with that are not in it.
        before: a shell script that runs before most packages are unpacked; ``$1`` is the root file system.
        files: what is written into it when all are configured, by its name; root's, and readable by all.
        after: a shell script that runs then.
        variables: environment variables of both scripts.
    """

    name: str
    leave_out: tuple[str, ...]
    before: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


# The engine makes these for every container; mmdebstrap's are this machine's.
CONTAINER = Shape("debian", ("dev/", "etc/hostname", "etc/resolv.conf", "etc/hosts"))


def make_debian_layer(
    debian: DebianPart, packages: Sequence[DebianPackage], epoch: int, store: Store, shape: Shape, folder: Path
) -> Layer:
    """Install locked packages and write the layer, ``NAME.tar``, into a folder.

    Args:
        epoch: the lock's date, in seconds since 1970.
    """
    if shutil.which("mmdebstrap") is None:
        raise ProvisionError("mmdebstrap is not installed", "sudo apt-get install mmdebstrap uidmap")
    with _workshop(folder) as work:
        _make_repository(packages, store, work / "repository")
        root = work / "root.tar"
        _install(debian, packages, epoch, shape, work, root)
        with members_of_tar(root, lambda name: not name.startswith(shape.leave_out)) as members:
            layer = compose(members, folder / f"{shape.name}.tar", epoch)
        root.unlink()
        shutil.rmtree(work / "repository")
    return layer


@contextlib.contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """Yield the folder to work in: for a user's mmdebstrap, one that the users it becomes can get at."""
    if os.geteuid() == 0:
        yield folder
        return
    place = Path(tempfile.gettempdir()).resolve() / f"utvm-{os.geteuid()}"
    for parent in place.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise ProvisionError(
                f"{parent}: other users may not enter it, but mmdebstrap works there as some",
                "set TMPDIR to a folder that all may enter, as /tmp",
            )
    create_own_folder(place)
    with temporary_root(place) as work:
        for open_to_all in (place, work):
            open_to_all.chmod(0o755)
        yield work


def _install(
    debian: DebianPart, packages: Sequence[DebianPackage], epoch: int, shape: Shape, work: Path, root: Path
) -> None:
    """Have mmdebstrap install the packages that are in the repository, and write what comes of it as a tar."""
    options = [f"--dpkgopt={line}" for line in dpkg_filters(debian)]
    # All by name: from a flat archive mmdebstrap would not take those that Debian requires.
    names = ",".join(f"{package.name}={package.version}" for package in packages)
    scripts = [("essential", shape.before), ("customize", shape.after), ("customize", _TIDY)]
    if shape.files:
        scripts.insert(1, ("customize", f"tar-in {shlex.quote(str(_tar_of(shape.files, epoch, work)))} /"))
    mode = "root" if os.geteuid() == 0 else "unshare"
    command: list[str | Path] = [
        *_WHOLLY_GONE[mode],
        *clean_environment(
            {
                "SOURCE_DATE_EPOCH": str(epoch),
                "TMPDIR": str(work),
                "UTVM_SOURCES": _SOURCES,
                "LC_ALL": "C.UTF-8",
                "TZ": "UTC",
                **shape.variables,
            }
        ),
        *("sh", "-c", 'umask 022; exec "$@"', "mmdebstrap"),
        *("mmdebstrap", "--variant=apt", "--format=tar", f"--mode={mode}"),
        # Whether apt gives up root, where it can read the files as another user, shows in who owns its folders.
        *("--aptopt=APT::Sandbox::User root", f"--architectures={debian.architecture}", *options),
        f"--include={names}",
        *(f"--{when}-hook={script}" for when, script in scripts if script),
        *("", root, f"deb [trusted=yes] copy:{quote(str(work / 'repository'))} ./"),
    ]
    try:
        run_tool(command, timeout=_PATIENCE, error=ProvisionError)
    except ProvisionError as error:
        if "No space left on device" in error.message:
            raise disk_full(work.parent) from error
        raise _in_short(error) from error


def _tar_of(files: Mapping[str, str], epoch: int, work: Path) -> Path:
    tree = work / "files"
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content, encoding="utf-8")
    # Folders that are there keep the rights that they have.
    return compose(
        (member for member in members_of_tree(tree, ".") if not member.info.isdir()),
        work / "files.tar",
        epoch,
    ).path


def _in_short(error: ProvisionError) -> ProvisionError:
    lines = [line[:200] for line in error.message.splitlines() if line.startswith(("E:", "dpkg: error"))]
    return ProvisionError("\n".join(["mmdebstrap failed:", *lines[:8]]), error.hint)


def _make_repository(packages: Sequence[DebianPackage], store: Store, folder: Path) -> None:
    """Lay out the package files, each verified, with the index that apt wants to see."""
    folder.mkdir()
    folder.chmod(0o755)
    stanzas = []
    for package in packages:
        path = store.verified(package)
        name = package.file.rpartition("/")[2]
        # A copy that all may read, not a link into the user's cache: mmdebstrap's apt may be another user.
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o644)
        control = run_tool(["dpkg-deb", "--field", path], error=ProvisionError).rstrip()
        stanzas.append(f"{control}\nFilename: ./{name}\nSize: {package.size}\nSHA256: {package.sha256}\n")
    index = folder / "Packages"
    index.write_text("\n".join(stanzas), encoding="utf-8")
    index.chmod(0o644)
