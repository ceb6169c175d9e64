# SPDX-License-Identifier: Apache-2.0
"""QLinearConv and QLinearMatMul with zero points of weights, against ONNX's definition in integers."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from host_library import HostLibrary
from onnx import helper, numpy_helper

from utvm.compiler import Model, compile_model, from_onnx

Array = npt.NDArray[Any]


class _Draw:
    """Random numbers of a case."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = np.dtype(self.random.choice(["int8", "uint8"]))
        self.weight_dtype = np.dtype(self.random.choice(["int8", "uint8"]))

    def numbers(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        info = np.iinfo(dtype)
        return self.random.integers(info.min, info.max + 1, shape).astype(dtype)

    def scales(self, shape: tuple[int, ...]) -> Array:
        return self.random.uniform(0.001, 0.05, shape).astype(np.float32)

    def stored(self, w: Array, count: tuple[int, ...]) -> dict[str, Array]:
        """Weights, and scales and zero points of input, weights and result, by the operators' names."""
        return {
            "xs": self.scales(()),
            "xz": self.numbers((), self.dtype),
            "w": w,
            "ws": self.scales(count),
            "wz": self.numbers(count, self.weight_dtype),
            "ys": self.scales(()) * np.float32(20),
            "yz": self.numbers((), self.dtype),
        }


def _definition(sums: Array, factors: Array, zero: Array) -> Array:
    """Requantise by the text of QLinearConv and QLinearMatMul: round halves to even, add, saturate."""
    info = np.iinfo(zero.dtype)
    steps = np.rint(sums.astype(np.float32) * factors.astype(np.float32)).astype(np.int64)
    return np.asarray(np.clip(steps + int(zero), info.min, info.max).astype(zero.dtype))


def _model(operator: str, x: Array, shape: tuple[int, ...], stored: dict[str, Array], **attributes: Any) -> Model:
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *stored], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(x.dtype), shape)],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return from_onnx(proto.SerializeToString(), "m")


def _check(model: Model, x: Array, expected: Array, folder: Path) -> None:
    library = compile_model(model)
    assert not library.leftovers
    assert [call.kind for call in library.calls if "asymmetric" in call.kind]
    (result,) = HostLibrary(library, folder)(x)
    assert (result == expected).all()


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(4, 24))])
def test_convolution_equals_the_definition(seed: int, tmp_path: Path) -> None:
    draw = _Draw(seed)
    random = draw.random
    depthwise, per_channel = bool(seed % 3 == 2), bool(seed % 2)
    channels = int(random.integers(1, 5))
    outputs = channels * int(random.integers(1, 3)) if depthwise else int(random.integers(1, 7))
    rows, columns = (int(extent) for extent in random.integers(1, 4, 2))
    strides, dilations = random.integers(1, 3, 2).tolist(), random.integers(1, 3, 2).tolist()
    pads = random.integers(0, 3, 4).tolist()
    x = draw.numbers((1, channels, 8, 7), draw.dtype)
    w = draw.numbers((outputs, 1 if depthwise else channels, rows, columns), draw.weight_dtype)
    count = (outputs,) if per_channel else ()
    stored = draw.stored(w, count)
    stored["b"] = random.integers(-2000, 2000, outputs).astype(np.int32)
    padded = np.pad(x.astype(np.int64) - int(stored["xz"]), [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    wide = w.astype(np.int64) - np.broadcast_to(stored["wz"], (outputs,)).astype(np.int64).reshape(-1, 1, 1, 1)
    extents = [(size - 1) * gap + 1 for size, gap in zip((rows, columns), dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded[0], extents, (1, 2))
    windows = windows[:, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    copies = outputs // channels if depthwise else 0
    sums = np.stack(
        [
            np.einsum("cyxrk,crk->yx", windows[o // copies : o // copies + 1] if copies else windows, wide[o])
            + stored["b"][o]
            for o in range(outputs)
        ]
    )
    factors = stored["xs"] * np.broadcast_to(stored["ws"], (outputs,)) / stored["ys"]
    expected = _definition(sums, factors.reshape(-1, 1, 1), stored["yz"])[None]
    model = _model(
        "QLinearConv", x, expected.shape, stored,
        strides=strides, dilations=dilations, pads=pads, group=channels if depthwise else 1,
    )  # fmt: skip
    _check(model, x, expected, tmp_path)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 12))])
def test_matrix_product_equals_the_definition(seed: int, tmp_path: Path) -> None:
    draw = _Draw(seed + 100)
    rows, depth, columns = (int(extent) for extent in draw.random.integers(1, 40, 3))
    x, w = draw.numbers((rows, depth), draw.dtype), draw.numbers((depth, columns), draw.weight_dtype)
    count = (columns,) if seed % 2 else ()
    stored = draw.stored(w, count)
    sums = (x.astype(np.int64) - int(stored["xz"])) @ (w.astype(np.int64) - stored["wz"].astype(np.int64))
    expected = _definition(sums, stored["xs"] * stored["ws"] / stored["ys"], stored["yz"])
    _check(_model("QLinearMatMul", x, expected.shape, stored), x, expected, tmp_path)
