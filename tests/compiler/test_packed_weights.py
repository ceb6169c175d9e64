# SPDX-License-Identifier: Apache-2.0
"""Weights packed by TensorFlow Lite Micro's compressor equal that library's kernels, bit for bit."""

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from host_library import HostLibrary
from tflite_micro.python.tflite_micro import runtime
from tflite_micro.tensorflow.lite.micro import compression
from tflite_micro.tensorflow.lite.micro.compression.spec import PerChannel, PerTensor

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite
from utvm.errors import CompileError

Array = npt.NDArray[np.generic]


def _model(dtype: str, packed: tuple[Array, bytes] | None, weights: Array, scales: list[float], axis: int) -> bytes:
    """A model that adds weights to its input; packed weights are unpacked by a TFLM_DECODE."""
    builder = Builder()
    quantised = {"int8": {"scale": 0.5}, "int16": {"scale": 1 / 4096}}.get(dtype, {})
    builder.tensor("x", weights.shape, dtype, **quantised)
    quantisation = {"scale": scales, "axis": axis} if scales else quantised
    builder.tensor("w", weights.shape, dtype, None if packed else weights, **quantisation)
    builder.tensor("y", weights.shape, dtype, **quantised)
    if packed:
        content, table = packed
        builder.tensor("packed", content.shape, "uint8", content)
        builder.tensor("table", (len(table),), "uint8", np.frombuffer(table, np.uint8))
        builder.operator("TFLM_DECODE", ["packed", "table"], ["w"])
    builder.operator("ADD", ["x", "w"], ["y"])
    return builder.finish(["x"], ["y"])


def _check(content: bytes, shape: tuple[int, ...], dtype: str, directory: Path) -> None:
    inputs = np.random.default_rng(5).integers(-100, 100, shape).astype(dtype)
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 18)
    interpreter.set_input(inputs, 0)
    interpreter.invoke()
    (result,) = HostLibrary(compile_model(from_tflite(content, "m")), directory)(inputs)
    np.testing.assert_array_equal(result, interpreter.get_output(0))
    assert len(np.unique(result)) > 2


def _bits(text: str) -> Array:
    """Bits packed into bytes, in complete 32-bit words."""
    return np.packbits(np.array([int(bit) for bit in text.ljust(-(-len(text) // 32) * 32 + 32, "0")], np.uint8))


def _prune(weights: Array) -> tuple[Array, bytes]:
    nonzero = weights != 0
    return _bits("".join("01"[int(bit)] for bit in nonzero.ravel())), bytes([2, 1, 0, 0, 1, *[0] * 11]) + weights[
        nonzero
    ].tobytes()


def _codes(weights: Array) -> dict[int, str]:
    """Huffman codes of the weights."""
    trees = [
        (count, number, {value: ""}) for number, (value, count) in enumerate(Counter(weights.ravel().tolist()).items())
    ]
    while len(trees) > 1:
        low, high, *trees = sorted(trees, key=lambda tree: tree[:2])
        codes = {value: bit + code for bit, tree in (("0", low), ("1", high)) for value, code in tree[2].items()}
        trees.append((low[0] + high[0], high[1], codes))
    return trees[0][2]


def _tables(codes: dict[int, str], size: int, shift: int) -> list[int]:
    """A table for the first bits of codes, followed by the tables of the remaining bits."""
    entries = [0] * (1 << size)
    for start in range(1 << size):
        prefix = format(start, f"0{size}b")
        (value, code), *_ = [item for item in codes.items() if prefix.startswith(item[1])] or [(0, "")]
        if code:
            entries[start] = 1 << shift + 4 | len(code) << shift | value & (0x7FF if shift == 11 else 0xFFFF)
            continue
        rest = {value: code[size:] for value, code in codes.items() if code.startswith(prefix)}
        if rest:
            inner = min(3, max(map(len, rest.values())))
            entries[start] = inner - 1 << shift | len(entries) - start
            entries += _tables(rest, inner, shift)
    return entries


def _huffman(weights: Array, wide: bool, first: int = 3) -> tuple[Array, bytes]:
    codes = _codes(weights)
    assert max(map(len, codes.values())) > first + 3, "some codes need three tables"
    tables = np.array(_tables(codes, first, 27 if wide else 11), "<u4" if wide else "<u2")
    text = "".join(codes[value] for value in weights.ravel().tolist())
    return _bits(text), bytes([1, 1, 0, 0, 1, wide | first - 1 << 4, *[0] * 10]) + tables.tobytes()


def skewed_weights(dtype: str) -> Array:
    draw = np.random.default_rng(3)
    return np.round(draw.normal(0, 9, (6, 5, 7)) ** 3 / 40).clip(-128, 127).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "wide"), [("int8", False), ("int8", True), ("int16", True)])
def test_huffman_codes_are_decoded(dtype: str, wide: bool, tmp_path: Path) -> None:
    weights = skewed_weights(dtype)
    content = _model(dtype, _huffman(weights, wide), weights, [], 0)
    _check(content, weights.shape, dtype, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "float32"])
def test_pruned_weights_are_decoded(dtype: str, tmp_path: Path) -> None:
    weights = np.where(np.random.default_rng(4).random((6, 5, 7)) < 0.6, 0, skewed_weights(dtype)).astype(dtype)
    _check(_model(dtype, _prune(weights), weights, [], 0), weights.shape, dtype, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Compression of tensor")
@pytest.mark.parametrize(
    "width", [1, 4, 7, *(pytest.param(width, marks=pytest.mark.nightly) for width in (2, 3, 5, 6))]
)
@pytest.mark.parametrize("axis", [None, 0, 3], ids=["whole", "first", "last"])
def test_tables_of_the_compressor_are_decoded(width: int, axis: int | None, tmp_path: Path) -> None:
    draw = np.random.default_rng(width)
    operator = "DEPTHWISE_CONV_2D" if axis == 3 else "CONV_2D"
    shape = (1, 3, 5, 6) if axis == 3 else (6, 3, 5, 2)
    channels = shape[-1]
    weights = draw.integers(-(1 << width - 1), 1 << width - 1, shape).astype(np.int8)
    builder = Builder()
    builder.tensor("x", (1, 3, 5, channels), "int8", scale=0.5)
    scales = 0.1 if axis is None else draw.uniform(0.05, 0.2, 6)
    builder.tensor("w", shape, "int8", weights, scale=scales, axis=axis or 0)
    builder.tensor("y", (1, 3, 5, 6), "int8", scale=2.0)
    builder.operator(operator, ["x", "w"], ["y"], padding="SAME")
    mode = PerTensor() if axis is None else PerChannel(axis)
    spec = compression.SpecBuilder().add_tensor(0, 1).with_lut(width, mode).build()
    content = bytes(compression.compress(builder.finish(["x"], ["y"]), spec))
    assert b"TFLM_DECODE" in content
    _check(content, (1, 3, 5, channels), "int8", tmp_path)


@pytest.mark.parametrize("index", [0, 1, 4, 5], ids=["type", "version", "own version", "width"])
def test_damaged_tables_are_refused_by_name(index: int) -> None:
    weights = skewed_weights("int8")
    packed, table = _huffman(weights, False)
    damaged = bytearray(table)
    damaged[index] = 0x7F
    with pytest.raises(CompileError, match=r"TFLM_DECODE \(at w\): its packed weights are damaged") as caught:
        from_tflite(_model("int8", (packed[:40], bytes(damaged)), weights, [], 0), "m")
    assert "before it was compressed" in caught.value.hint
