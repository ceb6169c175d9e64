# SPDX-License-Identifier: Apache-2.0
"""Pictures as inputs of a model: their values, and one error for any other file."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from utvm.compiler import Tensor
from utvm.compiler.library import Scaling
from utvm.errors import ConfigError
from utvm.firmware.inputs import are_pictures, as_integers, read_pictures

_COLOURS = np.random.default_rng(1).integers(0, 256, (5, 4, 3), np.uint8)
_RGB = Image.fromarray(_COLOURS)
_REAL = Tensor("x", (1, 5, 4, 3), "float32")
_INT8 = Tensor("x", (1, 5, 4, 3), "int8", Scaling(0.02, -5))


def _png(width: int, height: int) -> bytes:
    """Return a PNG file with this size in its header and no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("shape", [(1, 5, 4, 3), (1, 3, 5, 4), (5, 4, 3), (3, 5, 4)])
def test_colours_have_the_models_layout(shape: tuple[int, ...], tmp_path: Path) -> None:
    _RGB.save(tmp_path / "a.png")
    (read,) = read_pictures(str(tmp_path / "a.png"), Tensor("x", shape, "uint8"), "")
    ordered = _COLOURS.transpose(2, 0, 1) if 3 in (shape[0], shape[1]) else _COLOURS
    np.testing.assert_array_equal(read, ordered.reshape(shape), strict=True)


def test_grey_and_colour_pictures_are_converted(tmp_path: Path) -> None:
    _RGB.save(tmp_path / "a.png")
    Image.fromarray(_COLOURS[:, :, 0]).save(tmp_path / "grey.png")
    (grey,) = read_pictures(str(tmp_path / "a.png"), Tensor("x", (1, 5, 4, 1), "uint8"), "")
    luma = _COLOURS @ np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    assert np.abs(grey[0, :, :, 0] - luma).max() <= 0.51
    (coloured,) = read_pictures(str(tmp_path / "grey.png"), Tensor("x", (1, 5, 4, 3), "uint8"), "")
    np.testing.assert_array_equal(coloured[0], np.stack([_COLOURS[:, :, 0]] * 3, axis=-1))


@pytest.mark.parametrize(
    ("scale", "low", "high"), [("0..1", 0, 1), ("-1..1", -1, 1), ("1..0", 1, 0), ("0..255", 0, 255)]
)
def test_scale_sets_the_values_of_black_and_white(scale: str, low: float, high: float, tmp_path: Path) -> None:
    _RGB.save(tmp_path / "a.png")
    expected = low + (high - low) * _COLOURS.astype(np.float64)[np.newaxis] / 255
    (real,) = read_pictures(str(tmp_path / "a.png"), _REAL, scale)
    np.testing.assert_allclose(real, expected, rtol=1e-6, atol=1e-7)
    (quantised,) = read_pictures(str(tmp_path / "a.png"), _INT8, scale)
    integers = np.clip(np.rint(expected / 0.02) - 5, -128, 127)
    np.testing.assert_array_equal(as_integers(quantised, _INT8), integers)


def test_bytes_are_unchanged_without_a_scale(tmp_path: Path) -> None:
    _RGB.save(tmp_path / "a.png")
    (quantised,) = read_pictures(str(tmp_path / "a.png"), _INT8, "")
    np.testing.assert_array_equal(as_integers(quantised, _INT8), (_COLOURS.astype(np.int16) - 128)[np.newaxis])


def test_pictures_of_a_folder_are_ordered_by_name(tmp_path: Path) -> None:
    for name, value in (("b.png", 2), ("a.PNG", 1), ("c.jpeg", 3)):
        Image.new("L", (4, 5), value).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("1\n")
    read = read_pictures(str(tmp_path), Tensor("x", (1, 5, 4, 1), "uint8"), "")
    assert read.shape == (3, 1, 5, 4, 1)
    assert read[:, 0, 0, 0, 0].tolist() == [1, 2, 3]


def test_photograph_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown with a quarter turn clockwise
    lying = Image.new("L", (5, 4))
    lying.paste(255, (0, 0, 2, 4))
    lying.save(tmp_path / "a.png", exif=exif)
    (read,) = read_pictures(str(tmp_path / "a.png"), Tensor("x", (1, 5, 4, 1), "uint8"), "")
    np.testing.assert_array_equal(read[0, :, :, 0], [[255] * 4] * 2 + [[0] * 4] * 3)


def _to_png(make: Callable[[], Image.Image]) -> bytes:
    stream = io.BytesIO()
    make().save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "tensor", "scale", "message"),
    [
        (_png(640, 480), _REAL, "0..1", r"is 640 x 480 pixels, and the model takes 4 x 5\n  hint: cut or scale"),
        (_png(4, 5), _REAL, "0..1", "not a PNG or JPEG picture, or a damaged one"),
        (_png(20000, 20000), _REAL, "0..1", "more pixels than any model"),
        (_png(1 << 14, 1 << 13), _REAL, "0..1", "is 16384 x 8192 pixels"),
        (_to_png(lambda: _RGB)[:-30], _REAL, "0..1", "a damaged one"),
        (_to_png(lambda: Image.new("RGBA", (4, 5), (1, 2, 3, 4))), _REAL, "0..1", "is transparent in parts"),
        (_to_png(lambda: Image.new("I;16", (4, 5))), _REAL, "0..1", "has colours as I;16"),
        (_to_png(lambda: _RGB), _REAL, "", "the values of black and white are unknown"),
        (_to_png(lambda: _RGB), _REAL, "0-1", "is not two numbers"),
        (_to_png(lambda: _RGB), Tensor("x", (1, 5, 4, 3), "uint8"), "0..1", "has no scale and zero point"),
        (_to_png(lambda: _RGB), Tensor("x", (1, 60), "float32"), "0..1", "not the shape of a picture"),
        (_to_png(lambda: _RGB), Tensor("x", (1, 3, 4, 3), "float32"), "0..1", "not the shape of a picture"),
    ],
)  # fmt: skip
def test_unsuitable_picture_is_a_clear_error(
    content: bytes, tensor: Tensor, scale: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_pictures(str(tmp_path / "a.png"), tensor, scale)


def test_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no pictures"):
        read_pictures(str(tmp_path), _REAL, "0..1")


def _damage(content: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(content)
    for index, value in changes:
        changed[index % len(changed)] = value
    return bytes(changed)


def _pictures() -> list[bytes]:
    streams = [io.BytesIO() for _ in range(2)]
    _RGB.save(streams[0], "PNG")
    _RGB.save(streams[1], "JPEG")
    return [stream.getvalue() for stream in streams]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.sampled_from(_pictures()),
    places=st.lists(st.tuples(st.integers(4, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4),
    length=st.integers(0, 2000),
)
def test_damaged_picture_is_read_or_refused(
    content: bytes, places: list[tuple[int, int]], length: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(_damage(content, places)[:length])
    if are_pictures(str(path)):
        try:
            read: Any = read_pictures(str(path), _REAL, "0..1")
        except ConfigError:
            return
        assert read.shape == (1, 1, 5, 4, 3)
