# SPDX-License-Identifier: Apache-2.0
"""Measures a complete run of networks on the board ``host``, with empty caches, and again: time and memory.

Six public architectures, with random weights: five in int8, as TensorFlow Lite's converter writes them, and one in
float32. Each run is a complete command, from the shell to the outputs. Seconds are those of all processors together, so
other programs on the machine do not count.

Run: ``.venv/bin/python benchmarks/compile.py``.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console

from benchmarks import seen
from models.tflite_writer import Builder
from utvm.paths import ROOT


class Network:
    """Writes int8 layers, one after the other.

    Attributes:
        last: the output tensor of the last layer.
        shape: its height, width and channels.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self._builder = Builder()
        self._random = np.random.default_rng(1)
        self._count = 0
        self.shape = shape
        self.last = self._first = self._tensor()

    def _tensor(self) -> str:
        self._count += 1
        return self._builder.tensor(f"t{self._count}", (1, *self.shape), "int8", scale=0.05)

    def _parameters(self, shape: tuple[int, ...], channels: int, axis: int) -> list[str]:
        scales = self._random.uniform(0.001, 0.004, channels)
        zeros, quantisation = 0 * scales, {"scale": scales, "zero_point": 0 * scales, "axis": axis}
        weights = self._random.integers(-127, 128, shape)
        bias = self._random.integers(-1000, 1000, channels)
        return [
            self._builder.tensor(f"w{self._count}", shape, "int8", weights, **quantisation),
            self._builder.tensor(f"b{self._count}", (channels,), "int32", bias, scale=scales * 0.05, zero_point=zeros),
        ]

    def convolution(
        self, channels: int, kernel: tuple[int, int] = (1, 1), stride: int = 1, activation: str = "RELU6"
    ) -> None:
        """Add a convolution: a depthwise one if ``channels`` is 0."""
        height, width, depth = self.shape
        data = self.last
        self.shape = (-(-height // stride), -(-width // stride), channels or depth)
        self.last = self._tensor()
        shape, name = (channels, *kernel, depth), "CONV_2D"
        if not channels:
            shape, name = (1, *kernel, depth), "DEPTHWISE_CONV_2D"
        operands = [data, *self._parameters(shape, channels or depth, 0 if channels else 3)]
        options = {"stride_h": stride, "stride_w": stride, "padding": "SAME"}
        self._builder.operator(name, operands, [self.last], **options, fused_activation_function=activation)

    def addition(self, other: str, activation: str = "NONE") -> None:
        """Add the output of another layer."""
        data, self.last = self.last, self._tensor()
        self._builder.operator("ADD", [other, data], [self.last], fused_activation_function=activation)

    def pool(self, operator: str, kernel: tuple[int, int], stride: int) -> None:
        """Add a pooling."""
        height, width, channels = self.shape
        data = self.last
        is_global = kernel == (height, width)
        self.shape = (1, 1, channels) if is_global else (height // stride, width // stride, channels)
        self.last = self._tensor()
        options = {"filter_height": kernel[0], "filter_width": kernel[1], "stride_h": stride, "stride_w": stride}
        self._builder.operator(operator, [data], [self.last], **options, padding="VALID" if is_global else "SAME")

    def content(self, classes: int) -> bytes:
        """Add the layers from an image to classes, and return the file."""
        self.pool("AVERAGE_POOL_2D", self.shape[:2], 1)
        self.convolution(classes, activation="NONE")
        return self._builder.finish([self._first], [self.last])


def _inverted(stem: int, rows: Sequence[tuple[int, ...]]) -> bytes:
    """Write inverted residuals. A row: expansion, channels, repetitions, the first one's stride, kernel."""
    network = Network((224, 224, 3))
    network.convolution(stem, (3, 3), 2)
    for expansion, channels, repetitions, first_stride, kernel in rows:
        for number in range(repetitions):
            block_input, depth, stride = network.last, network.shape[2], 1 if number else first_stride
            if expansion > 1:
                network.convolution(depth * expansion)
            network.convolution(0, (kernel, kernel), stride)
            network.convolution(channels, activation="NONE")
            if stride == 1 and depth == channels:
                network.addition(block_input)
    network.convolution(1280)
    return network.content(1000)


def _separable(network: Network, rows: Sequence[tuple[int, int]], classes: int) -> bytes:
    """Write depthwise separable convolutions. A row: channels, stride."""
    for channels, stride in rows:
        network.convolution(0, (3, 3), stride)
        network.convolution(channels)
    return network.content(classes)


def _mobilenet_v2() -> bytes:
    """Table 2 of arXiv:1801.04381."""
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    return _inverted(32, [(*row, 3) for row in rows])


def _efficientnet_lite0() -> bytes:
    """Table 1 of arXiv:1905.11946, without squeeze and excitation, as EfficientNet-Lite has it."""
    rows = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    )  # fmt: skip
    return _inverted(32, rows)


def _mobilenet_v1() -> bytes:
    """A quarter of the channels of table 1 of arXiv:1704.04861, on images of 96 x 96."""
    network = Network((96, 96, 3))
    network.convolution(8, (3, 3), 2)
    rows = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
    return _separable(network, rows, 2)


def _ds_cnn() -> bytes:
    """The small one of arXiv:1711.07128, as MLPerf Tiny has it."""
    network = Network((49, 10, 1))
    network.convolution(64, (10, 4), 2)
    return _separable(network, [(64, 1)] * 4, 12)


def _resnet18() -> bytes:
    """Table 1 of arXiv:1512.03385."""
    network = Network((224, 224, 3))
    network.convolution(64, (7, 7), 2, "RELU")
    network.pool("MAX_POOL_2D", (3, 3), 2)
    for channels in (64, 128, 256, 512):
        for number in range(2):
            stride = 2 if channels > 64 and number == 0 else 1
            block_input, shape = network.last, network.shape
            network.convolution(channels, (3, 3), stride, "RELU")
            network.convolution(channels, (3, 3), 1, "NONE")
            if stride > 1:
                block_output, network.last, network.shape = network.last, block_input, shape
                network.convolution(channels, (1, 1), stride, "NONE")
                block_input = block_output
            network.addition(block_input, "RELU")
    return network.content(1000)


def _encoder() -> bytes:
    """A block of the encoder of arXiv:1706.03762 in float32: 64 positions, 128 numbers, 4 heads."""
    random, positions, width, heads = np.random.default_rng(1), 64, 128, 4
    nodes: list[onnx.NodeProto] = []
    stored: list[onnx.TensorProto] = []

    def add(operator: str, *inputs: str, **options: object) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [f"t{len(nodes)}"], **options))
        return f"t{len(nodes) - 1}"

    def constant(value: object) -> str:
        stored.append(numpy_helper.from_array(np.asarray(value), f"c{len(stored)}"))
        return f"c{len(stored) - 1}"

    def dense(data: str, rows: int, columns: int) -> str:
        weights = constant(random.normal(0, 0.1, (rows, columns)).astype(np.float32))
        return add("Add", add("MatMul", data, weights), constant(np.zeros(columns, np.float32)))

    def normal(data: str) -> str:
        return add("LayerNormalization", data, constant(np.ones(width, np.float32)), axis=-1)

    def head(data: str, order: Sequence[int]) -> str:
        split = constant(np.array([positions, heads, width // heads]))
        return add("Transpose", add("Reshape", dense(data, width, width), split), perm=list(order))

    scores = add("MatMul", head("x", (1, 0, 2)), head("x", (1, 2, 0)))
    shares = add("Softmax", add("Mul", scores, constant(np.float32((width // heads) ** -0.5))), axis=-1)
    heads_joined = add("Transpose", add("MatMul", shares, head("x", (1, 0, 2))), perm=[1, 0, 2])
    flat = add("Reshape", heads_joined, constant(np.array([positions, width])))
    attention = normal(add("Add", "x", dense(flat, width, width)))
    inner = add("Relu", dense(attention, width, 4 * width))
    result = normal(add("Add", attention, dense(inner, 4 * width, width)))
    kinds = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [positions, width]) for name in ("x", result)]
    graph = helper.make_graph(nodes, "encoder", kinds[:1], kinds[1:], stored)
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    return content


NETWORKS: dict[str, Callable[[], bytes]] = {
    "mobilenet_v2.tflite": _mobilenet_v2,
    "resnet18.tflite": _resnet18,
    "efficientnet_lite0.tflite": _efficientnet_lite0,
    "mobilenet_v1_025.tflite": _mobilenet_v1,
    "ds_cnn.tflite": _ds_cnn,
    "encoder.onnx": _encoder,
}


def measure(model: Path, cache: Path) -> tuple[float, int]:
    """Run a network once; return processor seconds, and the most memory of any process in KiB."""
    command = [sys.executable, "-m", "utvm", "model.run", "--model", str(model), "--board", "host"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return used.ru_utime + used.ru_stime, used.ru_maxrss


def main() -> None:
    """Measure, print, and store the figures."""
    figures = {}
    for name, make in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / name
            model.write_bytes(make())
            cold, memory = measure(model, Path(folder) / "cache")
            warm, again = min(measure(model, Path(folder) / "cache") for _ in range(2))
            size = model.stat().st_size
        Console().print(
            f"{model.stem}, {size:,} bytes: {cold:.1f} s with empty caches, {memory >> 10} MiB at most; "
            f"{warm:.1f} s again, {again >> 10} MiB: 1 : {cold / warm:.1f}"
        )
        figures[model.stem] = {
            "bytes": size,
            "cold_s": round(cold, 1),
            "mib": memory >> 10,
            "warm_s": round(warm, 1),
            "warm_mib": again >> 10,
        }
    seen.keep("compile", figures)


if __name__ == "__main__":
    main()
