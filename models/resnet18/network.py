# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 with seeded weights, written as ONNX: float32, 224 by 224 pixels, 1,000 classes.

The network is that of "Deep Residual Learning for Image Recognition" (He, Zhang, Ren, Sun, 2015), table 1, with
projections at the start of a stage (option B) and batch normalisation after every convolution.
"""

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUT = (1, 3, 224, 224)
CLASSES = 1000
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and first stride of each stage; each has two blocks."""

_BLOCKS = 2
_EPSILON = 1e-5

Floats = npt.NDArray[np.float32]


def network(seed: int = 0) -> bytes:
    """Build the network as an ONNX file.

    Args:
        seed: seed of ``numpy.random.default_rng``, which draws the weights in the order of the layers.
    """
    return _Writer(seed).write()


class _Writer:
    """Collects nodes and weights, layer by layer."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def write(self) -> bytes:
        value = self._convolution("stem", "image", (3, 64), 7, 2)
        value = self._node("Relu", [value], "stem_relu")
        value = self._node("MaxPool", [value], "stem_pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        channels = 64
        for stage, (outputs, stride) in enumerate(STAGES):
            for block in range(_BLOCKS):
                value = self._block(f"stage{stage}_{block}", value, (channels, outputs), stride if block == 0 else 1)
                channels = outputs
        value = self._node("GlobalAveragePool", [value], "pool")
        value = self._node("Flatten", [value], "flat")
        dense = self._weight("dense", (CLASSES, channels), channels)
        bias = self._store("dense_bias", np.zeros(CLASSES, np.float32))
        self._node("Gemm", [value, dense, bias], "logits", transB=1)
        graph = helper.make_graph(
            self._nodes,
            "resnet18",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, INPUT)],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, CLASSES))],
            self._weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return model.SerializeToString(deterministic=True)

    def _block(self, name: str, source: str, channels: tuple[int, int], stride: int) -> str:
        value = self._convolution(f"{name}_first", source, channels, 3, stride)
        value = self._node("Relu", [value], f"{name}_inside")
        value = self._convolution(f"{name}_second", value, (channels[1], channels[1]), 3, 1)
        if stride != 1 or channels[0] != channels[1]:
            source = self._convolution(f"{name}_beside", source, channels, 1, stride)
        return self._node("Relu", [self._node("Add", [value, source], f"{name}_sum")], name)

    def _convolution(self, name: str, source: str, channels: tuple[int, int], size: int, stride: int) -> str:
        """Add a convolution and its batch normalisation."""
        inputs, outputs = channels
        kernel = self._weight(f"{name}_kernel", (outputs, inputs, size, size), inputs * size * size)
        pads = [size // 2] * 4
        convolved = self._node(
            "Conv", [source, kernel], f"{name}_conv", kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads
        )
        draw = self._generator.uniform
        statistics = [
            self._store(f"{name}_{kind}", draw(low, high, outputs).astype(np.float32))
            for kind, low, high in (
                ("scale", 0.5, 1.0),
                ("shift", -0.1, 0.1),
                ("mean", -0.1, 0.1),
                ("variance", 0.5, 1.5),
            )
        ]
        return self._node("BatchNormalization", [convolved, *statistics], f"{name}_norm", epsilon=_EPSILON)

    def _weight(self, name: str, shape: tuple[int, ...], inputs: int) -> str:
        """Draw weights that preserve the variance of activations (He and others, 2015)."""
        weights = self._generator.standard_normal(shape, np.float32) * np.float32(np.sqrt(2.0 / inputs))
        return self._store(name, weights)

    def _store(self, name: str, values: Floats) -> str:
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output
