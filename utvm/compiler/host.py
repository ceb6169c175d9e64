# SPDX-License-Identifier: Apache-2.0
"""The reference: run a model here with TVM's LLVM backend; TFLite's integers as such, ONNX's QDQ in float."""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, tirx

from utvm.compiler import library, quantised, refusal, tvm_types
from utvm.compiler.frontend import import_model
from utvm.compiler.frontend.imported import Control, Imported
from utvm.compiler.kernels.arithmetic import expand_helpers, number
from utvm.compiler.kernels.fixed_point import NEWTON
from utvm.compiler.schedule import legalizations, lower

Arrays = list[npt.NDArray[Any]]


def host_target() -> Any:
    """Return this computer's TVM target; the x86-64 baseline has no fused multiply-add (``-ffp-contract=off``)."""
    target: dict[str, Any] = {"kind": "llvm", "opt-level": 1}  # As exact as 3, and built sooner.
    if platform.machine() == "x86_64":
        target["mcpu"] = "x86-64"
    return tvm.target.Target(target)


def reference(model: library.Model) -> Callable[[Sequence[npt.NDArray[Any]]], Arrays]:
    return _reference(import_model(model), model.origin)


def _reference(imported: Imported, origin: str) -> Callable[[Sequence[npt.NDArray[Any]]], Arrays]:
    for name, control in imported.control.items():
        first, second = (_reference(graph, origin) for graph in control.graphs)
        # The virtual machine resolves the name now.
        tvm_ffi.register_global_func(name, _control(control, first, second), override=True)
    with refusal.tvm_errors(origin, "build the model for this computer"):
        module = imported.module
        if imported.layers:
            module = quantised.integerize(module, None, layers=imported.layers).module
        module = _as_in_c(relax.transform.LegalizeOps(legalizations.LEGALIZATIONS)(module))
        executable = tvm.compile(module, host_target())
    machine_code = relax.VirtualMachine(executable, tvm.cpu())

    tensors = [tvm_types.tensor_of(parameter.ty, "") for parameter in imported.module["main"].params]
    states = [
        np.frombuffer(item.initial, tensor.dtype).reshape(tensor.shape)
        for tensor, item in zip(tensors[len(tensors) - len(imported.states) :], imported.states, strict=True)
    ]

    def run(inputs: Sequence[npt.NDArray[Any]]) -> Arrays:
        results = machine_code["main"](*(tvm.runtime.tensor(array) for array in (*inputs, *states)))
        if isinstance(results, tvm.runtime.Tensor):
            return [results.numpy()]
        arrays = [item.numpy() for item in results]
        outputs = len(arrays) - len(states)
        states[:] = arrays[outputs:]
        return arrays[:outputs]

    return run


def _as_in_c(module: Any) -> Any:
    def bound(node: Any) -> Any:
        # A NaN as first operand is kept; LLVM would return the second.
        a, b = node.a, node.b
        if not tvm_types.element_type(node).startswith("float"):
            return node
        return tirx.Select(a <= b if isinstance(node, tirx.Max) else a >= b, b, a)

    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            expanded = expand_helpers(lower.with_defined_casts(function), _HELPERS)
            body = tvm_ffi.structural_map(expanded.body, [(tirx.Max, bound), (tirx.Min, bound)], order="post")
            module.update_func(variable, expanded.with_body(body))
    return module


def _leading_zeros(value: Any) -> Any:
    zeros = number(32)
    for place in range(31):
        zeros = zeros - tirx.Select(value >= number(1 << place), number(1), number(0))
    return zeros


def _softmax_scale(total: Any) -> Any:
    """Return 2**43 / total by gemmlowp's three Newton steps, with as many fractional bits as fit 31 bits."""
    steps: list[tuple[Any, Any]] = []

    def name_step(value: Any) -> Any:
        steps.append((tirx.Var(f"step{len(steps)}", "int64"), value))
        return steps[-1][0]

    def high(a: Any, b: Any) -> Any:
        return tirx.shift_right(a * b + number(1 << 30, "int64"), number(31, "int64"))

    zeros = _leading_zeros(total).astype("int64")
    half = name_step(tirx.shift_right(tirx.shift_left(total.astype("int64"), zeros), number(1, "int64")))
    guess, slope = (number(value, "int64") for value in NEWTON)
    x = name_step(guess + high(half, slope))
    for _ in range(3):
        x = name_step(x + number(4, "int64") * high(x, number(1 << 29, "int64") - high(half, x)))
    top = number(1 << 30, "int64")
    result = tirx.Select(x >= top, number(2**31 - 1, "int64"), x * number(2, "int64")).astype("int32")
    for variable, value in reversed(steps):
        result = tirx.Let(variable, value, result)
    return result


def _cast(target: str) -> Callable[[Any], Any]:
    info = np.iinfo(target)
    lowest, highest, zero = (tirx.const(value, target) for value in (info.min, info.max, 0))

    def cast(value: Any) -> Any:
        low, limit = (
            tirx.FloatImm(tvm_types.element_type(value), float(bound)) for bound in (info.min, int(info.max) + 1)
        )
        inside = tirx.Select(value < limit, value.astype(target), highest)
        return tirx.Select(value > low, inside, tirx.Select(value <= low, lowest, zero))

    return cast


_HELPERS: dict[str, Callable[..., Any]] = {
    "leading_zeros": _leading_zeros,
    "softmax_scale": _softmax_scale,
    "fitting_uint8": lambda value: value.astype("uint8"),
    **{f"above_float{bits}": lambda a, b: tirx.Select(a > b, a, b) for bits in (32, 64)},
    **{f"below_float{bits}": lambda a, b: tirx.Select(a < b, a, b) for bits in (32, 64)},
    **{
        f"{sign}int{bits}_of_float{source}": _cast(f"{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
        for source in (32, 64)
    },
}


def _control(control: Control, first: Callable[..., Arrays], second: Callable[..., Arrays]) -> Callable[..., None]:
    input_count = len(control.graphs[1].input_names)

    def run(*tensors: Any) -> None:
        arrays = [tensor.numpy() for tensor in tensors]
        if control.kind == "if":
            condition, *state = arrays[: input_count + 1]
            results = (first if condition.all() else second)(state)
        else:
            results = arrays[:input_count]
            while first(results)[0].all():
                results = second(results)
        for tensor, array in zip(tensors[len(tensors) - len(results) :], results, strict=True):
            tensor.copyfrom(array)

    return run
