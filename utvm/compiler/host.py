"""The yardstick: a model run on this computer by TVM's LLVM backend."""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import tvm
from tvm import relax

from utvm.compiler.frontend import import_model
from utvm.compiler.model import Model

Arrays = list[npt.NDArray[Any]]


def reference(model: Model) -> Callable[[Sequence[npt.NDArray[Any]]], Arrays]:
    """Build a model for this computer.

    Products and sums are rounded one by one, as in a library compiled with ``-ffp-contract=off``: on x86-64 the
    baseline CPU is chosen, which has no instruction that does both at once.

    Returns:
        A function from the model's inputs to its outputs, each a list of arrays with the shapes and element
        types that the library states.

    Raises:
        CompileError: the model cannot be compiled.
    """
    machine = platform.machine()
    target: dict[str, Any] = {"kind": "llvm"}
    if machine == "x86_64":
        target["mcpu"] = "x86-64"
    executable = tvm.compile(import_model(model).module, tvm.target.Target(target))
    machine_code = relax.VirtualMachine(executable, tvm.cpu())

    def run(inputs: Sequence[npt.NDArray[Any]]) -> Arrays:
        results = machine_code["main"](*(tvm.runtime.tensor(array) for array in inputs))
        if isinstance(results, tvm.runtime.Tensor):
            return [results.numpy()]
        return [item.numpy() for item in results]

    return run
