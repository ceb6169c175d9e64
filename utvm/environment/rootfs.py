# SPDX-License-Identifier: Apache-2.0
"""Reproducible layers: tar files with equal bytes for equal content, and one that mmdebstrap installs.

Members are sorted by name, have numeric owners only, and are no younger than the lock. The first hard link by name
holds the content. Debian's packages form a local archive, so the build does not depend on their source. mmdebstrap
needs no root if the user has subordinate user ids (``/etc/subuid``).
"""

import contextlib
import copy
import os
import shlex
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote

from utvm.base.process import clean_environment, run_tool
from utvm.base.storage.cache import file_digest
from utvm.base.storage.files import create_own_folder
from utvm.environment.debian import DebianPackage
from utvm.environment.locked import Store, disk_full, temporary_root
from utvm.environment.recipe import DebianPart, dpkg_filters
from utvm.errors import ProvisionError

# Other extended headers depend on the original tar.
_XATTR_PREFIX = "SCHILY.xattr."


@dataclass(frozen=True)
class Member:
    """An entry of a layer, with its content if any."""

    info: tarfile.TarInfo
    open: Callable[[], IO[bytes]] | None = None


@dataclass(frozen=True)
class Layer:
    """A written layer; ``unpacked`` is the total size in bytes of its files."""

    path: Path
    sha256: str
    size: int
    unpacked: int


def compose(members: Iterable[Member], output: Path, epoch: int) -> Layer:
    """Write a layer with no member younger than ``epoch``."""
    ordered = sorted(_without_order(members), key=lambda member: member.info.name)
    unpacked = 0
    with tarfile.open(output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in ordered:
            info = _normalise(member.info, epoch)
            if member.open is None:
                tar.addfile(info)
            else:
                unpacked += info.size
                with member.open() as content:
                    tar.addfile(info, content)
    return Layer(output, file_digest(output), output.stat().st_size, unpacked)


@contextlib.contextmanager
def members_of_tar(path: Path, keep: Callable[[str], bool] = lambda _: True) -> Iterator[list[Member]]:
    """Yield the filtered members of a tar file; their content can be read in the ``with`` block."""
    with tarfile.open(path) as tar:
        members = []
        for info in tar:
            clean = copy.copy(info)
            clean.name = _clean(info.name)
            if clean.islnk():
                clean.linkname = _clean(info.linkname)
            if clean.name and keep(clean.name):
                members.append(Member(clean, partial(_extract, tar, info) if info.isreg() else None))
        yield members


def members_of_tree(folder: Path, prefix: str) -> Iterator[Member]:
    """Yield a folder and its contents, owned by root, with packages' usual permissions."""
    for path in (folder, *folder.rglob("*")):
        below = path.relative_to(folder).as_posix()
        info = tarfile.TarInfo(prefix if below == "." else f"{prefix}/{below}")
        if path.is_symlink():
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
            yield Member(info)
        elif path.is_dir():
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            yield Member(info)
        else:
            status = path.stat()
            info.size = status.st_size
            # Independent of the umask, except for the executable bit.
            info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            yield Member(info, partial(_open, path))


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _extract(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(info)
    assert content is not None
    return content


def _clean(name: str) -> str:
    return "" if name in (".", "./") else name.removeprefix("./").strip("/")


def _without_order(members: Iterable[Member]) -> Iterator[Member]:
    """Yield the members with hard links independent of their original order."""
    groups: dict[str, list[Member]] = {}
    contents: dict[str, Member] = {}
    for member in members:
        if member.info.islnk():
            groups.setdefault(member.info.linkname, []).append(member)
        elif member.open is not None:
            contents[member.info.name] = member
        else:
            yield member
    for name, owner in contents.items():
        names = sorted([name, *(link.info.name for link in groups.pop(name, []))])
        first = copy.copy(owner.info)
        first.name = names[0]
        yield Member(first, owner.open)
        for name_of_link in names[1:]:
            link = copy.copy(owner.info)
            link.name, link.linkname, link.type, link.size = name_of_link, names[0], tarfile.LNKTYPE, 0
            yield Member(link)
    for target, links in groups.items():
        raise ValueError(f"{links[0].info.name} is a hard link to {target}, which is not in the layer")


def _normalise(info: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    clean = copy.copy(info)
    clean.mtime = min(int(info.mtime), epoch) if info.mtime else epoch
    clean.uname = clean.gname = ""
    clean.pax_headers = {key: value for key, value in info.pax_headers.items() if key.startswith(_XATTR_PREFIX)}
    return clean


_TIMEOUT = 3600.0  # Seconds; two idle cores take two minutes.

_SOURCES = "# This image was made from locked packages, see /opt/utvm/environment.json. A mirror goes here.\n"
# Remove mmdebstrap's traces of how it was called.
_TIDY = """
set -e
printf %s "$UTVM_SOURCES" > "$1/etc/apt/sources.list"
rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1"/var/cache/debconf/*-old
: > "$1/var/lib/apt/extended_states"
"""
# Prefix that ends mmdebstrap with this process, even after kill -9. For root, a mount namespace removes its
# mounts; for a user, mmdebstrap removes its own on SIGTERM.
_ENDS_WITH_US = {
    "root": ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--mount-proc", "--kill-child"),
    "unshare": ("setpriv", "--pdeathsig", "TERM"),
}


@dataclass(frozen=True)
class Shape:
    """Name and configuration of a layer.

    Attributes:
        leave_out: prefixes of omitted files.
        before: shell script that runs before most packages are unpacked; ``$1`` is the root file system.
        files: contents of files added after configuration, by path; owned by root, readable by all.
    """

    name: str
    leave_out: tuple[str, ...]
    before: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


# The engine creates these for every container; mmdebstrap's come from this machine.
CONTAINER = Shape("debian", ("dev/", "etc/hostname", "etc/resolv.conf", "etc/hosts"))


def make_debian_layer(
    debian: DebianPart, packages: Sequence[DebianPackage], epoch: int, store: Store, shape: Shape, folder: Path
) -> Layer:
    if shutil.which("mmdebstrap") is None:
        raise ProvisionError("mmdebstrap is not installed", "sudo apt-get install mmdebstrap uidmap")
    with _work_folder(folder) as work:
        _make_repository(packages, store, work / "repository")
        root = work / "root.tar"
        _install(debian, packages, epoch, shape, work, root)
        with members_of_tar(root, lambda name: not name.startswith(shape.leave_out)) as members:
            layer = compose(members, folder / f"{shape.name}.tar", epoch)
        root.unlink()
        shutil.rmtree(work / "repository")
    return layer


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """Yield the work folder; for a user's mmdebstrap, subordinate users must be able to enter it."""
    if os.geteuid() == 0:
        yield folder
        return
    place = Path(tempfile.gettempdir()).resolve() / f"utvm-{os.geteuid()}"
    for parent in place.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise ProvisionError(
                f"{parent}: other users may not enter it, but mmdebstrap works there as others",
                "set TMPDIR to a folder that all may enter, such as /tmp",
            )
    create_own_folder(place)
    with temporary_root(place) as work:
        for open_to_all in (place, work):
            open_to_all.chmod(0o755)
        yield work


def _install(
    debian: DebianPart, packages: Sequence[DebianPackage], epoch: int, shape: Shape, work: Path, root: Path
) -> None:
    options = [f"--dpkgopt={line}" for line in dpkg_filters(debian)]
    # List all packages: from a flat archive, mmdebstrap does not select required ones.
    names = ",".join(f"{package.name}={package.version}" for package in packages)
    scripts = [("essential", shape.before), ("customize", shape.after), ("customize", _TIDY)]
    if shape.files:
        scripts.insert(1, ("customize", f"tar-in {shlex.quote(str(_tar_of(shape.files, epoch, work)))} /"))
    mode = "root" if os.geteuid() == 0 else "unshare"
    command: list[str | Path] = [
        *_ENDS_WITH_US[mode],
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
        # Otherwise the owner of apt's folders depends on whether another user can read the files.
        *("--aptopt=APT::Sandbox::User root", f"--architectures={debian.architecture}", *options),
        f"--include={names}",
        *(f"--{when}-hook={script}" for when, script in scripts if script),
        *("", root, f"deb [trusted=yes] copy:{quote(str(work / 'repository'))} ./"),
    ]
    try:
        run_tool(command, timeout=_TIMEOUT, error=ProvisionError)
    except ProvisionError as error:
        if "No space left on device" in error.message:
            raise disk_full(work.parent) from error
        lines = [line[:200] for line in error.message.splitlines() if line.startswith(("E:", "dpkg: error"))]
        raise ProvisionError("\n".join(["mmdebstrap failed:", *lines[:8]]), error.hint) from error


def _tar_of(files: Mapping[str, str], epoch: int, work: Path) -> Path:
    tree = work / "files"
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content, encoding="utf-8")
    # Existing folders keep their permissions.
    return compose(
        (member for member in members_of_tree(tree, ".") if not member.info.isdir()), work / "files.tar", epoch
    ).path


def _make_repository(packages: Sequence[DebianPackage], store: Store, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    stanzas = []
    for package in packages:
        path = store.verify(package)
        name = package.file.rpartition("/")[2]
        # A readable copy, not a link into the user's cache: mmdebstrap's apt may be another user.
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o644)
        control = run_tool(["dpkg-deb", "--field", path], error=ProvisionError).rstrip()
        stanzas.append(f"{control}\nFilename: ./{name}\nSize: {package.size}\nSHA256: {package.sha256}\n")
    index = folder / "Packages"
    index.write_text("\n".join(stanzas), encoding="utf-8")
    index.chmod(0o644)
