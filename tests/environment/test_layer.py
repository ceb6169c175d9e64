# SPDX-License-Identifier: Apache-2.0
"""Layers: equal content gives equal bytes, and is complete."""

import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.environment.rootfs import Layer, compose, members_of_tar, members_of_tree

_EPOCH = 1_700_000_000
_NAMES = st.text("abcXY.-_ é", min_size=1, max_size=6).filter(lambda name: name.strip(". ") == name)
_FILES = st.dictionaries(_NAMES, st.binary(max_size=40), min_size=1, max_size=6)


def _tar(path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return path


def _entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mtime = 1_600_000_000
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def _compose(source: Path, output: Path) -> Layer:
    with members_of_tar(source) as members:
        return compose(members, output, _EPOCH)


def _contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar if not info.isdir()}  # type: ignore[union-attr]


@pytest.mark.slow
@given(files=_FILES, links=st.dictionaries(_NAMES, st.integers(0, 5), max_size=4), random=st.randoms())
def test_order_and_owner_do_not_change_a_layer(files: dict[str, bytes], links: dict[str, int], random: object) -> None:
    names = sorted(files)
    hard = {name: names[at % len(names)] for name, at in links.items() if name not in files}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        digests = set()
        for maker in ("one", "another"):
            entries = [_entry(f"./d/{file}", content, uname=maker, gname=maker) for file, content in files.items()]
            random.shuffle(entries)  # type: ignore[attr-defined]
            # tar needs a file before its hard links; any of the names may have the content.
            entries += [
                _entry(f"./d/{link}", type=tarfile.LNKTYPE, linkname=f"./d/{target}", uname=maker, gname=maker)
                for link, target in hard.items()
            ]
            entries.insert(random.randint(0, len(files)), _entry("./d", type=tarfile.DIRTYPE, mode=0o755))  # type: ignore[attr-defined]
            layer = _compose(_tar(folder / "in.tar", entries), folder / f"{maker}.tar")
            digests.add((layer.sha256, layer.size, layer.unpacked))
        assert len(digests) == 1
        expected = {f"d/{file}": content for file, content in files.items()}
        expected |= {f"d/{link}": files[target] for link, target in hard.items()}
        assert _contents(folder / "one.tar") == expected
        assert layer.unpacked == sum(map(len, files.values()))


def test_order_of_hard_links_does_not_change_a_layer(tmp_path: Path) -> None:
    first = [_entry("a", b"same"), _entry("b", type=tarfile.LNKTYPE, linkname="a")]
    second = [_entry("b", b"same"), _entry("a", type=tarfile.LNKTYPE, linkname="b")]
    digests = [
        _compose(_tar(tmp_path / f"{at}.in", entries), tmp_path / f"{at}.tar").sha256
        for at, entries in enumerate((first, second))
    ]
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "0.tar") as tar:
        assert [(info.name, info.type) for info in tar] == [("a", tarfile.REGTYPE), ("b", tarfile.LNKTYPE)]


def test_meaningful_metadata_stays(tmp_path: Path) -> None:
    capability = {"SCHILY.xattr.security.capability": "\x01\x02", "comment": "made on a Monday"}
    source = _tar(
        tmp_path / "in.tar",
        [
            _entry("./"),
            _entry("./bin/", type=tarfile.DIRTYPE, mode=0o1777, uid=5, gid=6),
            _entry("./bin/ping", b"x", mode=0o4755, pax_headers=capability),
            _entry("./new", b"y", mtime=_EPOCH + 99),
            _entry("./sh", type=tarfile.SYMTYPE, linkname="bin/../ping"),
        ],
    )
    _compose(source, tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as tar:
        members = {info.name: info for info in tar}
    assert list(members) == ["bin", "bin/ping", "new", "sh"]
    assert (members["bin"].mode, members["bin"].uid, members["bin"].gid) == (0o1777, 5, 6)
    assert members["bin/ping"].mode == 0o4755
    assert members["bin/ping"].pax_headers == {"SCHILY.xattr.security.capability": "\x01\x02"}
    assert members["bin/ping"].mtime == 1_600_000_000
    assert members["new"].mtime == _EPOCH
    assert members["sh"].linkname == "bin/../ping"


def test_hard_link_to_an_excluded_file_is_an_error(tmp_path: Path) -> None:
    source = _tar(tmp_path / "in.tar", [_entry("a", b"x"), _entry("b", type=tarfile.LNKTYPE, linkname="a")])
    with members_of_tar(source, lambda name: name != "a") as members, pytest.raises(ValueError, match="b is a hard"):
        compose(members, tmp_path / "out.tar", _EPOCH)


def _tree(folder: Path, umask_mode: int) -> Path:
    folder.mkdir()
    folder.chmod(0o700 | umask_mode)
    for name, content, executable in (("z", b"last", False), ("run", b"#!/bin/sh\n", True)):
        (folder / name).write_bytes(content)
        (folder / name).chmod((0o700 if executable else 0o600) | umask_mode)
    (folder / "link").symlink_to("z")
    return folder


def test_permissions_of_the_creator_do_not_change_a_layer(tmp_path: Path) -> None:
    layers = [
        compose(members_of_tree(_tree(tmp_path / f"t{at}", mode), "opt/x"), tmp_path / f"{at}.tar", _EPOCH)
        for at, mode in enumerate((0o000, 0o044))
    ]
    assert layers[0].sha256 == layers[1].sha256
    with tarfile.open(layers[0].path) as tar:
        assert [(info.name, oct(info.mode), info.uid, info.mtime) for info in tar] == [
            ("opt/x", "0o755", 0, _EPOCH),
            ("opt/x/link", "0o777", 0, _EPOCH),
            ("opt/x/run", "0o755", 0, _EPOCH),
            ("opt/x/z", "0o644", 0, _EPOCH),
        ]
