# SPDX-License-Identifier: Apache-2.0
"""Models of the project, by the names that commands take."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm import compiler
from utvm.compiler.library import Model, Sample
from utvm.errors import ConfigError
from utvm.paths import DATA


@dataclass(frozen=True)
class SampledModel:
    """A generated model with n reproducible samples; ``read`` converts a user's array to the model's input."""

    model: Model
    samples: Callable[[int], list[Sample]]
    read: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None


@dataclass(frozen=True)
class NamedModel:
    """A model built from a seed and an optional weight file; ``random``: weights are random without a file."""

    make: Callable[[int, Path | None], SampledModel]
    random: bool = False
    takes_weights: bool = False


def _cifar10_cnn(seed: int, weights: Path | None) -> SampledModel:
    from models.cifar10_cnn.network import IMAGE, image_inputs, network, random_parameters, read_parameters

    parameters = read_parameters(weights) if weights else random_parameters(seed)

    def samples(count: int) -> list[Sample]:
        images = np.random.default_rng(seed).integers(0, 256, (count, *IMAGE), np.uint8)
        return [[image[np.newaxis]] for image in image_inputs(parameters, images)]

    def read(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if images.dtype != np.uint8 or images.shape[-3:] != IMAGE or images.ndim not in (3, 4):
            raise ConfigError(
                f"cifar10_cnn takes images as uint8 [count, 32, 32, 3], not {images.dtype} {list(images.shape)}"
            )
        return image_inputs(parameters, images.reshape(-1, *IMAGE))

    return SampledModel(compiler.from_tflite(network(parameters), "cifar10_cnn"), samples, read)


def _digits(_: int, __: Path | None) -> SampledModel:
    from models.digits.data import held_out

    def samples(count: int) -> list[Sample]:
        return [[image[np.newaxis]] for image in held_out()[0][:count]]

    return SampledModel(compiler.load(DATA / "models" / "digits" / "digits.onnx"), samples)


def _digits_int8(_: int, __: Path | None) -> SampledModel:
    from models.digits.data import held_out
    from models.digits.quantize import MODEL, quantized_images

    def samples(count: int) -> list[Sample]:
        return [[image[np.newaxis]] for image in quantized_images(held_out()[0][:count])]

    return SampledModel(compiler.load(MODEL), samples)


def _resnet18(seed: int, _: Path | None) -> SampledModel:
    from models.resnet18.network import INPUT, network

    def samples(count: int) -> list[Sample]:
        generator = np.random.default_rng(seed)
        return [[generator.standard_normal(INPUT, np.float32)] for _ in range(count)]

    return SampledModel(compiler.from_onnx(network(seed), "resnet18"), samples)


CATALOGUE = {
    "cifar10_cnn": NamedModel(_cifar10_cnn, random=True, takes_weights=True),
    "digits": NamedModel(_digits),
    "digits_int8": NamedModel(_digits_int8),
    "resnet18": NamedModel(_resnet18, random=True),
}
