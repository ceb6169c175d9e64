# SPDX-License-Identifier: Apache-2.0
"""What PT2E quantisation (torchao) leaves in a program: borders of integers, which TVM's importer lacks."""

from collections.abc import Callable, Mapping
from typing import Any

from utvm.errors import CompileError

MARK = b"quantized_decomposed"
"""What an archive of such a program has in it."""

_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def converters(program: Any) -> Mapping[str, Callable[[Any, Any], Any]]:
    """Return what makes Relax of these operators, by their names.

    Args:
        program: a ``torch.export.ExportedProgram``, which has the scales of each channel.
    """
    return {
        "quantize_per_tensor.default": _quantize,
        "dequantize_per_tensor.default": _dequantize,
        "dequantize_per_channel.default": lambda node, importer: _dequantize_channels(program, node, importer),
    }


def _dtype(node: Any, first: int) -> str:
    low, high, kind = node.args[first : first + 3]
    dtype = str(kind).removeprefix("torch.")
    writes = str(node.target).startswith("quantized_decomposed.quantize")
    if dtype not in _RANGES or (writes and (low, high) != _RANGES[dtype]):
        raise CompileError(f"{node.name}: quantisation to {dtype} from {low} to {high} is not supported")
    return dtype


def _quantize(node: Any, importer: Any) -> Any:
    from tvm import relax

    dtype = _dtype(node, 3)
    scale, zero = relax.const(float(node.args[1]), "float32"), relax.const(int(node.args[2]), dtype)
    value = importer.env[node.args[0]]
    return importer.block_builder.emit(relax.op.quantize(value, scale, zero, axis=0, out_dtype=dtype))


def _dequantize(node: Any, importer: Any) -> Any:
    from tvm import relax

    dtype = _dtype(node, 3)
    scale, zero = relax.const(float(node.args[1]), "float32"), relax.const(int(node.args[2]), dtype)
    value = importer.env[node.args[0]]
    return importer.block_builder.emit(relax.op.dequantize(value, scale, zero, axis=0, out_dtype="float32"))


def _dequantize_channels(program: Any, node: Any, importer: Any) -> Any:
    from tvm import relax

    dtype = _dtype(node, 4)
    scales, zeros = (_stored_type(program, node.args[place]) for place in (1, 2))
    parameters = (relax.const(scales.astype("float32"), "float32"), relax.const(zeros.astype(dtype), dtype))
    value = importer.env[node.args[0]]
    return importer.block_builder.emit(
        relax.op.dequantize(value, *parameters, axis=int(node.args[3]), out_dtype="float32")
    )


def _stored_type(program: Any, node: Any) -> Any:
    signature = program.graph_signature
    names = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    name = names.get(node.name)
    if name is not None:
        return program.state_dict.get(name, program.constants.get(name)).detach().cpu().numpy()
    raise CompileError(f"{node.name}: scales that are not constant are not supported")
