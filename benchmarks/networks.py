"""The int8 networks that the compiler is measured on.

They are not part of the project: they are read from the folder that ``UTVM_MODEL_CACHE`` names. The two of MLPerf
Tiny are files of mlcommons/tiny; the CIFAR-10 network is that of the microTVM blog post of 2020, whose trained
weights (``cifar10_cnn_params.json``, from microtvm-blogpost-eval) are written as TensorFlow Lite here.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.tflite_writer import Builder


@dataclass(frozen=True)
class Network:
    """A network, and what it has to reach.

    Attributes:
        content: a TensorFlow Lite file.
        most_instructions: the most that one inference may take.
        most_arena: the most bytes of working memory, inputs and outputs counted.
        usual: what is used today, with its instructions and bytes of working memory, as counted once on the same
            yardstick (not measured again here).
    """

    name: str
    content: bytes
    most_instructions: int
    most_arena: int
    usual: tuple[str, int, int]


def networks() -> list[Network]:
    """Read the three networks.

    Raises:
        SystemExit: UTVM_MODEL_CACHE does not name a folder that holds them.
    """
    folder = Path(os.environ.get("UTVM_MODEL_CACHE", ""))
    files = ("cifar10_cnn_params.json", "pretrainedResnet_quant.tflite", "vww_96_int8.tflite")
    missing = [name for name in files if not (folder / name).is_file()]
    if missing or not os.environ.get("UTVM_MODEL_CACHE"):
        raise SystemExit(f"set UTVM_MODEL_CACHE to a folder with {', '.join(missing or files)}")
    cifar, resnet, vww = (folder / name for name in files)
    tflm = "TFLite Micro + CMSIS-NN"
    return [
        Network("cifar10_cnn", cifar10_cnn(cifar), 19_000_000, 41 * 1024, ("CMSIS-NN", 25_501_958, 44_160)),
        Network("resnet8", resnet.read_bytes(), 25_000_000, 45 * 1024, (tflm, 30_023_120, 54_996)),
        Network("vww", vww.read_bytes(), 20_000_000, 60 * 1024, (tflm, 24_025_498, 100_708)),
    ]


def cifar10_cnn(weights: Path) -> bytes:
    """Write the network of the 2020 post: 12,298,240 multiply-accumulates on 32x32x3, all scales powers of two."""
    parameters = {name: np.array(values) for name, values in json.loads(weights.read_text()).items()}
    builder = Builder()
    scale, source = 1.0, builder.tensor("image", (1, 32, 32, 3), "int8", scale=1.0)
    layers = ((3, 32, 5, "MAX_POOL_2D"), (32, 32, 5, "AVERAGE_POOL_2D"), (32, 64, 5, "AVERAGE_POOL_2D"))
    for number, (inputs, outputs, size, pool) in enumerate(layers):
        side = 32 >> number
        kernel = parameters[f"conv{number}_weight"].reshape(outputs, size, size, inputs)
        builder.tensor(f"weights{number}", kernel.shape, "int8", kernel, scale=1.0)
        builder.tensor(f"bias{number}", (outputs,), "int32", parameters[f"conv{number}_bias"], scale=scale)
        scale *= 2.0**9
        conv = builder.tensor(f"conv{number}", (1, side, side, outputs), "int8", scale=scale)
        pooled = builder.tensor(f"pool{number}", (1, side // 2, side // 2, outputs), "int8", scale=scale)
        builder.operator(
            "CONV_2D",
            [source, f"weights{number}", f"bias{number}"],
            [conv],
            padding="SAME",
            fused_activation_function="RELU",
        )
        window = {"filter_height": 3, "filter_width": 3, "stride_h": 2, "stride_w": 2}
        builder.operator(pool, [conv], [pooled], padding="SAME", **window)
        source = pooled
    builder.tensor("dense", (10, 1024), "int8", parameters["dense0_weight"].reshape(10, 1024), scale=1.0)
    builder.tensor("dense_bias", (10,), "int32", parameters["dense0_bias"] << 3, scale=scale)
    builder.tensor("flat_shape", (2,), "int32", [1, 1024])
    flat = builder.tensor("flat", (1, 1024), "int8", scale=scale)
    logits = builder.tensor("logits", (1, 10), "int8", scale=scale * 2.0**5)
    builder.operator("RESHAPE", [source, "flat_shape"], [flat])
    builder.operator("FULLY_CONNECTED", [flat, "dense", "dense_bias"], [logits])
    return builder.finish(["image"], ["logits"])
