# SPDX-License-Identifier: Apache-2.0
"""Layers: tar files in which equal content is equal bytes, wherever and by whomever they were made.

Members are sorted by name, belong to numbers and not to names, and are no younger than the lock. Of files that
share their content by hard links, the one whose name sorts first has it and the others refer to it.
"""

import contextlib
import copy
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from utvm.base.storage.cache import file_digest

# What a member may keep of its extended headers; the others tell of the tar that it came from.
_KEPT_HEADER = "SCHILY.xattr."


@dataclass(frozen=True)
class Member:
    """One entry of a layer, with its content where it has one of its own."""

    info: tarfile.TarInfo
    open: Callable[[], IO[bytes]] | None = None


@dataclass(frozen=True)
class Layer:
    """A written layer: ``sha256`` is of the file, ``unpacked`` the bytes of all files in it."""

    path: Path
    sha256: str
    size: int
    unpacked: int


def compose(members: Iterable[Member], output: Path, epoch: int) -> Layer:
    """Write a layer.

    Args:
        epoch: no member is younger than that many seconds since 1970.
    """
    ordered = sorted(_without_order(members), key=lambda member: member.info.name)
    unpacked = 0
    with tarfile.open(output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in ordered:
            info = _normalised(member.info, epoch)
            if member.open is None:
                tar.addfile(info)
            else:
                unpacked += info.size
                with member.open() as content:
                    tar.addfile(info, content)
    return Layer(output, file_digest(output), output.stat().st_size, unpacked)


@contextlib.contextmanager
def members_of_tar(path: Path, keep: Callable[[str], bool] = lambda _: True) -> Iterator[list[Member]]:
    """Yield the members of a tar file whose names are kept; their content can be read in the ``with`` block."""
    with tarfile.open(path) as tar:
        found = []
        for info in tar:
            clean = copy.copy(info)
            clean.name = _clean(info.name)
            if clean.islnk():
                clean.linkname = _clean(info.linkname)
            if clean.name and keep(clean.name):
                found.append(Member(clean, _reader(tar, info) if info.isreg() else None))
        yield found


def members_of_tree(folder: Path, prefix: str) -> Iterator[Member]:
    """Yield what is in a folder, and the folder itself, as root's, with the access rights that packages have.

    Args:
        prefix: what the folder is called in the layer.
    """
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
            # Whoever makes the layer has a umask; whether a file is a program is the package's own word.
            info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            yield Member(info, _opener(path))


def _reader(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    def read() -> IO[bytes]:
        content = tar.extractfile(info)
        assert content is not None
        return content

    return read


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _clean(name: str) -> str:
    return "" if name in (".", "./") else name.removeprefix("./").strip("/")


def _without_order(members: Iterable[Member]) -> Iterator[Member]:
    """Yield the members so that no hard link depends on the order in which they came."""
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
        for other in names[1:]:
            link = copy.copy(owner.info)
            link.name, link.linkname, link.type, link.size = other, names[0], tarfile.LNKTYPE, 0
            yield Member(link)
    for target, links in groups.items():
        raise ValueError(f"{links[0].info.name} is a hard link to {target}, which is not in the layer")


def _normalised(info: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    clean = copy.copy(info)
    clean.mtime = min(int(info.mtime), epoch) if info.mtime else epoch
    clean.uname = clean.gname = ""
    clean.pax_headers = {key: value for key, value in info.pax_headers.items() if key.startswith(_KEPT_HEADER)}
    return clean
