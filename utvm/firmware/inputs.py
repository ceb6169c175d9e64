# SPDX-License-Identifier: Apache-2.0
"""A model's inputs as the bytes that a board reads, and real numbers as the integers that stand for them."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from utvm.base.storage.arrays import MAX_BYTES, PICTURES
from utvm.base.storage.files import check_readable
from utvm.base.text.names import printable
from utvm.compiler import Tensor
from utvm.errors import ConfigError


def as_integers(given: npt.NDArray[np.generic], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Return real numbers as the integers of a quantised tensor: the nearest, or the last of the range.

    Anything but real numbers for a tensor of which it is known what its integers stand for is returned as it is.
    """
    if given.dtype.kind != "f" or tensor.scaling is None or np.dtype(tensor.dtype).kind not in "iu":
        return given
    if not np.isfinite(given).all():
        raise ConfigError(f"input {tensor.name} holds what is no finite number", "it cannot be quantised")
    limits = np.iinfo(tensor.dtype)
    integers = np.rint(np.asarray(given, np.float64) / tensor.scaling.scale) + tensor.scaling.zero_point
    return np.asarray(np.clip(integers, limits.min, limits.max), np.dtype(tensor.dtype))


def as_reals(array: npt.NDArray[np.generic], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Return what the integers of a quantised tensor stand for, as float32; another array as it is."""
    if tensor.scaling is None or array.dtype.kind not in "iu":
        return array
    integers = np.asarray(array, np.float64) - tensor.scaling.zero_point
    return np.asarray(integers * tensor.scaling.scale, np.float32)


def as_bytes(inputs: Sequence[npt.ArrayLike], tensors: Sequence[Tensor]) -> list[bytes]:
    """Return the inputs as bytes, little-endian and row-major."""
    if len(inputs) != len(tensors):
        names = ", ".join(tensor.name for tensor in tensors)
        raise ConfigError(
            f"the model takes {len(tensors)} inputs, {len(inputs)} were given", f"it takes: {names or 'none'}"
        )
    data = []
    for given, tensor in zip(inputs, tensors, strict=True):
        array = np.asarray(given)
        if array.shape != tensor.shape or array.dtype.name != tensor.dtype:
            raise ConfigError(
                f"input {tensor.name} is {tensor.dtype} {list(tensor.shape)}, "
                f"not {array.dtype.name} {list(array.shape)}"
            )
        # The target type is little-endian; an array of the other byte order is converted.
        data.append(np.ascontiguousarray(array, dtype=np.dtype(tensor.dtype)).tobytes())
    return data


_Array = npt.NDArray[Any]
_FORMATS = ("PNG", "JPEG")
_SUFFIXES = (".png", ".jpg", ".jpeg")
_MODES = ("1", "L", "P", "RGB", "LA", "PA", "RGBA")  # Eight bits a colour; the last three have transparency.
_CHANNELS = {1: "L", 3: "RGB"}
_SCALE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")


def are_pictures(path: str) -> bool:
    """Whether a file is a PNG or JPEG picture by its first bytes, or a folder, which is to hold such."""
    if Path(path).is_dir():
        return True
    try:
        check_readable(path, "")
        with Path(path).open("rb") as file:
            return file.read(4).startswith(PICTURES)
    except (ConfigError, OSError):
        return False  # Refused by whoever reads it as something else.


def read_pictures(path: str, tensor: Tensor, scale: str) -> _Array:
    """Return a picture, or those of a folder by name, as samples of an input, their count in front.

    Args:
        scale: the numbers that black and white are, ``0..1``; empty for an input of 8-bit integers: then they are
            its lowest and its highest.

    Returns:
        Real numbers where it is known what the input's integers stand for; otherwise what the input takes.
    """
    ends = _ends(tensor, scale)
    pixels = read_pixels(path, tensor)
    if ends:
        black, white = ends
        reals = black + pixels.astype(np.float64) * ((white - black) / 255)
        return reals if tensor.scaling else reals.astype(tensor.dtype)
    dtype = np.dtype(tensor.dtype)
    return as_reals((pixels.astype(np.int16) + np.iinfo(dtype).min).astype(dtype), tensor)


def read_pixels(path: str, tensor: Tensor) -> _Array:
    """Return pictures as :func:`read_pictures` does, as the bytes that they have, in the input's order."""
    height, width, channels, channels_first = _layout(tensor)
    files = _files(path)
    if len(files) * height * width * channels > MAX_BYTES:
        raise ConfigError(f"{path}: holds {len(files)} pictures, too many to be read", "give fewer at a time")
    arrays = [_pixels(file, width, height, channels) for file in files]
    ordered = [array.transpose(2, 0, 1) if channels_first else array for array in arrays]
    return np.stack(ordered).reshape(-1, *tensor.shape)


def _files(path: str) -> list[Path]:
    if not Path(path).is_dir():
        return [Path(path)]
    try:
        found = sorted(
            each for each in Path(path).iterdir() if each.suffix.lower() in _SUFFIXES and each.is_file()
        )
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not found:
        raise ConfigError(f"{path}: holds no pictures", f"files that end in {', '.join(_SUFFIXES)}")
    return found


def _layout(tensor: Tensor) -> tuple[int, int, int, bool]:
    """Return height, width and channels of the pictures that an input takes, and whether channels come first."""
    shape = tensor.shape[1:] if len(tensor.shape) == 4 and tensor.shape[0] == 1 else tensor.shape
    if len(shape) == 3 and (shape[-1] in _CHANNELS) != (shape[0] in _CHANNELS):
        first = shape[0] in _CHANNELS
        channels, height, width = shape if first else (shape[2], *shape[:2])
        return height, width, channels, first
    raise ConfigError(
        f"input {printable(tensor.name)} is {list(tensor.shape)}: how does a picture lie in that?",
        "a picture is [1, height, width, channels] or [1, channels, height, width], of 1 or 3 channels; "
        "give its numbers as .npy",
    )


def _ends(tensor: Tensor, scale: str) -> tuple[float, float] | None:
    """Return the real numbers that black and white are; None where the input's own integers are."""
    dtype = np.dtype(tensor.dtype)
    if not scale:
        if dtype.kind in "iu" and dtype.itemsize == 1:
            return None
        raise ConfigError(
            f"input {printable(tensor.name)} is {tensor.dtype}: which numbers are black and white?",
            "say with --scale what it was trained on: 0..1, -1..1, 0..255; 1..0 for a negative",
        )
    if dtype.kind != "f" and tensor.scaling is None:
        raise ConfigError(
            f"input {printable(tensor.name)} is {tensor.dtype}, and the model does not say what that stands for",
            "leave --scale out, or give the numbers as .npy",
        )
    match = _SCALE.fullmatch(scale)
    if match is None or match[1] == match[2]:
        raise ConfigError(f"--scale {scale!r} is not two numbers", "what black and white are: --scale 0..1")
    return float(match[1]), float(match[2])


def _pixels(path: Path, width: int, height: int, channels: int) -> _Array:
    """Return a picture as [height, width, channels]; one that is not as large as it should be is not unpacked."""
    with _one_error(path), Image.open(path, formats=_FORMATS) as picture:
        fits = picture.width * picture.height == width * height
        upright = ImageOps.exif_transpose(picture) if fits else picture
        if upright.size != (width, height):
            raise ConfigError(
                f"{path}: is {upright.width} x {upright.height} pixels, and the model takes {width} x {height}",
                "cut or scale it as those that the model was trained on were; here nothing is scaled",
            )
        if upright.mode not in _MODES:
            raise ConfigError(f"{path}: has colours as {upright.mode}", "save it as RGB or grey, 8 bits each")
        if upright.has_transparency_data and upright.convert("RGBA").getchannel("A").getextrema() != (255, 255):
            raise ConfigError(f"{path}: is transparent in parts", "save it on the background that it should have")
        return np.asarray(upright.convert(_CHANNELS[channels])).reshape(height, width, channels)


@contextmanager
def _one_error(path: Path) -> Iterator[None]:
    """Make one kind of error of all that reading a picture raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ConfigError:
        raise
    except MemoryError as error:
        raise ConfigError(f"{path}: says that it holds more than there is memory for") from error
    except Image.DecompressionBombError as error:
        raise ConfigError(f"{path}: says that it has more pixels than any model takes") from error
    except Exception as error:  # decoders raise nearly every built-in kind
        if isinstance(error, OSError) and error.strerror:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        raise ConfigError(f"{path}: is not a PNG or JPEG picture, or a damaged one") from error
