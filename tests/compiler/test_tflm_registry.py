# SPDX-License-Identifier: Apache-2.0
"""Operators registered by TensorFlow Lite Micro's Python package are supported, or excepted."""

import re
from pathlib import Path

import pytest
import tflite_micro
from tflite_layers import LAYERS, operator_of
from tflite_signal import SIGNALS

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite
from utvm.errors import CompileError

# Operators without a layer of their own in the suite: where they are tested.
ELSEWHERE = {
    **dict.fromkeys(("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE"), "test_states.py"),
    **dict.fromkeys(("IF", "WHILE"), "test_control.py"),
    "DECODE": "test_packed_weights.py",
    "DETECTION_POSTPROCESS": "test_detection.py",
    "L2NORM_REF": "another name of L2_NORMALIZATION",
}

# Operators that are refused: the name in a file, and the reason.
EXCEPTED = {
    "BASIC_CLASSIFIER": ("BasicClassifier", "its options and arithmetic have no public description yet"),
    "ETHOSU": ("ethos-u", "its operand is a command stream that only the NPU runs"),
}


def registered() -> set[str]:
    """Names of all ``Register_NAME`` functions, from the C++ symbols of the package's library."""
    (library,) = Path(tflite_micro.__file__).parent.rglob("_runtime*.so")
    content = library.read_bytes()
    names = set()
    for match in re.finditer(rb"(\d+)Register_", content):
        symbol = content[match.end(1) : match.end(1) + int(match[1])].decode("ascii", "replace")
        if re.fullmatch(r"Register_[A-Z0-9_]+", symbol):
            names.add(symbol.removeprefix("Register_"))
    return names


def _registered_name(operator: str) -> str:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", operator.removeprefix("Signal"))
    return "_".join(words).upper() if operator.startswith("Signal") else operator


def test_registered_operators_are_tested_or_excepted() -> None:
    handled = {_registered_name(operator_of(row)) for row in LAYERS}
    typed = {f"{name}_{kind}" for name in ("RFFT", "IRFFT", "OVERLAP_ADD") for kind in ("INT16", "INT32", "FLOAT")}
    names = registered()
    assert len(names) > 120
    assert not names - handled - typed - set(ELSEWHERE) - set(EXCEPTED)
    assert set(EXCEPTED) <= names and not handled & set(EXCEPTED)
    assert {_registered_name(name) for name in SIGNALS} <= names


@pytest.mark.parametrize("operator", [operator for operator, _ in EXCEPTED.values()])
def test_excepted_operator_is_refused_by_name(operator: str) -> None:
    builder = Builder()
    for name in ("x", "y"):
        builder.tensor(name, (4,), "int8")
    builder.operator(operator, ["x"], ["y"])
    with pytest.raises(CompileError, match=rf"operators that are not supported: {operator} \(at y\)"):
        from_tflite(builder.finish(["x"], ["y"]), "m")


@pytest.mark.parametrize("length", [9, 14])  # The kernels end with a segmentation fault at both.
def test_fft_length_that_crashes_the_kernels_is_refused(length: int) -> None:
    builder = Builder()
    builder.tensor("x", (length,), "float32")
    builder.tensor("y", (length // 2 * 2 + 2,), "float32")
    builder.operator("SignalRfft", ["x"], ["y"], T=0, fft_length=length)
    with pytest.raises(CompileError, match=f"fft_length is {length}; half of it must be a product of 2, 3 and 5"):
        compile_model(from_tflite(builder.finish(["x"], ["y"]), "m"))


def test_circular_buffer_that_ends_runs_early_is_refused() -> None:
    builder = Builder()
    builder.tensor("x", (1, 1, 1, 4), "int8", scale=0.1)
    builder.tensor("y", (1, 3, 1, 4), "int8", scale=0.1, variable=True)
    builder.operator("CIRCULAR_BUFFER", ["x"], ["y"], cycles_max=2)
    with pytest.raises(CompileError, match="ends most runs before there is an output"):
        compile_model(from_tflite(builder.finish(["x"], ["y"]), "m"))
