# SPDX-License-Identifier: Apache-2.0
"""Convert a program of ``torch.export``, optionally PT2E-quantised, to a Relax module."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from utvm.compiler import library, refusal, tvm_types
from utvm.errors import CompileError, UtvmError

_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def _converters(program: Any) -> Mapping[str, Callable[[Any, Any], Any]]:
    """Return converters of quantised operators; the program holds the scales of each channel."""

    def parameters(node: Any, dtype: str) -> tuple[Any, Any]:
        return relax.const(float(node.args[1]), "float32"), relax.const(int(node.args[2]), dtype)

    def quantize(node: Any, importer: Any) -> Any:
        dtype = _dtype(node, 3)
        result = relax.op.quantize(importer.env[node.args[0]], *parameters(node, dtype), axis=0, out_dtype=dtype)
        return importer.block_builder.emit(result)

    def dequantize(node: Any, importer: Any) -> Any:
        value, scales = importer.env[node.args[0]], parameters(node, _dtype(node, 3))
        return importer.block_builder.emit(relax.op.dequantize(value, *scales, axis=0, out_dtype="float32"))

    def dequantize_channels(node: Any, importer: Any) -> Any:
        dtype = _dtype(node, 4)
        scales, zeros = (_stored_type(program, node.args[place]) for place in (1, 2))
        constants = (relax.const(scales.astype("float32"), "float32"), relax.const(zeros.astype(dtype), dtype))
        value, axis = importer.env[node.args[0]], int(node.args[3])
        return importer.block_builder.emit(relax.op.dequantize(value, *constants, axis=axis, out_dtype="float32"))

    return {
        "quantize_per_tensor.default": quantize,
        "dequantize_per_tensor.default": dequantize,
        "dequantize_per_channel.default": dequantize_channels,
    }


def _dtype(node: Any, first: int) -> str:
    low, high, kind = node.args[first : first + 3]
    dtype = str(kind).removeprefix("torch.")
    writes = str(node.target).startswith("quantized_decomposed.quantize")
    if dtype not in _RANGES or (writes and (low, high) != _RANGES[dtype]):
        raise CompileError(f"{node.name}: quantisation to {dtype} from {low} to {high} is not supported")
    return dtype


def _stored_type(program: Any, node: Any) -> Any:
    signature = program.graph_signature
    names = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    name = names.get(node.name)
    if name is not None:
        return program.state_dict.get(name, program.constants.get(name)).detach().cpu().numpy()
    raise CompileError(f"{node.name}: scales that are not constant are not supported")


_LOG = logging.getLogger("utvm.compiler")
_HELP = "replace them in the model, or export it as ONNX; docs/operators.md says what is supported"


def _reduction(operator: Callable[..., Any]) -> Callable[..., Any]:
    def convert_node(node: Any, importer: Any) -> Any:
        value, *arguments = node.args
        axes = list(arguments[0]) if arguments else []
        return importer.block_builder.emit(operator(importer.env[value], axes or None, arguments[1:] == [True]))

    return convert_node


def _select(node: Any, importer: Any) -> Any:
    value, axis, index = node.args
    shape = value.meta["val"].shape
    place = relax.const(index % int(shape[axis]), "int64")
    return importer.block_builder.emit(relax.op.take(importer.env[value], place, axis % len(shape)))


def _elu(node: Any, importer: Any) -> Any:
    value, *arguments = node.args
    factors = [float(item) for item in [*arguments, 1.0, 1.0, 1.0][:3]]
    dtype = str(value.meta["val"].dtype).removeprefix("torch.")
    alpha, scale, steep, zero, one = (relax.const(item, dtype) for item in [*factors, 0.0, 1.0])
    data = importer.env[value]
    below = relax.op.subtract(relax.op.exp(relax.op.multiply(relax.op.minimum(data, zero), steep)), one)
    both = relax.op.add(relax.op.maximum(data, zero), relax.op.multiply(below, alpha))
    return importer.block_builder.emit(relax.op.multiply(both, scale))


# Operators the importer lacks, or converts without negative indices (select) or overall factor (elu, selu).
_OWN = {
    "amax.default": _reduction(relax.op.max),
    "amin.default": _reduction(relax.op.min),
    "elu.default": _elu,
    "select.int": _select,
}


def import_program(program: Any) -> Any:
    program = program.run_decompositions()
    importer = _Importer()
    try:
        own = {**_OWN, **_converters(program)}
        module = importer.from_exported_program(program, False, True, False, own)
    finally:
        refusal.refuse("", importer.reasons, _HELP)
    return module


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """Imports one program. Method names are those the base class calls."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def _check_unsupported_func_type(self, nodes: Iterable[Any]) -> None:
        for name in {node.target.__name__ for node in nodes if node.op == "call_function"}:
            self.convert_map[name] = self._noting(self.convert_map.get(name))

    def _noting(self, convert: Callable[..., Any] | None) -> Callable[..., Any]:
        def convert_node(node: Any, *others: Any) -> Any:
            where = f"{node.target.__name__} (at {node.name})"
            try:
                if convert is not None:
                    result = convert(node, *others)
                    self._hold(where, node, result)
                    return result
                self.reasons.append(f"{where}: the operator is not supported")
            except UtvmError as error:
                self.reasons.append(f"{where}: {error.message.removeprefix(f'{node.name}: ')}")
            except Exception as error:  # TVM raises nearly every built-in kind, and its own
                _LOG.debug("%s: %r", where, error)
                self.reasons.append(f"{where}: is used in a way that is not supported")
            value = node.meta["val"]
            parts = [self._stand_in(item) for item in (value if isinstance(value, tuple | list) else [value])]
            return tuple(parts) if isinstance(value, tuple | list) else parts[0]

        return convert_node

    def _hold(self, where: str, node: Any, result: Any) -> None:
        stated = node.meta.get("val")
        kind = getattr(result, "ty", None)
        if not hasattr(stated, "shape") or not isinstance(kind, relax.TensorType):
            return
        key = (tvm_types.shape_of(kind), tvm_types.dtype_of(kind))
        expected = (tuple(map(int, stated.shape)), str(stated.dtype).removeprefix("torch."))
        if key != expected:
            self.reasons.append(f"{where}: of these shapes and element types is not supported")

    def _stand_in(self, value: Any) -> Any:
        stated = str(value.dtype).removeprefix("torch.")
        dtype = stated if stated in library.ELEMENT_TYPES else "float32"
        return self.block_builder.emit(relax.op.zeros([int(extent) for extent in value.shape], dtype))
