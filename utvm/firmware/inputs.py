# SPDX-License-Identifier: Apache-2.0
"""Model inputs: conversion to bytes and quantised integers, and PNG or JPEG pictures."""

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
from utvm.base.text.quoting import printable
from utvm.compiler import Library, Tensor
from utvm.errors import ConfigError


def as_integers(array: npt.NDArray[np.generic], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Quantise floats: round to the nearest integer, clipped to the range. Other arrays are returned unchanged."""
    if array.dtype.kind != "f" or tensor.scaling is None or np.dtype(tensor.dtype).kind not in "iu":
        return array
    if not np.isfinite(array).all():
        raise ConfigError(f"input {tensor.name} has NaN or infinite numbers", "NaN and infinity cannot be quantised")
    limits = np.iinfo(tensor.dtype)
    integers = np.rint(np.asarray(array, np.float64) / tensor.scaling.scale) + tensor.scaling.zero_point
    return np.asarray(np.clip(integers, limits.min, limits.max), np.dtype(tensor.dtype))


def quantise(values: Sequence[npt.ArrayLike], tensors: Sequence[Tensor]) -> list[npt.NDArray[np.generic]]:
    """Quantise each input as :func:`as_integers`, unless their number is wrong, which :func:`as_bytes` reports."""
    arrays = [np.asarray(value) for value in values]
    return list(map(as_integers, arrays, tensors)) if len(arrays) == len(tensors) else arrays


def as_reals(array: npt.NDArray[np.generic], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Dequantise integers of a quantised tensor to float32; other arrays are returned unchanged."""
    if tensor.scaling is None or array.dtype.kind not in "iu":
        return array
    integers = np.asarray(array, np.float64) - tensor.scaling.zero_point
    return np.asarray(integers * tensor.scaling.scale, np.float32)


def as_bytes(inputs: Sequence[npt.ArrayLike], tensors: Sequence[Tensor]) -> list[bytes]:
    """Return inputs as bytes, little-endian and row-major."""
    if len(inputs) != len(tensors):
        names = ", ".join(tensor.name for tensor in tensors)
        raise ConfigError(
            f"the model takes {len(tensors)} inputs, {len(inputs)} were given", f"it takes: {names or 'none'}"
        )
    data = []
    for value, tensor in zip(inputs, tensors, strict=True):
        array = np.asarray(value)
        if array.shape != tensor.shape or array.dtype.name != tensor.dtype:
            raise ConfigError(
                f"input {tensor.name} is {tensor.dtype} {list(tensor.shape)}, "
                f"not {array.dtype.name} {list(array.shape)}"
            )
        # Converts big-endian arrays.
        data.append(np.ascontiguousarray(array, dtype=np.dtype(tensor.dtype)).tobytes())
    return data


_Array = npt.NDArray[Any]
_FORMATS = ("PNG", "JPEG")
_SUFFIXES = (".png", ".jpg", ".jpeg")
_MODES = ("1", "L", "P", "RGB", "LA", "PA", "RGBA")  # Eight bits per channel, some with transparency.
_CHANNELS = {1: "L", 3: "RGB"}
_SCALE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")


def are_pictures(path: str) -> bool:
    """True for a PNG or JPEG file, by its first bytes, or a folder, which must contain such files."""
    if Path(path).is_dir():
        return True
    try:
        check_readable(path, "")
        with Path(path).open("rb") as file:
            return file.read(4).startswith(PICTURES)
    except (ConfigError, OSError):
        return False  # Another reader reports the error.


def read_pictures(path: str, tensor: Tensor, scale: str) -> _Array:
    """Read a picture, or a folder's pictures by name, as samples of an input; ``scale`` is BLACK..WHITE or empty.

    Returns the samples stacked in the first dimension: floats for a quantised input, otherwise its own type.
    """
    limits = _black_and_white(tensor, scale)
    pixels = read_pixels(path, tensor)
    if limits:
        black, white = limits
        reals = black + pixels.astype(np.float64) * ((white - black) / 255)
        return reals if tensor.scaling else reals.astype(tensor.dtype)
    dtype = np.dtype(tensor.dtype)
    return as_reals((pixels.astype(np.int16) + np.iinfo(dtype).min).astype(dtype), tensor)


def read_pixels(path: str, tensor: Tensor) -> _Array:
    """As :func:`read_pictures`, but unscaled bytes, in the order of the input's dimensions."""
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
    with ConfigError.on_os_error(f"{path}: cannot be read"):
        files = sorted(file for file in Path(path).iterdir() if file.suffix.lower() in _SUFFIXES and file.is_file())
    if not files:
        raise ConfigError(f"{path}: holds no pictures", f"add files that end in {', '.join(_SUFFIXES)}")
    return files


def _layout(tensor: Tensor) -> tuple[int, int, int, bool]:
    """Return height, width and channels of an input's pictures, and True if channels come first."""
    shape = tensor.shape[1:] if len(tensor.shape) == 4 and tensor.shape[0] == 1 else tensor.shape
    if len(shape) == 3 and (shape[-1] in _CHANNELS) != (shape[0] in _CHANNELS):
        first = shape[0] in _CHANNELS
        channels, height, width = shape if first else (shape[2], *shape[:2])
        return height, width, channels, first
    raise ConfigError(
        f"input {printable(tensor.name)} is {list(tensor.shape)}, which is not the shape of a picture",
        "pictures need [1, height, width, channels] or [1, channels, height, width], with 1 or 3 channels; "
        "give the numbers as .npy",
    )


def _black_and_white(tensor: Tensor, scale: str) -> tuple[float, float] | None:
    """Return the values of black and white; None if they are the lowest and highest integer."""
    dtype = np.dtype(tensor.dtype)
    if not scale:
        if dtype.kind in "iu" and dtype.itemsize == 1:
            return None
        raise ConfigError(
            f"input {printable(tensor.name)} is {tensor.dtype}, and the values of black and white are unknown",
            "give the range of its training with --set scale=0..1, -1..1, 0..255; 1..0 for a negative",
        )
    if dtype.kind != "f" and tensor.scaling is None:
        raise ConfigError(
            f"input {printable(tensor.name)} is {tensor.dtype}, and the model has no scale and zero point for it",
            "leave --set scale out, or give the numbers as .npy",
        )
    match = _SCALE.fullmatch(scale)
    if match is None or match[1] == match[2]:
        raise ConfigError(f"--set scale={scale!r} is not two numbers", "give black and white: --set scale=0..1")
    return float(match[1]), float(match[2])


def _pixels(path: Path, width: int, height: int, channels: int) -> _Array:
    """Read a picture as [height, width, channels]; one of another size is rejected before decoding."""
    with _decoding_errors(path), Image.open(path, formats=_FORMATS) as picture:
        fits = picture.width * picture.height == width * height
        upright = ImageOps.exif_transpose(picture) if fits else picture
        if upright.size != (width, height):
            raise ConfigError(
                f"{path}: is {upright.width} x {upright.height} pixels, and the model takes {width} x {height}",
                "cut or scale it like the training pictures; it is not scaled here",
            )
        if upright.mode not in _MODES:
            raise ConfigError(f"{path}: has colours as {upright.mode}", "save it as RGB or grey, 8 bits each")
        if upright.has_transparency_data and upright.convert("RGBA").getchannel("A").getextrema() != (255, 255):
            raise ConfigError(f"{path}: is transparent in parts", "save it with a background")
        return np.asarray(upright.convert(_CHANNELS[channels])).reshape(height, width, channels)


@contextmanager
def _decoding_errors(path: Path) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ConfigError:
        raise
    except MemoryError as error:
        raise ConfigError(f"{path}: is too large for this computer's memory") from error
    except Image.DecompressionBombError as error:
        raise ConfigError(f"{path}: has more pixels than any model takes") from error
    except Exception as error:  # decoders raise nearly every built-in kind
        if isinstance(error, OSError) and error.strerror:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        raise ConfigError(f"{path}: is not a PNG or JPEG picture, or a damaged one") from error


def random_inputs(library: Library, generator: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Draw inputs: uniform in [-1, 1) for floats, over the whole range for integers."""
    return [_random(generator, tensor) for tensor in library.inputs]


def _random(generator: np.random.Generator, tensor: Tensor) -> npt.NDArray[np.generic]:
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return np.asarray(generator.uniform(-1.0, 1.0, tensor.shape), dtype=dtype)
    if dtype.kind == "b":
        return np.asarray(generator.integers(0, 2, tensor.shape), dtype=dtype)
    limits = np.iinfo(dtype)
    return np.asarray(generator.integers(limits.min, limits.max, tensor.shape, dtype, endpoint=True))
