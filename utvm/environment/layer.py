# SPDX-License-Identifier: Apache-2.0
"""Reproducible layers: tar files in which equal content is equal bytes.

Members are sorted by name, have numeric owners only, and are no younger than the lock. Of hard links to one file,
the one whose name sorts first has the content.
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

# Other extended headers depend on the original tar.
_KEPT_HEADERS = "SCHILY.xattr."


@dataclass(frozen=True)
class Member:
    """One entry of a layer, with its content if it has any."""

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
    """Yield the members of a tar file that pass a filter; their content can be read in the ``with`` block."""
    with tarfile.open(path) as tar:
        members = []
        for info in tar:
            clean = copy.copy(info)
            clean.name = _clean(info.name)
            if clean.islnk():
                clean.linkname = _clean(info.linkname)
            if clean.name and keep(clean.name):
                members.append(Member(clean, _reader(tar, info) if info.isreg() else None))
        yield members


def members_of_tree(folder: Path, prefix: str) -> Iterator[Member]:
    """Yield a folder and its contents, owned by root, with the usual permissions of packages.

    Args:
        prefix: path of the folder in the layer.
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
            # Independent of the umask, except for the executable bit.
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
    """Yield the members, with hard links independent of their original order."""
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
    clean.pax_headers = {key: value for key, value in info.pax_headers.items() if key.startswith(_KEPT_HEADERS)}
    return clean
