# SPDX-License-Identifier: Apache-2.0
"""The CIFAR-10 CNN of the microTVM blog post of 2020, as TensorFlow Lite: 12,298,240 multiply-accumulates."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from models.tflite_writer import Builder
from utvm.errors import ConfigError

IMAGE = (32, 32, 3)
CLASSES = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

SHAPES = {
    "mean_data": IMAGE,
    "conv0_weight": (32, 5, 5, 3),
    "conv0_bias": (32,),
    "conv1_weight": (32, 5, 5, 32),
    "conv1_bias": (32,),
    "conv2_weight": (64, 5, 5, 32),
    "conv2_bias": (64,),
    "dense0_weight": (10, 1024),
    "dense0_bias": (10,),
}
"""The parameters and their shapes; a kernel is (output, row, column, input)."""

_POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D", "AVERAGE_POOL_2D")

Parameters = Mapping[str, npt.NDArray[np.int64]]


def _limits(name: str) -> tuple[int, int]:
    """Smallest and largest allowed value of a parameter."""
    if name == "mean_data":
        return 0, 255
    # A bias is shifted left by 3 and then has 32 bits.
    return (-128, 127) if name.endswith("_weight") else (-(1 << 28), (1 << 28) - 1)


def random_parameters(seed: int = 0) -> Parameters:
    """Draw uniform parameters from ``numpy.random.default_rng(seed)``, in the order of :data:`SHAPES`.

    Few results of a layer saturate with these ranges: means from 130 to 139, weights from -25 to 24, biases from -3
    to 2.
    """
    generator = np.random.default_rng(seed)
    ranges = {"data": (130, 140), "weight": (-25, 25), "bias": (-3, 3)}
    return {name: generator.integers(*ranges[name.split("_")[1]], shape) for name, shape in SHAPES.items()}


def read_parameters(path: Path) -> Parameters:
    """Read parameters from a JSON file: an object from each name in :data:`SHAPES` to its integers.

    The integers may be nested lists of the parameter's shape, or one flat list of all of them in that order.

    Raises:
        ConfigError: the file cannot be read or is invalid; the message names the parameter.
    """
    hint = "models/cifar10_cnn/README.md has the format"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON", hint) from error
    if not isinstance(content, dict) or set(content) != set(SHAPES):
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise ConfigError(f"{path}: must hold {', '.join(SHAPES)}, but holds {keys[:300]}", hint)
    parameters = {}
    for name, shape in SHAPES.items():
        try:
            array = np.array(content[name])
        except ValueError:  # lists of different lengths
            array = np.array(None)
        low, high = _limits(name)
        if array.dtype.kind != "i" or array.shape not in (shape, (int(np.prod(shape)),)):
            raise ConfigError(
                f"{path}: {name} must be {int(np.prod(shape))} integers of shape {list(shape)}, "
                f"not {array.dtype.name} of {list(array.shape)}",
                hint,
            )
        if array.min() < low or array.max() > high:
            raise ConfigError(f"{path}: {name} has numbers that are not from {low} to {high}", hint)
        parameters[name] = array.reshape(shape).astype(np.int64)
    return parameters


def image_inputs(parameters: Parameters, images: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Convert images, uint8 (n, 32, 32, 3), to the network's input: subtract the mean, saturate to int8."""
    return np.clip(images.astype(np.int64) - parameters["mean_data"], -128, 127).astype(np.int8)


def network(parameters: Parameters) -> bytes:
    """Write the network as a TensorFlow Lite file. All scales are powers of two, so rescaling is a shift."""
    builder = Builder()
    scale, source = 1.0, builder.tensor("image", (1, *IMAGE), "int8", scale=1.0)
    for number, pool in enumerate(_POOLS):
        kernel = parameters[f"conv{number}_weight"]
        outputs, side = kernel.shape[0], IMAGE[0] >> number
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
    builder.tensor("dense", (10, 1024), "int8", parameters["dense0_weight"], scale=1.0)
    builder.tensor("dense_bias", (10,), "int32", parameters["dense0_bias"] << 3, scale=scale)
    builder.tensor("flat_shape", (2,), "int32", [1, 1024])
    flat = builder.tensor("flat", (1, 1024), "int8", scale=scale)
    logits = builder.tensor("logits", (1, 10), "int8", scale=scale * 2.0**5)
    builder.operator("RESHAPE", [source, "flat_shape"], [flat])
    builder.operator("FULLY_CONNECTED", [flat, "dense", "dense_bias"], [logits])
    return builder.finish(["image"], ["logits"])
