"""From a model's bytes to a Relax module."""

import warnings
from dataclasses import dataclass
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from utvm.compiler.model import Model


@dataclass(frozen=True)
class Imported:
    """A Relax module and what its user calls the parameters and results of its ``main``."""

    module: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


def import_model(model: Model) -> Imported:
    """Turn a model into a Relax module."""
    return _import_relax(model) if model.format == "relax" else _import_onnx(model)


def from_relax(module: Any, name: str) -> Model:
    """Take a Relax module, whose ``main`` maps tensors of static shape to a tensor or a tuple of tensors.

    Args:
        name: a C identifier.
    """
    return Model(name, f"Relax module {name}", "relax", str(tvm.ir.save_json(module)).encode())


def _import_relax(model: Model) -> Imported:
    module = tvm.ir.load_json(model.content.decode())
    main = module["main"]
    kind = main.body.body.ty
    count = len(kind.fields) if isinstance(kind, relax.TupleType) else 1
    names = ("output",) if count == 1 else tuple(f"output_{number}" for number in range(count))
    return Imported(module, tuple(str(parameter.name) for parameter in main.params), names)


def _import_onnx(model: Model) -> Imported:
    proto = onnx.load_from_string(model.content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = from_onnx(proto, keep_params_in_input=False)
    stored = {item.name for item in proto.graph.initializer}
    return Imported(
        module,
        tuple(item.name for item in proto.graph.input if item.name not in stored),
        tuple(item.name for item in proto.graph.output),
    )
