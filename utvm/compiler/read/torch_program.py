# SPDX-License-Identifier: Apache-2.0
"""Convert a program of ``torch.export``, optionally PT2E-quantised, to a Relax module."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from utvm.base.storage.config import read_yaml
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
    if (name := names.get(node.name)) is not None:
        return program.state_dict.get(name, program.constants.get(name)).detach().cpu().numpy()
    raise CompileError(f"{node.name}: scales that are not constant are not supported")


_LOG = logging.getLogger("utvm.compiler")
_STATES = "make its state an input and an output, or export it in evaluation mode"
_HELP = "replace them in the model, or export it as ONNX; docs/operators.md lists supported ones"


def _reduction(operator: Callable[..., Any]) -> Callable[..., Any]:
    def convert_node(node: Any, importer: Any) -> Any:
        value, *arguments = node.args
        axes = (arguments[:1] or [None])[0]
        result = operator(importer.env[value], None if axes == [] else axes, arguments[1:] == [True])
        return importer.block_builder.emit(result)

    return convert_node


def _select(node: Any, importer: Any) -> Any:
    value, axis, index = node.args
    shape = value.meta["val"].shape
    place = relax.const(index % int(shape[axis]), "int64")
    return importer.block_builder.emit(relax.op.take(importer.env[value], place, axis % len(shape)))


def _stack(indices: Any, importer: Any) -> Any:
    columns = [relax.op.expand_dims(relax.op.astype(importer.env[index], "int64"), 1) for index in indices]
    return importer.block_builder.emit(relax.op.concat(columns, 1))


def _index(node: Any, importer: Any) -> Any:
    value, indices = node.args
    return importer.block_builder.emit(relax.op.gather_nd(importer.env[value], _stack(indices, importer)))


def _index_put(node: Any, importer: Any) -> Any:
    value, indices, updates, *accumulate = node.args
    operands = importer.env[value], _stack(indices, importer), importer.env[updates]
    return importer.block_builder.emit(relax.op.scatter_nd(*operands, "add" if accumulate == [True] else "update"))


_SCATTERS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter(node: Any, importer: Any) -> Any:
    value, axis, index, source, *reduce = node.args
    reduction = "add" if "scatter_add" in str(node.target) else _SCATTERS[reduce[0]] if reduce else "update"
    operands = (importer.env[item] for item in (value, index, source))
    return importer.block_builder.emit(relax.op.scatter_elements(*operands, axis, reduction))


# Operators the importer lacks, or converts without negative indices (select).
_OWN = {
    "_unsafe_index.Tensor": _index,
    "_unsafe_index_put.default": _index_put,
    "amax.default": _reduction(relax.op.max),
    "amin.default": _reduction(relax.op.min),
    "prod.dim_int": _reduction(relax.op.prod),
    "scatter.src": _scatter,
    "scatter_add.default": _scatter,
    "scatter_reduce.two": _scatter,
    "select.int": _select,
}
_FOLDED = 1 << 22  # Elements of the largest constant that is computed.


class _Arguments:
    """Arguments that are converted, by operator: ``torch_arguments.yaml``."""

    def __init__(self) -> None:
        rows = read_yaml(Path(__file__).with_name("torch_arguments.yaml"))[0]["arguments"]
        pairs = [(item.partition("/"), key) for key, names in rows.items() for item in names.split()]
        self._read = {name: dict(re.findall(r"(\w+)=?(\w*)", key)) for (name, _, _), key in pairs}
        self._results = {name: int(count or 1) for (name, _, count), _ in pairs}

    def refusal(self, node: Any) -> str:
        """Reason to refuse a node of ATen, or nothing."""
        name = str(node.target).removeprefix("aten.").removesuffix(".default")
        if name not in self._read:
            return "the operator is not supported"
        if name in ("pow.Tensor_Tensor", "pow.Scalar") and not node.meta["val"].is_floating_point():
            return "integers are not supported"
        for argument, value in _arguments_of(node).items():
            only = self._read[name].get(argument.name)
            if only not in ("", str(value)) and (only or value != argument.default_value):
                shown = "a tensor" if hasattr(value, "meta") else str(value).removeprefix("torch.")
                return f"{argument.name} = {shown} is not supported"
        several = isinstance(node.meta["val"], tuple)
        if several and any(user.args[1] >= self._results[name] for user in node.users):
            return f"only the first {self._results[name]} of its results is supported"
        return ""


def _arguments_of(node: Any) -> dict[Any, Any]:
    schema = node.target._schema.arguments
    return dict(zip(schema, node.args, strict=False)) | {
        argument: node.kwargs[argument.name] for argument in schema if argument.name in node.kwargs
    }


def _put_in_order(node: Any) -> None:
    """Turn named arguments into positional ones where the schema allows; the importer reads some only there."""
    arguments = _arguments_of(node)
    places = [argument for argument in node.target._schema.arguments if not argument.kwarg_only]
    while places and places[-1] not in arguments:
        places.pop()
    names = {argument.name for argument in places}
    node.args = tuple(arguments.get(argument, argument.default_value) for argument in places)
    node.kwargs = {key: value for key, value in node.kwargs.items() if key not in names}


def import_program(program: Any) -> Any:
    from utvm.compiler.read.torch_rules import decompositions

    try:
        program = program.run_decompositions(decompositions())
    except Exception as error:  # PyTorch raises nearly every built-in kind, and names the node in the text.
        names = re.findall(r"While executing %(\w+) .*target=torch\.ops\.aten\.([\w.]+)", str(error))
        reasons = [f"{target} (at {node}): is used in a way that is not supported" for node, target in names]
        refusal.refuse("", reasons, _HELP)
        raise
    effects = [node for node in program.graph.nodes if "with_effects" in str(node.target)]
    reasons = [f"{node.args[1].__name__} (at {node.name}): the operator is not supported" for node in effects]
    refusal.refuse("", reasons, _HELP)
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    refusal.refuse("", [f"the model changes {name} while it runs" for name in changed], _STATES)
    for node in list(program.graph.nodes):
        if "_assert" in str(node.target) and not node.users:
            program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    output = program.graph.output_node()
    output.args = (tuple(value for value in output.args[0] if value is not None),)
    importer = _Importer(program)
    try:
        return importer.from_exported_program(program, False, True, False, {**_OWN, **_converters(program)})
    finally:
        refusal.refuse("", importer.reasons, _HELP)


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """Imports one program. Method names are those the base class calls."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.reasons: list[str] = []
        self._arguments = _Arguments()
        signature = program.graph_signature
        stored = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        tensors = {**program.state_dict, **program.constants}
        stored |= signature.inputs_to_parameters
        self._known = {name: tensors[target] for name, target in stored.items() if target in tensors}
        self._weights = {*signature.inputs_to_parameters}  # Values computed from weights are added.

    def _check_unsupported_func_type(self, nodes: Iterable[Any]) -> None:
        for name in {node.target.__name__ for node in nodes if node.op == "call_function"}:
            self.convert_map[name] = self._noting(self.convert_map.get(name))

    def _noting(self, convert: Callable[..., Any] | None) -> Callable[..., Any]:
        def convert_node(node: Any, *others: Any) -> Any:
            where = f"{node.target.__name__} (at {node.name})"
            try:
                constant = self._fold(node)
                reason = self._arguments.refusal(node) if getattr(node.target, "namespace", "") == "aten" else ""
                able = convert is not None and not reason
                if constant is not None and not (able and node.name in self._weights):
                    return relax.const(constant.contiguous().numpy(), str(constant.dtype).removeprefix("torch."))
                if convert is not None and able:
                    if hasattr(node.target, "_schema"):
                        _put_in_order(node)
                    result = convert(node, *others)
                    self._hold(where, node, result)
                    return result
                self.reasons.append(f"{where}: {reason or 'the operator is not supported'}")
            except UtvmError as error:
                self.reasons.append(f"{where}: {error.message.removeprefix(f'{node.name}: ')}")
            except Exception as error:  # TVM raises nearly every built-in kind, and its own
                _LOG.debug("%s: %r", where, error)
                self.reasons.append(f"{where}: is used in a way that is not supported")
            value = node.meta["val"]
            parts = [self._stand_in(item) for item in (value if isinstance(value, tuple | list) else [value])]
            return tuple(parts) if isinstance(value, tuple | list) else parts[0]

        return convert_node

    def _fold(self, node: Any) -> Any:
        """Compute by PyTorch what depends on no input. Of weights, only what would be refused is a constant."""
        stated, target = node.meta.get("val"), node.target
        drawn = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        if getattr(target, "namespace", "") != "aten" or drawn or "empty" in str(target):
            return None
        known = isinstance(stated, torch.Tensor) and all(item.name in self._known for item in node.all_input_nodes)
        if not known or stated.numel() > _FOLDED:
            return None
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda item: self._known[item.name])
        if any(item.name in self._weights for item in node.all_input_nodes):
            self._weights.add(node.name)
        self._known[node.name] = target(*args, **kwargs).detach()
        return self._known[node.name]

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
