# SPDX-License-Identifier: Apache-2.0
"""The yardstick: a model run on this computer by TVM's LLVM backend."""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, tirx

from utvm.compiler.frontend import import_model
from utvm.compiler.frontend.imported import Control, Imported
from utvm.compiler.model import Model
from utvm.compiler.schedule.legalizations import legalizations
from utvm.compiler.tvm_errors import tvm_errors
from utvm.compiler.tvm_types import element_type, tensor_of

Arrays = list[npt.NDArray[Any]]


def host_target() -> Any:
    """Return the TVM target of this computer.

    Products and sums are rounded one by one, as in a library compiled with ``-ffp-contract=off``: on x86-64 the
    baseline CPU is chosen, which has no instruction that does both at once.
    """
    target = {"kind": "llvm"}
    if platform.machine() == "x86_64":
        target["mcpu"] = "x86-64"
    return tvm.target.Target(target)


def reference(model: Model) -> Callable[[Sequence[npt.NDArray[Any]]], Arrays]:
    """Build a model for this computer.

    Returns:
        A function from the model's inputs to its outputs, each a list of arrays with the shapes and element
        types that the library states. What a model keeps between runs, it keeps from one call to the next.
    """
    return _reference(import_model(model), model.origin)


def _reference(imported: Imported, origin: str) -> Callable[[Sequence[npt.NDArray[Any]]], Arrays]:
    for name, control in imported.control.items():
        first, second = (_reference(each, origin) for each in control.graphs)
        # The virtual machine takes the function that has the name now.
        tvm_ffi.register_global_func(name, _control(control, first, second), override=True)
    with tvm_errors(origin, "build the model for this computer"):
        module = _bounded_as_in_c(relax.transform.LegalizeOps(legalizations())(imported.module))
        executable = tvm.compile(module, host_target())
    machine_code = relax.VirtualMachine(executable, tvm.cpu())

    tensors = [tensor_of(parameter.ty, "") for parameter in imported.module["main"].params]
    kept = [
        np.frombuffer(each.initial, tensor.dtype).reshape(tensor.shape)
        for tensor, each in zip(tensors[len(tensors) - len(imported.kept) :], imported.kept, strict=True)
    ]

    def run(inputs: Sequence[npt.NDArray[Any]]) -> Arrays:
        results = machine_code["main"](*(tvm.runtime.tensor(array) for array in (*inputs, *kept)))
        if isinstance(results, tvm.runtime.Tensor):
            return [results.numpy()]
        arrays = [item.numpy() for item in results]
        outputs = len(arrays) - len(kept)
        kept[:] = arrays[outputs:]
        return arrays[:outputs]

    return run


def _bounded_as_in_c(module: Any) -> Any:
    """Keep a first operand that is no number, as the C of libraries does; LLVM takes the second one then."""

    def kept(node: Any) -> Any:
        a, b = node.a, node.b
        if not element_type(node).startswith("float"):
            return node
        return tirx.Select(a <= b if isinstance(node, tirx.Max) else a >= b, b, a)

    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            body = tvm_ffi.structural_map(function.body, [(tirx.Max, kept), (tirx.Min, kept)], order="post")
            module.update_func(variable, function.with_body(body))
    return module


def _control(control: Control, first: Callable[..., Arrays], second: Callable[..., Arrays]) -> Callable[..., None]:
    """Return an operator that runs graphs."""
    given = len(control.graphs[1].input_names)

    def run(*tensors: Any) -> None:
        arrays = [each.numpy() for each in tensors]
        if control.kind == "if":
            condition, *state = arrays[: given + 1]
            results = (first if condition.all() else second)(state)
        else:
            results = arrays[:given]
            while first(results)[0].all():
                results = second(results)
        for tensor, array in zip(tensors[len(tensors) - len(results) :], results, strict=True):
            tensor.copyfrom(array)

    return run
