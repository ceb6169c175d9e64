# SPDX-License-Identifier: Apache-2.0
"""Write small TensorFlow Lite files, so that tests need no TensorFlow.

    builder = Builder()
    builder.tensor("x", (1, 8, 8, 3), "int8", scale=0.5, zero_point=-128)
    builder.tensor("y", (1, 8, 8, 3), "int8", scale=0.25, zero_point=3)
    builder.operator("RELU", ["x"], ["y"])
    content = builder.finish(["x"], ["y"])

Every operator of TensorFlow Lite's schema can be written: operators and their options have the schema's names. The
schema is ``tensorflow/lite/schema/schema.fbs``; the package ``tflite`` is generated from it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite
from flatbuffers import flexbuffers

_OPTIONS_OF_OTHER_NAMES = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MEAN": "ReducerOptions",
    "SUM": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_ALL": "ReducerOptions",
    "PADV2": "PadV2Options",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "GATHER_ND": "GatherNdOptions",
    "TOPK_V2": "TopKV2Options",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "SVDF": "SVDFOptions",
    "BATCH_TO_SPACE_ND": "BatchToSpaceNDOptions",
    "SPACE_TO_BATCH_ND": "SpaceToBatchNDOptions",
}

# Options that exporters always write. The schema's defaults, zero, would be invalid.
_POOL = {"stride_h": 1, "stride_w": 1, "filter_height": 1, "filter_width": 1}
_CONVOLUTION = {"stride_h": 1, "stride_w": 1}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "CONV_2D": _CONVOLUTION,
    "DEPTHWISE_CONV_2D": {**_CONVOLUTION, "depth_multiplier": 1},
    "TRANSPOSE_CONV": _CONVOLUTION,
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "L2_POOL_2D": _POOL,
    "SOFTMAX": {"beta": 1.0},
}

# Options whose values are enumerations.
_ENUMERATIONS = {
    "fused_activation_function": tflite.ActivationFunctionType,
    "padding": tflite.Padding,
    "mode": tflite.MirrorPadMode,
    "output_type": tflite.TensorType,
    "weights_format": tflite.FullyConnectedOptionsWeightsFormat,
}


@dataclass(frozen=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int
    signature: tuple[int, ...] | None
    variable: bool


@dataclass(frozen=True)
class _Operator:
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any]


class Builder:
    """A model of one graph. Add tensors first, then operators in the order of execution."""

    def __init__(self) -> None:
        self._tensors: list[_Tensor] = []
        self._buffers: list[bytes] = [b""]  # The schema reserves buffer 0 for tensors without data.
        self._operators: list[_Operator] = []

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        data: npt.ArrayLike | None = None,
        *,
        scale: float | npt.ArrayLike | None = None,
        zero_point: int | npt.ArrayLike = 0,
        axis: int = 0,
        signature: Sequence[int] | None = None,
        variable: bool = False,
    ) -> str:
        """Add a tensor and return its name.

        Args:
            dtype: numpy's name of the element type; ``int4`` for a constant of 4 bits.
            data: elements of a constant, of any type that converts to dtype: a flat list, or an array that numpy
                broadcasts to the shape.
            scale: scale of a quantised tensor: one, or one for each index along axis.
            zero_point: one zero point, or one for each scale.
            axis: the quantised dimension if there are several scales.
            signature: the shape as a converter of a model with dynamic dimensions writes it, -1 for unknown.
            variable: the tensor keeps its value between runs.
        """
        buffer = 0
        if data is not None:
            array = np.asarray(data).astype("int8" if dtype == "int4" else dtype)
            shaped = array.reshape(shape) if array.ndim == 1 and array.size == math.prod(shape) else array
            content = np.broadcast_to(shaped, shape).tobytes()
            self._buffers.append(_pack_int4(content) if dtype == "int4" else content)
            buffer = len(self._buffers) - 1
        scales = () if scale is None else tuple(float(value) for value in np.ravel(scale))
        zeros = np.broadcast_to(np.ravel(zero_point), (len(scales),))
        self._tensors.append(
            _Tensor(
                name,
                tuple(int(extent) for extent in shape),
                dtype,
                buffer,
                scales,
                tuple(int(value) for value in zeros),
                axis,
                None if signature is None else tuple(signature),
                variable,
            )
        )
        return name

    def operator(self, name: str, inputs: Sequence[str | None], outputs: Sequence[str], **options: Any) -> None:
        """Add an operator.

        Args:
            name: as in the schema's ``BuiltinOperator``; any other name makes a custom operator, whose
                options become a FlexBuffers map.
            inputs: names of tensors; None for a missing optional input.
            options: fields of the operator's options by the schema's names. Enumerations take names:
                ``padding="VALID"``, ``fused_activation_function="RELU6"``.
        """
        options = {**_DEFAULTS.get(name, {}), **options}
        self._operators.append(
            _Operator(
                name,
                tuple(-1 if item is None else self._index(item) for item in inputs),
                tuple(self._index(item) for item in outputs),
                options,
            )
        )

    def finish(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        others: Sequence[tuple["Builder", Sequence[str], Sequence[str]]] = (),
        signatures: Sequence[str] = (),
    ) -> bytes:
        """Write the file.

        Args:
            inputs, outputs: names of the model's inputs and outputs, in order.
            others: further graphs with their inputs and outputs; operators call them by number, from 1.
            signatures: names of the graphs, in order, as a converter writes them for several functions.
        """
        builder = flatbuffers.Builder(1024)
        graphs = [(self, inputs, outputs), *others]
        names = sorted({operator.name for graph, _, _ in graphs for operator in graph._operators})
        codes = _offsets(builder, [_write_code(builder, name) for name in names])
        contents = [data for graph, _, _ in graphs for data in graph._buffers]
        buffers = _offsets(builder, [_write_buffer(builder, data) for data in contents])
        roots, first = [], 0
        for graph, graph_inputs, graph_outputs in graphs:
            roots.append(graph._write_graph(builder, names, graph_inputs, graph_outputs, first))
            first += len(graph._buffers)
        written = _offsets(builder, roots)
        keys = [_write_signature(builder, name, place) for place, name in enumerate(signatures)]
        named = _offsets(builder, keys) if keys else None
        description = builder.CreateString("")
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, 3)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, written)
        tflite.ModelAddDescription(builder, description)
        tflite.ModelAddBuffers(builder, buffers)
        if named is not None:
            tflite.ModelAddSignatureDefs(builder, named)
        builder.Finish(tflite.ModelEnd(builder), b"TFL3")
        return bytes(builder.Output())

    def _index(self, name: str) -> int:
        return next(number for number, tensor in enumerate(self._tensors) if tensor.name == name)

    def _write_graph(
        self,
        builder: flatbuffers.Builder,
        names: list[str],
        inputs: Sequence[str],
        outputs: Sequence[str],
        first_buffer: int,
    ) -> int:
        tensors = _offsets(builder, [_write_tensor(builder, tensor, first_buffer) for tensor in self._tensors])
        operators = _offsets(
            builder, [_write_operator(builder, item, names.index(item.name)) for item in self._operators]
        )
        input_numbers = _numbers(builder, [self._index(name) for name in inputs], np.int32)
        output_numbers = _numbers(builder, [self._index(name) for name in outputs], np.int32)
        name = builder.CreateString("main")
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, tensors)
        tflite.SubGraphAddInputs(builder, input_numbers)
        tflite.SubGraphAddOutputs(builder, output_numbers)
        tflite.SubGraphAddOperators(builder, operators)
        tflite.SubGraphAddName(builder, name)
        return int(tflite.SubGraphEnd(builder))


def _pack_int4(content: bytes) -> bytes:
    """Pack 4-bit integers as the schema stores them: two in a byte, the first in the low half."""
    padded = np.frombuffer(content + bytes(len(content) % 2), np.uint8) & 15
    return (padded[::2] | (padded[1::2] << 4)).tobytes()


def _write_code(builder: flatbuffers.Builder, name: str) -> int:
    code = getattr(tflite.BuiltinOperator, name, tflite.BuiltinOperator.CUSTOM)
    custom = builder.CreateString(name) if code == tflite.BuiltinOperator.CUSTOM else None
    tflite.OperatorCodeStart(builder)
    # The first field is a byte: later operators have their code in the second one only.
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(code, 127))
    tflite.OperatorCodeAddBuiltinCode(builder, code)
    tflite.OperatorCodeAddVersion(builder, 1)
    if custom is not None:
        tflite.OperatorCodeAddCustomCode(builder, custom)
    return int(tflite.OperatorCodeEnd(builder))


def _write_signature(builder: flatbuffers.Builder, name: str, graph: int) -> int:
    key = builder.CreateString(name)
    tflite.SignatureDefStart(builder)
    tflite.SignatureDefAddSignatureKey(builder, key)
    tflite.SignatureDefAddSubgraphIndex(builder, graph)
    return int(tflite.SignatureDefEnd(builder))


def _write_buffer(builder: flatbuffers.Builder, data: bytes) -> int:
    vector = None
    if data:
        # The schema forces an alignment of 16; the builder's own byte vectors have none.
        builder.StartVector(1, len(data), 16)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        vector = builder.EndVector()
    tflite.BufferStart(builder)
    if vector is not None:
        tflite.BufferAddData(builder, vector)
    return int(tflite.BufferEnd(builder))


def _write_tensor(builder: flatbuffers.Builder, tensor: _Tensor, first_buffer: int) -> int:
    name = builder.CreateString(tensor.name)
    shape = _numbers(builder, tensor.shape, np.int32)
    signature = None if tensor.signature is None else _numbers(builder, tensor.signature, np.int32)
    quantisation = _write_quantisation(builder, tensor) if tensor.scales else None
    tflite.TensorStart(builder)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddType(builder, getattr(tflite.TensorType, tensor.dtype.upper()))
    tflite.TensorAddBuffer(builder, first_buffer + tensor.buffer if tensor.buffer else 0)
    tflite.TensorAddName(builder, name)
    if quantisation is not None:
        tflite.TensorAddQuantization(builder, quantisation)
    if signature is not None:
        tflite.TensorAddShapeSignature(builder, signature)
    if tensor.variable:
        tflite.TensorAddIsVariable(builder, True)
    return int(tflite.TensorEnd(builder))


def _write_quantisation(builder: flatbuffers.Builder, tensor: _Tensor) -> int:
    scales = _numbers(builder, tensor.scales, np.float32)
    zeros = _numbers(builder, tensor.zero_points, np.int64)
    tflite.QuantizationParametersStart(builder)
    tflite.QuantizationParametersAddScale(builder, scales)
    tflite.QuantizationParametersAddZeroPoint(builder, zeros)
    tflite.QuantizationParametersAddQuantizedDimension(builder, tensor.axis)
    return int(tflite.QuantizationParametersEnd(builder))


def _write_operator(builder: flatbuffers.Builder, operator: _Operator, code: int) -> int:
    inputs = _numbers(builder, operator.inputs, np.int32)
    outputs = _numbers(builder, operator.outputs, np.int32)
    table = _options_table(operator.name)
    custom = None
    if not hasattr(tflite.BuiltinOperator, operator.name):
        custom = builder.CreateByteVector(flexbuffers.Dumps(operator.options)) if operator.options else None
    elif operator.options and not table:
        raise ValueError(f"{operator.name} has no options, but was given {sorted(operator.options)}")
    options = _write_options(builder, table, operator.options) if table else None
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, code)
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    if options is not None:
        tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, table))
        tflite.OperatorAddBuiltinOptions(builder, options)
    if custom is not None:
        tflite.OperatorAddCustomOptions(builder, custom)
    return int(tflite.OperatorEnd(builder))


def _options_table(operator: str) -> str:
    """Name of the schema's table of an operator's options, or an empty string."""
    usual = "".join(word.title() for word in operator.split("_")) + "Options"
    name = _OPTIONS_OF_OTHER_NAMES.get(operator, usual)
    return name if hasattr(tflite.BuiltinOptions, name) else ""


def _write_options(builder: flatbuffers.Builder, table: str, options: dict[str, Any]) -> int:
    fields: list[tuple[Callable[..., None], Any]] = []
    for key, value in options.items():
        field = "".join(word.title() for word in key.split("_"))
        if isinstance(value, str) and key in _ENUMERATIONS:
            value = getattr(_ENUMERATIONS[key], value)  # noqa: PLW2901
        elif isinstance(value, str):
            value = builder.CreateString(value)  # noqa: PLW2901
        elif isinstance(value, list | tuple):
            value = _numbers(builder, value, np.int32)  # noqa: PLW2901
        fields.append((getattr(tflite, f"{table}Add{field}"), value))
    getattr(tflite, f"{table}Start")(builder)
    for add, value in fields:
        add(builder, value)
    return int(getattr(tflite, f"{table}End")(builder))


def _numbers(builder: flatbuffers.Builder, values: Sequence[float], dtype: npt.DTypeLike) -> int:
    return int(builder.CreateNumpyVector(np.asarray(values, dtype)))


def _offsets(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
