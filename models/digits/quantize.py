# SPDX-License-Identifier: Apache-2.0
"""Quantise the trained digits model to int8 and write it as TensorFlow Lite.

    python models/digits/quantize.py [FILE]

Post-training quantisation after TensorFlow Lite's int8 specification: weights are symmetric with one scale per
output channel (per tensor in the dense layer), biases are int32, activations have one scale and zero point per
tensor, from their range on the training images. Pixels, 0 to 16, become int8 from -128 to 127.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from models.digits.data import Images, training
from models.tflite_writer import Builder

FLOAT_MODEL = Path(__file__).with_name("digits.onnx")
MODEL = Path(__file__).with_name("digits_int8.tflite")

_BRIGHTEST = 16.0

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Scale:
    """An affine quantisation: real = scale * (int8 - zero)."""

    scale: float
    zero: int

    def quantize(self, values: npt.ArrayLike) -> npt.NDArray[np.int8]:
        """Round to the nearest int8 value, halves to even."""
        steps = np.rint(np.asarray(values, np.float64) / self.scale) + self.zero
        return np.clip(steps, -128, 127).astype(np.int8)


PIXELS = Scale(_BRIGHTEST / 255, -128)


def quantized_images(images: Images) -> npt.NDArray[np.int8]:
    """Convert images of the data set, float32 (n, 1, 8, 8), to the int8 model's input, (n, 8, 8, 1)."""
    return PIXELS.quantize(images.transpose(0, 2, 3, 1))


def float_weights() -> dict[str, Floats]:
    """Trained weights of the float model, by name."""
    model = onnx.load(FLOAT_MODEL)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def _convolve(images: Floats, kernel: Floats, bias: Floats) -> Floats:
    """Convolve (n, c, h, w) with a zero-padded 3x3 kernel OIHW, and apply ReLU.

    In float64: the order of a library's sums differs between CPUs, and float32 scales would differ with it.
    """
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    result = np.einsum("nchwij,ocij->nohw", windows.astype(np.float64), kernel, optimize=True)
    return np.maximum(result + bias[:, None, None], 0)


def _max_pool(images: Floats) -> Floats:
    """2x2 max pooling."""
    count, channels, height, width = images.shape
    return images.reshape(count, channels, height // 2, 2, width // 2, 2).max((3, 5))


def _scale_of(values: Floats) -> Scale:
    """Scale that maps the range of the values, extended to zero, to int8."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = float(np.float32((high - low) / 255))
    return Scale(scale, round(-128 - low / scale))


def _quantize_weights(weights: Floats, axis: int | None) -> tuple[npt.NDArray[np.int8], Floats]:
    """Quantise weights to -127 to 127, with one scale for each index along ``axis``, or one for all."""
    other_axes = None if axis is None else tuple(number for number in range(weights.ndim) if number != axis)
    scales = np.asarray(np.abs(weights).max(axis=other_axes) / 127, np.float32)
    shape = [1] * weights.ndim
    if axis is not None:
        shape[axis] = -1
    return np.rint(weights / scales.reshape(shape)).astype(np.int8), scales.ravel()


def quantize() -> bytes:
    """Build the int8 model as a TensorFlow Lite file."""
    weights, images = float_weights(), training()[0]
    first = _convolve(images, weights["conv1"], weights["bias1"])
    second = _convolve(_max_pool(first), weights["conv2"], weights["bias2"])
    # The int8 model flattens (height, width, channel), the float one (channel, height, width).
    dense = weights["dense"].reshape(32, 2, 2, 10).transpose(3, 1, 2, 0).reshape(10, 128)
    flat = _max_pool(second).transpose(0, 2, 3, 1).reshape(len(images), 128)
    logits = flat @ dense.T + weights["bias3"]

    builder = Builder()
    builder.tensor("image", (1, 8, 8, 1), "int8", scale=PIXELS.scale, zero_point=PIXELS.zero)
    input_scale, source = PIXELS, "image"
    for number, (values, size) in enumerate(((first, 8), (second, 4)), 1):
        output_scale, channels = _scale_of(values), values.shape[1]
        kernel = weights[f"conv{number}"].transpose(0, 2, 3, 1)
        _add_weights(builder, number, kernel, weights[f"bias{number}"], input_scale, axis=0)
        for name, side in ((f"conv{number}", size), (f"pool{number}", size // 2)):
            builder.tensor(
                name, (1, side, side, channels), "int8", scale=output_scale.scale, zero_point=output_scale.zero
            )
        builder.operator(
            "CONV_2D",
            [source, f"weights{number}", f"bias{number}"],
            [f"conv{number}"],
            padding="SAME",
            fused_activation_function="RELU",
        )
        window = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2}
        builder.operator("MAX_POOL_2D", [f"conv{number}"], [f"pool{number}"], padding="VALID", **window)
        input_scale, source = output_scale, f"pool{number}"
    _add_weights(builder, 3, dense, weights["bias3"], input_scale, axis=None)
    builder.tensor("flat", (1, 128), "int8", scale=input_scale.scale, zero_point=input_scale.zero)
    builder.tensor("flat_shape", (2,), "int32", [1, 128])
    builder.operator("RESHAPE", [source, "flat_shape"], ["flat"])
    logit_scale = _scale_of(logits)
    builder.tensor("logits", (1, 10), "int8", scale=logit_scale.scale, zero_point=logit_scale.zero)
    builder.operator("FULLY_CONNECTED", ["flat", "weights3", "bias3"], ["logits"])
    return builder.finish(["image"], ["logits"])


def _add_weights(
    builder: Builder, number: int, weights: Floats, bias: Floats, input_scale: Scale, *, axis: int | None
) -> None:
    integers, scales = _quantize_weights(weights, axis)
    steps = np.float64(input_scale.scale) * scales.astype(np.float64)
    builder.tensor(f"weights{number}", weights.shape, "int8", integers, scale=scales, axis=0)
    builder.tensor(f"bias{number}", bias.shape, "int32", np.rint(bias / steps), scale=steps, axis=0)


def main() -> None:
    """Write the model to the file named on the command line; by default, overwrite the committed model."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL
    target.write_bytes(quantize())
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
