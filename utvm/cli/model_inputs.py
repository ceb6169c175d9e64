# SPDX-License-Identifier: Apache-2.0
"""What a model is given by ``model.run`` and its like: arrays, text or pictures in files, or random values."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from utvm.base.storage.arrays import read_arrays
from utvm.cli.output import OUT
from utvm.compiler import Library, Tensor
from utvm.errors import ConfigError
from utvm.firmware.inputs import are_pictures, as_integers, read_pictures

_SEED = 0


def note_input(library: Library, path: str) -> None:
    """Say so where the inputs are not the user's."""
    if not path and library.inputs:
        OUT.print(f"input: random values, seed {_SEED} (give your own with --input)")


def read_inputs(library: Library, path: str, scale: str = "") -> list[npt.NDArray[np.generic]]:
    """Read the inputs, or make them, as the model takes them: real numbers are quantised."""
    return quantised(library, read_given(library, path, scale))


def read_given(library: Library, path: str, scale: str, raw: bool = False) -> list[npt.NDArray[np.generic]]:
    """Read the inputs, or make them: uniform in [-1, 1) for floats, over the whole range for integers.

    Args:
        scale: the numbers that black and white of a picture are, see :func:`read_pictures`.
        raw: the numbers of a text are integers where the model takes such, whatever they stand for.
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
        return [_as_declared(arrays[""], library.inputs[0], raw) if path.endswith(".csv") else arrays[""]]
    missing = [tensor.name for tensor in library.inputs if tensor.name not in arrays]
    if missing:
        raise ConfigError(f"{path}: has no array {', '.join(missing)}", f"it has: {', '.join(arrays)}")
    names = [tensor.name for tensor in library.inputs]
    if unknown := [name for name in arrays if name not in names]:
        raise ConfigError(f"{path}: has an array {unknown[0]}, which is no input", f"inputs: {', '.join(names)}")
    return [arrays[name] for name in names]


def input_for_pictures(path: str, inputs: Sequence[Tensor]) -> Tensor:
    """Return the one input that pictures can be for."""
    if len(inputs) != 1:
        raise ConfigError(
            f"{path}: is for one input, and the model has {len(inputs)}", "give an .npz with an array for each"
        )
    return inputs[0]


def check_scale(scale: str) -> None:
    """Refuse a scale for what is no picture."""
    if scale:
        raise ConfigError("--scale is for pictures", "it says what their black and white are; leave it out")


def quantised(library: Library, given: Sequence[npt.NDArray[np.generic]]) -> list[npt.NDArray[np.generic]]:
    """Return inputs with real numbers as the integers that a quantised input takes; others as they are."""
    if len(given) != len(library.inputs):
        return list(given)  # refused where they become bytes
    return list(map(as_integers, given, library.inputs))


def _as_declared(numbers: npt.NDArray[np.float64], tensor: Tensor, raw: bool) -> npt.NDArray[np.generic]:
    """Return the numbers of a text, which has no shape and element type, in those of an input."""
    if numbers.size != math.prod(tensor.shape):
        raise ConfigError(
            f"input {tensor.name} is {list(tensor.shape)}, and the file has {numbers.size} numbers",
            "give one sample",
        )
    return typed(numbers.reshape(tensor.shape), tensor, raw)


def typed(numbers: npt.NDArray[np.float64], tensor: Tensor, raw: bool) -> npt.NDArray[np.generic]:
    """Return the numbers of a text in the element type of an input, or as they are where they are to be
    quantised.
    """
    if np.dtype(tensor.dtype).kind != "f" and tensor.scaling and not raw:
        return numbers
    with np.errstate(invalid="ignore", over="ignore"):
        cast = numbers.astype(tensor.dtype)
    if np.dtype(tensor.dtype).kind != "f" and not (cast == numbers).all():
        raise ConfigError(f"input {tensor.name} is {tensor.dtype}, and the file has numbers that are not")
    return cast


def random_inputs(library: Library, generator: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Draw what a library takes, as :func:`read_inputs` does."""
    return [_random(generator, tensor) for tensor in library.inputs]


def _random(generator: np.random.Generator, tensor: Tensor) -> npt.NDArray[np.generic]:
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return np.asarray(generator.uniform(-1.0, 1.0, tensor.shape), dtype=dtype)
    if dtype.kind == "b":
        return np.asarray(generator.integers(0, 2, tensor.shape), dtype=dtype)
    limits = np.iinfo(dtype)
    return np.asarray(generator.integers(limits.min, limits.max, tensor.shape, dtype, endpoint=True))
