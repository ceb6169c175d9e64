# SPDX-License-Identifier: Apache-2.0
"""Hostile inputs for models, under the address and undefined-behaviour sanitizers.

Integers are the limits of their types and indices far out of range; floats are infinities, NaN and values close to
overflow. A run may return an error code; it may not access memory of others or have undefined behaviour.
docs/compiler.md lists what these sanitizers do not check.
"""

import functools
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_suite
import test_control
import test_states
import tflite_suite
from convolutions import DSP, MVE, NEON
from programs import make_program, run_program
from tflite_layers import draw_layer

from utvm.compiler import ANY, Library, Model, Tensor, from_onnx, from_tflite
from utvm.compiler.bounded import run_bounded
from utvm.errors import UtvmError
from utvm.paths import ROOT

Array = npt.NDArray[Any]

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
SETS = 12
_TARGETS = (ANY, DSP, MVE, NEON)
_GRAPHS = {
    "if": test_control.branches,
    "if in while": functools.partial(test_control.steps, 5),
    "while an input says so": test_control.bounded_sum,
    "states": functools.partial(test_states.streaming, index=True),
    "digits": (ROOT / "models/digits/digits_int8.tflite").read_bytes,
}
_REALS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45, 1e30, 2.0**31, -(2.0**31), 1e-3, 0.5, -1.0, 7.0)
_WHOLES = (0, 1, -1, 2, 3, 7, -2, 127, -128, 128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


@dataclass
class Attack:
    """A model and its inputs; its outputs are not checked.

    Attributes:
        name: a C identifier.
        source: description of the model for messages.
    """

    name: str
    source: str
    sets: list[tuple[list[Array], list[Array]]]


def sources() -> list[str]:
    """Available models: layers and graphs of TensorFlow Lite, and ONNX's own cases."""
    layers = [f"layer {layer}" for layer in tflite_suite.layers()]
    return [*layers, *(f"graph {graph}" for graph in _GRAPHS), *(f"case {case}" for case in onnx_suite.cases())]


def find_faults(selection: Sequence[str], number: int, directory: Path, sets: int = SETS) -> list[str]:
    """Run models on hostile inputs; return the sanitizers' messages.

    Args:
        selection: models of :func:`sources`; refused ones are skipped.
        number: number of the attack.
        sets: number of inputs for a model.
    """
    names = {f"m{count}": source for count, source in enumerate(selection)}
    compiled = run_bounded("the models", "compile them", lambda: [_compile(*item, number) for item in names.items()])
    libraries = {library.name: library for library in compiled if library is not None}
    random = np.random.default_rng(zlib.crc32(f"{number} {selection}".encode()))
    attacks = [Attack(name, names[name], _sets(random, library, sets)) for name, library in libraries.items()]
    program, rejected = make_program(attacks, libraries, directory, SANITIZERS)
    faults = [f"{names[name]}: {text}" for name, text in rejected.items()]
    attacks = [attack for attack in attacks if attack.name not in rejected]
    outputs = run_program(attacks, libraries, program)
    return faults + [
        f"{attack.source}, attack {number}: {result}"
        for attack, result in zip(attacks, outputs, strict=True)
        if isinstance(result, str) and not result.startswith("its run answers")
    ]


def _compile(name: str, source: str, number: int) -> Library | None:
    from utvm.compiler.build import build_library

    try:
        # Attacks use the targets in turn: kernels for extensions run here in their portable C.
        return build_library(_model(name, source, number), name, _TARGETS[number % len(_TARGETS)])
    except UtvmError:
        return None


def _model(name: str, source: str, number: int) -> Model:
    kind, _, name_of_case = source.partition(" ")
    if kind == "case":
        return from_onnx(onnx_suite.cases()[name_of_case].model.SerializeToString(), name)
    if kind == "graph":
        return from_tflite(_GRAPHS[name_of_case](), name)
    row, _, dtype = name_of_case.rpartition("/")
    return from_tflite(draw_layer(row, dtype, number)[0], name)


def _sets(random: np.random.Generator, library: Library, sets: int) -> list[tuple[list[Array], list[Array]]]:
    return [([_hostile(random, tensor) for tensor in library.inputs], []) for _ in range(sets)]


def _hostile(random: np.random.Generator, tensor: Tensor) -> Array:
    """One value everywhere, random extreme values, some extremes among usual values, or random bits."""
    if tensor.dtype == "bool":
        return random.integers(0, 2, tensor.shape).astype(bool)
    if tensor.dtype.startswith("float"):
        worst = np.array(_REALS).astype(tensor.dtype)
        usual: Array = random.normal(0, 3, tensor.shape).astype(tensor.dtype)
    else:
        limits = np.iinfo(tensor.dtype)
        worst = np.array([min(max(value, limits.min), limits.max) for value in _WHOLES], tensor.dtype)
        usual = random.integers(max(limits.min, -9), 10, tensor.shape).astype(tensor.dtype)
    kind = random.integers(5)
    if kind == 4:
        return np.frombuffer(random.bytes(tensor.size_bytes), tensor.dtype).reshape(tensor.shape)
    if kind == 0:
        return np.full(tensor.shape, random.choice(worst), tensor.dtype)
    fraction = (0.0, 1.0, 0.2, 0.02)[kind]
    hit = random.random(tensor.shape) < fraction
    return np.where(hit, random.choice(worst, tensor.shape), usual).astype(tensor.dtype)


def seconds() -> float:
    """Duration of the nightly search."""
    return float(os.environ.get("UTVM_HOSTILE_SECONDS", "3600"))
