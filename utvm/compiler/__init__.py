# SPDX-License-Identifier: Apache-2.0
"""From a model file to a portable C99 library: constant weights, a caller-owned arena, no malloc, no board."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from utvm.compiler.compile import CompileOptions, compile_model
from utvm.compiler.library import Library, Model, Tensor
from utvm.compiler.memory.regions import Memory, Region
from utvm.compiler.read.exported_file import from_module as from_relax
from utvm.compiler.read.exported_file import from_torch
from utvm.compiler.read.model_file import load
from utvm.compiler.read.tflite_graph import from_tflite
from utvm.compiler.target import ANY, Target

__all__ = ["ANY", "CompileOptions", "Library", "Memory", "Model", "Region", "Target", "Tensor", "compile_model"]
__all__ += ["from_onnx", "from_relax", "from_tflite", "from_torch", "load", "reference"]


def from_onnx(content: bytes, name: str, origin: str | None = None, directory: Path | None = None) -> Model:
    """Load a serialised ONNX ``ModelProto``; see :func:`utvm.compiler.read.onnx_file.from_onnx`."""
    from utvm.compiler.read import onnx_file

    return onnx_file.from_onnx(content, name, origin, directory)


def reference(model: Model) -> Callable[[Sequence[npt.NDArray[Any]]], list[npt.NDArray[Any]]]:
    """Build a model for this computer; see :func:`utvm.compiler.host.reference`."""
    from utvm.compiler import host

    return host.reference(model)
