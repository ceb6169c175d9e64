# SPDX-License-Identifier: Apache-2.0
"""Reading arrays from untrusted files, within limits; writing arrays under any name."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utvm.base.storage import arrays
from utvm.base.storage.arrays import read_arrays, write_array, write_arrays
from utvm.errors import ConfigError

HOSTILE = ["file", "allow_pickle", "../../x", "/etc/x", "..", ".", "", "a//b", "a\\b", "C:x", "\x1b[31mx", "a\nb",
           "zwei/mal;x", "%2E", "a[/b]", "é", "\ud800", "x" * 3000]  # fmt: skip


def header(shape: object, dtype: str = "'<f4'", fortran: bool = False) -> bytes:
    """Header of a .npy file of version 1."""
    text = f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "int64", ">i2"])
def test_arrays_of_numpy_are_read(dtype: str, tmp_path: Path) -> None:
    array = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array, y=np.asfortranarray(array), z=np.float32(3))
    np.savez_compressed(tmp_path / "b.npz", x=array)
    (read,) = read_arrays(str(tmp_path / "a.npy")).values()
    np.testing.assert_array_equal(read, array, strict=True)
    for name in ("a.npz", "b.npz"):
        with np.load(tmp_path / name) as expected:
            arrays = read_arrays(str(tmp_path / name))
            assert list(arrays) == list(expected)
            for key in expected:
                np.testing.assert_array_equal(arrays[key], expected[key], strict=True)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_member_of_any_name_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {name: np.arange(3), "other": np.ones(2)})
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        member, other = archive.namelist()
        path = (tmp_path / "folder" / member).resolve()
    assert path.is_relative_to(tmp_path / "folder") and member.isprintable() and other == "other.npy"
    with np.load(tmp_path / "a.npz") as read:
        np.testing.assert_array_equal(read[member.removesuffix(".npy")], np.arange(3), strict=True)


@given(st.lists(st.text(max_size=20) | st.sampled_from(HOSTILE), unique=True, max_size=5))
def test_different_names_give_different_members(names: list[str]) -> None:
    assert len({arrays.archive_member(name) for name in names}) == len(names)


def test_single_array_is_written_like_numpy(tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", np.arange(3))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.arange(3), strict=True)


def test_small_file_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    # The header declares 2 GiB; the file needs not hold them.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header((1 << 29,)) + bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ConfigError, match=r"bomb\.npz: x: is 2147483648 bytes unpacked"):
        read_arrays(str(path))


def test_limit_holds_for_the_sum_of_all_arrays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(arrays, "MAX_BYTES", 1000)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(600, np.int8), y=np.zeros(600, np.int8))
    with pytest.raises(ConfigError, match="y: is 600 bytes unpacked"):
        read_arrays(str(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00" + bytes(100),
        header((1 << 20,)) + bytes(4),
        header((-1,)) + bytes(4),
        header("(1,)", "'|O'") + bytes(8),
        header("(1,)", "'V0'"),
        header("[" * 5000),
        header("'x'"),
        header("(2**70,)"),
    ],
)
def test_malformed_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.npy: "):
        read_arrays(str(path))


def _damage(content: bytes, places: list[tuple[int, int]]) -> bytes:
    result = bytearray(content)
    for place, value in places:
        result[place % len(result)] = value
    return bytes(result)


def _samples() -> list[bytes]:
    samples = []
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, x=np.arange(12, dtype=np.float32).reshape(3, 4), y=np.arange(5))
        samples.append(stream.getvalue())
    stream = io.BytesIO()
    np.save(stream, np.arange(6).reshape(2, 3))
    return [*samples, stream.getvalue()]


SAMPLES = _samples()
DAMAGE = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=6)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SAMPLES), DAMAGE)
def test_damaged_file_is_read_or_refused(tmp_path: Path, sample: bytes, damage: list[tuple[int, int]]) -> None:
    read(tmp_path, _damage(sample, damage))


@pytest.mark.nightly
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SAMPLES), DAMAGE)
def test_many_damaged_files_are_read_or_refused(tmp_path: Path, sample: bytes, damage: list[tuple[int, int]]) -> None:
    read(tmp_path, _damage(sample, damage))


def read(folder: Path, content: bytes) -> None:
    path = folder / "a.npz"
    path.write_bytes(content)
    try:
        result = read_arrays(str(path))
    except ConfigError:
        return
    assert sum(array.nbytes for array in result.values()) <= arrays.MAX_BYTES


@pytest.mark.parametrize("first", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"])
def test_picture_is_refused_by_name(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(first + bytes(100))
    with pytest.raises(ConfigError, match=r"is a picture; give arrays\n  hint: save its pixels with numpy.save"):
        read_arrays(str(path))


def test_irregular_file_is_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "samples.csv")
    messages = {"/dev/zero": "is not a regular file", str(tmp_path / "samples.csv"): "is not a regular file"}
    for path, message in {**messages, "/proc/self/environ": "is empty", str(tmp_path): "is a folder"}.items():
        with pytest.raises(ConfigError, match=message):
            read_arrays(path)
