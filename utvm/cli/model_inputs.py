# SPDX-License-Identifier: Apache-2.0
"""Inputs of a model on a command line: arrays, text or pictures in files, or random values."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from utvm.base.storage.arrays import read_arrays
from utvm.cli.output import OUT
from utvm.compiler import Library, Tensor
from utvm.errors import ConfigError
from utvm.firmware.inputs import are_pictures, quantise, random_inputs, read_pictures

_SEED = 0


def note_input(library: Library, path: str) -> None:
    if not path and library.inputs:
        OUT.print(f"input: random values, seed {_SEED} (give your own with --input)")


def read_inputs(library: Library, path: str, scale: str = "") -> list[npt.NDArray[np.generic]]:
    """Return the inputs for the model, with real numbers quantised."""
    return quantise(read_unscaled_inputs(library, path, scale), library.inputs)


def read_unscaled_inputs(library: Library, path: str, scale: str) -> list[npt.NDArray[np.generic]]:
    """Read inputs, or draw random ones: uniform in [-1, 1) for floats, over the whole range for integers.

    Args:
        scale: values of black and white of a picture, see :func:`read_pictures`.
    """
    if not path:
        return random_inputs(library, np.random.default_rng(_SEED))
    if are_pictures(path):
        pictures = read_pictures(path, input_for_pictures(path, library.inputs), scale)
        if len(pictures) != 1:
            raise ConfigError(f"{path}: holds {len(pictures)} pictures", "name one; model.eval takes a folder")
        return [pictures.reshape(library.inputs[0].shape)]
    check_scale(scale)
    arrays = read_arrays(path)
    if "" in arrays:
        return [_to_sample(arrays[""], library.inputs[0]) if path.endswith(".csv") else arrays[""]]
    missing = [tensor.name for tensor in library.inputs if tensor.name not in arrays]
    if missing:
        raise ConfigError(f"{path}: has no array {', '.join(missing)}", f"it has: {', '.join(arrays)}")
    names = [tensor.name for tensor in library.inputs]
    if unknown := [name for name in arrays if name not in names]:
        raise ConfigError(f"{path}: its array {unknown[0]} is not an input", f"inputs: {', '.join(names)}")
    return [arrays[name] for name in names]


def input_for_pictures(path: str, inputs: Sequence[Tensor]) -> Tensor:
    """Return the only input of a model that is run on pictures."""
    if len(inputs) != 1:
        raise ConfigError(
            f"{path}: for one input, but the model has {len(inputs)}", "give an .npz with an array for each"
        )
    return inputs[0]


def check_scale(scale: str) -> None:
    """Refuse a scale for files that are not pictures."""
    if scale:
        raise ConfigError("--set scale is for pictures", "it gives their values of black and white; leave it out")


def _to_sample(numbers: npt.NDArray[np.float64], tensor: Tensor) -> npt.NDArray[np.generic]:
    if numbers.size != math.prod(tensor.shape):
        raise ConfigError(
            f"input {tensor.name} is {list(tensor.shape)}, and the file has {numbers.size} numbers", "give one sample"
        )
    return convert_numbers(numbers.reshape(tensor.shape), tensor)


def convert_numbers(numbers: npt.NDArray[np.float64], tensor: Tensor) -> npt.NDArray[np.generic]:
    """Convert the numbers of a CSV file to the type of an input, unless they are to be quantised."""
    if np.dtype(tensor.dtype).kind != "f" and tensor.scaling:
        return numbers
    with np.errstate(invalid="ignore", over="ignore"):
        cast = numbers.astype(tensor.dtype)
    if np.dtype(tensor.dtype).kind != "f" and not (cast == numbers).all():
        raise ConfigError(f"input {tensor.name} is {tensor.dtype}, and the file has numbers that do not fit it")
    return cast
