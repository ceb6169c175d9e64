# SPDX-License-Identifier: Apache-2.0
"""Reads arrays from untrusted files, within size limits, and writes arrays under arbitrary names."""

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from utvm.base.storage.files import check_readable, write_whole
from utvm.base.text.quoting import archive_member, printable
from utvm.errors import ConfigError

MAX_BYTES = 1 << 30
"""Limit for the total unpacked size of a file's arrays."""

MAX_CSV_BYTES = 1 << 26
"""Size limit of a .csv file."""

MAX_ARRAYS = 4096
"""Limit of arrays per file."""

_Array = npt.NDArray[Any]
_NPY = b"\x93NUMPY"
PICTURES = (b"\x89PNG", b"\xff\xd8\xff")
"""Magic numbers of PNG and JPEG files."""


def read_arrays(path: str) -> dict[str, _Array]:
    """Read the arrays of an .npz file by name, or that of a .npy or .csv file under an empty name.

    Sizes in headers are checked against the limit and the actual data before unpacking.
    """
    check_readable(path, "give a .npy, .npz or .csv file")
    if path.endswith(".csv"):
        return {"": _read_csv(path)}
    try:
        with Path(path).open("rb") as file:
            first = file.read(len(_NPY))
            if first.startswith(PICTURES):
                raise ConfigError(
                    f"{path}: is a picture; give arrays",
                    "save its pixels with numpy.save, in the size, channel order and range of the training",
                )
            file.seek(0)
            if first == _NPY:
                return {"": _read(file, Path(path).stat().st_size, path, MAX_BYTES)}
            with zipfile.ZipFile(file) as archive:
                return _members(archive, path)
    except ConfigError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise ConfigError(f"{path}: needs more memory than there is") from error
    except Exception as error:  # zipfile, zlib and numpy raise nearly every built-in kind, and their own
        raise ConfigError(
            f"{path}: is not a .npy or .npz file, or a damaged one", "numpy.save and numpy.savez write them"
        ) from error


def _read_csv(path: str) -> _Array:
    try:
        if Path(path).stat().st_size > MAX_CSV_BYTES:
            raise _too_large(f"{path}: has more than {MAX_CSV_BYTES} bytes")
        return np.loadtxt(path, np.float64, delimiter=",", ndmin=2)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not rows of numbers: {printable(str(error))}") from error


def write_arrays(path: Path, arrays: Mapping[str, _Array]) -> None:
    """Write arrays as .npz; :func:`utvm.base.text.quoting.archive_member` encodes their names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{archive_member(name)}.npy")
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
    write_whole(path, file.getvalue())


def write_array(path: Path, array: _Array) -> None:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    write_whole(path, file.getvalue())


def _members(archive: zipfile.ZipFile, path: str) -> dict[str, _Array]:
    entries = archive.infolist()
    if len(entries) > MAX_ARRAYS:
        raise _too_large(f"{path}: holds {len(entries)} arrays, more than {MAX_ARRAYS}")
    arrays: dict[str, _Array] = {}
    left = MAX_BYTES
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        with archive.open(entry) as stream:
            arrays[name] = _read(stream, entry.file_size, f"{path}: {printable(name)}", left)
        left -= arrays[name].nbytes
    return arrays


def _read(stream: IO[bytes], size: int, what: str, limit: int) -> _Array:
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version}")
    shape, fortran, dtype = read(stream)
    if dtype.hasobject or dtype.itemsize == 0 or any(extent < 0 for extent in shape):
        raise ValueError("not an array of numbers")
    need = math.prod(shape) * dtype.itemsize
    if need > limit:
        raise _too_large(f"{what}: is {need} bytes unpacked; the limit for a file is {MAX_BYTES}")
    if need > size:
        raise ValueError("its header announces more data than there is")
    data = stream.read(need)
    if len(data) < need:
        raise EOFError
    array = np.frombuffer(bytearray(data), dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _too_large(message: str) -> ConfigError:
    return ConfigError(message, "give fewer samples at a time")
