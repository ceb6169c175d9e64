# SPDX-License-Identifier: Apache-2.0
"""From a model's bytes to a Relax module."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from utvm.compiler import library, refusal, tvm_types
from utvm.compiler.frontend import onnx_model, tflite_model
from utvm.compiler.frontend.imported import Imported
from utvm.compiler.target import ANY, Target
from utvm.errors import CompileError


def import_model(model: library.Model, target: Target = ANY) -> Imported:
    with refusal.tvm_errors(model.origin, "read the model"):
        imported = _FRONTENDS[model.format](model, target)
        _check(imported, model.origin)
    return imported


def _check(imported: Imported, origin: str) -> None:
    _check_tensors(imported.module, origin)
    for control in imported.control.values():
        for graph in control.graphs:
            _check(graph, origin)


def _import_relax(model: library.Model, _: Target) -> Imported:
    module = tvm.ir.load_json(model.content.decode())
    main = module["main"]
    kind = main.body.body.ty
    count = len(kind.fields) if isinstance(kind, relax.TupleType) else 1
    names = ("output",) if count == 1 else tuple(f"output_{number}" for number in range(count))
    return Imported(module, tuple(str(parameter.name) for parameter in main.params), names)


def _check_tensors(module: Any, origin: str) -> None:
    main = module["main"]
    if not isinstance(main.body, relax.SeqExpr):
        raise CompileError(f"{origin}: computes nothing", "a model needs at least one operator")
    values = [*main.params, *(binding.var for block in main.body.blocks for binding in block.bindings)]
    for value in values:
        for kind in _leaves(value.ty):
            tvm_types.tensor_of(kind, f"{origin}: {value.name}")


def _leaves(kind: Any) -> list[Any]:
    if isinstance(kind, relax.TupleType):
        return [leaf for field in kind.fields for leaf in _leaves(field)]
    # Shapes are computed at compile time and take no memory on a board.
    return [] if isinstance(kind, relax.ShapeType) else [kind]


_FRONTENDS: dict[str, Callable[[library.Model, Target], Imported]] = {
    "onnx": onnx_model.import_onnx,
    "relax": _import_relax,
    "tflite": tflite_model.import_tflite,
}
