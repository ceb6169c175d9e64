# SPDX-License-Identifier: Apache-2.0
"""Hostile inputs for models, which the address and undefined-behaviour sanitizers watch.

Integers are the ends of their types, and indices far outside; floats are infinities, what is no number, and
what is next to overflowing. A run may answer with a code; it may not read or write what is not its own, nor do
what C leaves undefined. docs/compiler.md says what these sanitizers do not look at.
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
from programs import answers_of, make_program
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
    "while an input says so": test_control.counted,
    "states": functools.partial(test_states.streaming, index=True),
    "digits": (ROOT / "models/digits/digits_int8.tflite").read_bytes,
}
_REALS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45, 1e30, 2.0**31, -(2.0**31), 1e-3, 0.5, -1.0, 7.0)
_WHOLES = (0, 1, -1, 2, 3, 7, -2, 127, -128, 128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


@dataclass
class Attack:
    """A model and what it is given; no answer of it is right or wrong.

    Attributes:
        name: a C identifier.
        source: what the model is, for whoever reads of a fault.
    """

    name: str
    source: str
    sets: list[tuple[list[Array], list[Array]]]


def sources() -> list[str]:
    """Return the models that there are: layers and graphs of TensorFlow Lite, and ONNX's own cases."""
    layers = [f"layer {each}" for each in tflite_suite.layers()]
    return [*layers, *(f"graph {each}" for each in _GRAPHS), *(f"case {each}" for each in onnx_suite.cases())]


def found(chosen: Sequence[str], number: int, directory: Path, sets: int = SETS) -> list[str]:
    """Attack models; return what the sanitizers say; empty where all is well.

    Args:
        chosen: of :func:`sources`; those that are refused are left out.
        number: which attack on them it is.
        sets: how many inputs a model is given.
    """
    names = {f"m{count}": source for count, source in enumerate(chosen)}
    compiled = run_bounded("the models", "compile them", lambda: [_compiled(*item, number) for item in names.items()])
    libraries = {library.name: library for library in compiled if library is not None}
    random = np.random.default_rng(zlib.crc32(f"{number} {chosen}".encode()))
    attacks = [Attack(name, names[name], _sets(random, library, sets)) for name, library in libraries.items()]
    program, bad = make_program(attacks, libraries, directory, SANITIZERS)
    faults = [f"{names[name]}: {text}" for name, text in bad.items()]
    attacks = [each for each in attacks if each.name not in bad]
    answers = answers_of(attacks, libraries, program)
    return faults + [
        f"{attack.source}, attack {number}: {answer}"
        for attack, answer in zip(attacks, answers, strict=True)
        if isinstance(answer, str) and not answer.startswith("its run answers")
    ]


def _compiled(name: str, source: str, number: int) -> Library | None:
    from utvm.compiler.build import build_library

    try:
        # Attacks take turns: kernels of cores with an extension are met in the C that stands in for it here.
        return build_library(_model(name, source, number), name, _TARGETS[number % len(_TARGETS)])
    except UtvmError:
        return None


def _model(name: str, source: str, number: int) -> Model:
    kind, _, which = source.partition(" ")
    if kind == "case":
        return from_onnx(onnx_suite.cases()[which].model.SerializeToString(), name)
    if kind == "graph":
        return from_tflite(_GRAPHS[which](), name)
    row, _, dtype = which.rpartition("/")
    return from_tflite(draw_layer(row, dtype, number)[0], name)


def _sets(random: np.random.Generator, library: Library, sets: int) -> list[tuple[list[Array], list[Array]]]:
    return [([_hostile(random, tensor) for tensor in library.inputs], []) for _ in range(sets)]


def _hostile(random: np.random.Generator, tensor: Tensor) -> Array:
    """Return one number everywhere, all kinds of them, a few among numbers as models have them, or random bits."""
    if tensor.dtype == "bool":
        return random.integers(0, 2, tensor.shape).astype(bool)
    if tensor.dtype.startswith("float"):
        worst = np.array(_REALS).astype(tensor.dtype)
        usual: Array = random.normal(0, 3, tensor.shape).astype(tensor.dtype)
    else:
        limits = np.iinfo(tensor.dtype)
        worst = np.array([min(max(each, limits.min), limits.max) for each in _WHOLES], tensor.dtype)
        usual = random.integers(max(limits.min, -9), 10, tensor.shape).astype(tensor.dtype)
    how = random.integers(5)
    if how == 4:
        return np.frombuffer(random.bytes(tensor.size_bytes), tensor.dtype).reshape(tensor.shape)
    if how == 0:
        return np.full(tensor.shape, random.choice(worst), tensor.dtype)
    share = (0.0, 1.0, 0.2, 0.02)[how]
    hit = random.random(tensor.shape) < share
    return np.where(hit, random.choice(worst, tensor.shape), usual).astype(tensor.dtype)


def seconds() -> float:
    """Return how long the nightly search takes."""
    return float(os.environ.get("UTVM_HOSTILE_SECONDS", "3600"))
