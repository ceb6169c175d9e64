# SPDX-License-Identifier: Apache-2.0
"""The yardstick: a model run on this computer by TVM's LLVM backend."""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from utvm.compiler.frontend import import_model
from utvm.compiler.model import Model
from utvm.compiler.schedule.legalizations import legalizations
from utvm.compiler.tvm_errors import tvm_errors
from utvm.compiler.tvm_types import tensor_of

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

    Raises:
        CompileError: the model cannot be compiled.
    """
    imported = import_model(model)
    with tvm_errors(model.origin, "build the model for this computer"):
        module = relax.transform.LegalizeOps(legalizations())(imported.module)
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
