# SPDX-License-Identifier: Apache-2.0
"""Random models of one operator: all operators of TensorFlow Lite Micro, in all element types.

The name of a layer, ``OPERATOR/type``, and a number determine its shapes, strides, scales and numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tflite
from tflite_computed import (
    draw_arg,
    draw_binary,
    draw_compare,
    draw_convolution,
    draw_dense,
    draw_depthwise,
    draw_divide,
    draw_integer_divide,
    draw_matmul,
    draw_pool,
    draw_positive,
    draw_product,
    draw_reduce,
    draw_scaled_binary,
    draw_softmax,
    draw_transposed,
    draw_unary,
    fixed_quantisation,
    hybrid,
    narrow,
)
from tflite_draw import Draw, Layer
from tflite_moved import (
    block_moves,
    cast_to,
    draw_add_n,
    draw_batch_to_space,
    draw_broadcast_args,
    draw_broadcast_to,
    draw_concatenation,
    draw_cumsum,
    draw_dequantize,
    draw_expand,
    draw_fill,
    draw_gather,
    draw_gather_nd,
    draw_gather_of_batches,
    draw_lookup,
    draw_mirror,
    draw_pack,
    draw_pad,
    draw_pad_with,
    draw_prelu,
    draw_reshape,
    draw_resize,
    draw_reverse,
    draw_select,
    draw_shape,
    draw_slice,
    draw_space_to_batch,
    draw_split,
    draw_split_at,
    draw_squeeze,
    draw_strided,
    draw_tile,
    draw_transpose,
    draw_unpack,
    draw_update,
    quantize_to,
)
from tflite_signal import SIGNALS
from tflite_states import draw_lstm, draw_svdf


def with_options(make: Callable[..., Layer], **options: Any) -> Callable[[Draw], Layer]:
    return lambda draw: make(draw, **options)


_ALL = ("float32", "int8", "int16", "uint8", "int32", "int64")
_NUMBERS = ("float32", "int8", "int16", "uint8", "int32")
_Q = ("float32", "int8", "int16", "uint8")
_MOVED = (*_ALL, "bool")

LAYERS: dict[str, tuple[Callable[[Draw], Layer], tuple[str, ...]]] = {
    **{name: (with_options(draw_unary), _NUMBERS) for name in ("ABS", "NEG", "SQUARE", "SIGN")},
    **{name: (with_options(draw_unary), _Q) for name in ("CEIL", "FLOOR", "ROUND", "COS", "SIN", "EXP", "ELU", "GELU")},
    **{name: (with_options(draw_unary), _Q) for name in ("HARD_SWISH", "RELU", "RELU_N1_TO_1", "RELU_0_TO_1")},
    "RELU6": (with_options(draw_unary), _Q),
    **dict.fromkeys(("SQRT", "RSQRT", "LOG"), (draw_positive, _Q)),
    "LEAKY_RELU": (with_options(draw_unary, alpha=0.2), _Q),
    "LEAKY_RELU that rises": (with_options(draw_unary, alpha=-0.5), ("float32", "int8", "int16")),
    "L2_NORMALIZATION": (fixed_quantisation(1 / 128, 0), _Q),
    "LOGISTIC": (fixed_quantisation(1 / 256, -128), _Q),
    "TANH": (fixed_quantisation(1 / 128, 0), _Q),
    "LOG_SOFTMAX": (fixed_quantisation(16 / 256, 127), _Q),
    "SOFTMAX": (draw_softmax, _Q),
    "SOFTMAX to int16": (with_options(draw_softmax, wide=True), ("int8",)),
    "ZEROS_LIKE": (with_options(draw_unary, same=True), _ALL),
    "ADD": (draw_scaled_binary, _ALL),
    "SUB": (draw_scaled_binary, _ALL),
    "MUL": (draw_product, _ALL),
    "DIV": (draw_divide, _NUMBERS),
    "FLOOR_DIV": (draw_integer_divide, ("float32", "int8", "int16", "int32")),
    "FLOOR_MOD": (draw_integer_divide, ("float32", "int8", "int16", "int32")),
    "POW": (with_options(draw_binary, activation=False), ("float32",)),
    "SQUARED_DIFFERENCE": (with_options(draw_binary, activation=False), _NUMBERS),
    "MAXIMUM": (with_options(draw_binary, activation=False, same=True), _ALL),
    "MINIMUM": (with_options(draw_binary, activation=False, same=True), _ALL),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL"), (draw_compare, _MOVED)),
    # For int16 there is only GREATER, whose kernel reads uninitialised factors.
    **{
        name: (draw_compare, tuple(dtype for dtype in _ALL if dtype != "int16"))
        for name in ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
    },
    "LOGICAL_AND": (with_options(draw_binary, activation=False), ("bool",)),
    "LOGICAL_OR": (with_options(draw_binary, activation=False), ("bool",)),
    "LOGICAL_NOT": (with_options(draw_unary), ("bool",)),
    "ADD_N": (draw_add_n, _NUMBERS),
    "CONV_2D": (draw_convolution, _Q),
    "DEPTHWISE_CONV_2D": (draw_depthwise, _Q),
    "TRANSPOSE_CONV": (draw_transposed, _Q),
    "FULLY_CONNECTED": (draw_dense, _Q),
    "BATCH_MATMUL": (draw_matmul, _Q),
    "AVERAGE_POOL_2D": (draw_pool, _Q),
    "MAX_POOL_2D": (draw_pool, _Q),
    "L2_POOL_2D": (draw_pool, ("float32",)),
    "MEAN": (draw_reduce, _NUMBERS),
    "SUM": (draw_reduce, _NUMBERS),
    "REDUCE_MAX": (with_options(draw_reduce, same=True), _NUMBERS),
    "REDUCE_MIN": (with_options(draw_reduce, same=True), _NUMBERS),
    "REDUCE_PROD": (with_options(draw_reduce, same=True), ("float32", "int32")),
    "REDUCE_ANY": (with_options(draw_reduce, same=True), ("bool",)),
    "REDUCE_ALL": (with_options(draw_reduce, same=True), ("bool",)),
    "ARG_MAX": (draw_arg, _ALL),
    "ARG_MIN": (draw_arg, _ALL),
    "CONCATENATION": (draw_concatenation, _MOVED),
    "RESHAPE": (draw_reshape, _MOVED),
    "SQUEEZE": (draw_squeeze, _MOVED),
    "EXPAND_DIMS": (draw_expand, _MOVED),
    "TRANSPOSE": (draw_transpose, _MOVED),
    "PAD": (draw_pad, _MOVED),
    "PADV2": (draw_pad_with, _ALL),
    "MIRROR_PAD": (draw_mirror, _ALL),
    "SPLIT": (draw_split, _MOVED),
    "SPLIT_V": (draw_split_at, _MOVED),
    "SLICE": (draw_slice, _MOVED),
    "STRIDED_SLICE": (draw_strided, _MOVED),
    "PACK": (draw_pack, _MOVED),
    "UNPACK": (draw_unpack, _MOVED),
    "GATHER": (draw_gather, _MOVED),
    "GATHER of batches": (draw_gather_of_batches, _MOVED),
    "GATHER_ND": (draw_gather_nd, _MOVED),
    "DEPTH_TO_SPACE": (block_moves(deeper=False), _ALL),
    "SPACE_TO_DEPTH": (block_moves(deeper=True), _ALL),
    "SPACE_TO_BATCH_ND": (draw_space_to_batch, _ALL),
    "BATCH_TO_SPACE_ND": (draw_batch_to_space, _ALL),
    "RESIZE_BILINEAR": (draw_resize, _Q),
    "RESIZE_NEAREST_NEIGHBOR": (draw_resize, _NUMBERS),
    **{f"CAST to {target}": (cast_to(target), _MOVED) for target in ("float32", "int8", "int32", "bool", "int16")},
    **{
        f"QUANTIZE to {target}": (quantize_to(target), ("float32", "int8", "int16", "uint8"))
        for target in ("int8", "int16", "int32", "uint8")
    },
    "DEQUANTIZE": (draw_dequantize, ("int8", "int16", "uint8")),
    "PRELU": (draw_prelu, _Q),
    "SELECT_V2": (draw_select, _MOVED),
    "SELECT": (draw_select, _MOVED),
    "REVERSE_V2": (draw_reverse, _MOVED),
    "BROADCAST_TO": (draw_broadcast_to, _MOVED),
    "BROADCAST_ARGS": (draw_broadcast_args, ("int32",)),
    "CUMSUM": (draw_cumsum, _NUMBERS),
    "FILL": (draw_fill, _MOVED),
    "SHAPE": (draw_shape, ("float32", "int8")),
    "TILE": (draw_tile, _MOVED),
    "DYNAMIC_UPDATE_SLICE": (draw_update, _ALL),
    "EMBEDDING_LOOKUP": (draw_lookup, _Q),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (draw_lstm, ("float32", "int8", "int16")),
    "SVDF": (draw_svdf, ("float32", "int8")),
    "hybrid CONV_2D": (hybrid(draw_convolution), ("float32",)),
    "hybrid DEPTHWISE_CONV_2D": (hybrid(draw_depthwise), ("float32",)),
    "hybrid FULLY_CONNECTED": (hybrid(draw_dense), ("float32",)),
    "hybrid BATCH_MATMUL": (hybrid(draw_matmul), ("float32",)),
    "hybrid UNIDIRECTIONAL_SEQUENCE_LSTM": (hybrid(draw_lstm), ("float32",)),
    "CONV_2D of 4 bits": (narrow(draw_convolution), ("int8",)),
    "DEPTHWISE_CONV_2D of 4 bits": (narrow(draw_depthwise), ("int8",)),
    "FULLY_CONNECTED of 4 bits": (narrow(draw_dense), ("int8",)),
    "hybrid SVDF": (hybrid(draw_svdf), ("float32",)),
}
_LONG = {
    **dict.fromkeys(("ARG_MAX", "CUMSUM", "L2_NORMALIZATION", "LOG_SOFTMAX"), ("int8",)),
    **dict.fromkeys(("BATCH_MATMUL", "FULLY_CONNECTED", "MEAN", "SOFTMAX", "SUM"), ("int8", "int16")),
}
LAYERS |= {f"{name} of a long axis": (LAYERS[name][0], kinds) for name, kinds in _LONG.items()}
LAYERS |= SIGNALS
"""Operator to the function that draws a layer of it, and its element types."""


def operator_of(name: str) -> str:
    """The schema's operator of a row."""
    return name.removeprefix("hybrid ").partition(" ")[0]


def output_count(content: bytes) -> int:
    """Number of a model's outputs."""
    return int(tflite.Model.GetRootAsModel(content, 0).Subgraphs(0).OutputsLength())


def draw_layer(row: str, dtype: str, number: int) -> tuple[bytes, list[list[np.ndarray]]]:
    """File of a model of one layer, and sets of inputs: two, or four for a layer with state."""
    draw = Draw(f"{row}/{dtype}/{number}", dtype)
    layer = LAYERS[row][0](draw)
    inputs = [spec for spec in layer.inputs if spec is not None and spec.is_input]
    has_state = row in SIGNALS or any(spec is not None and spec.variable for spec in layer.inputs)
    sets = [[draw.values(spec.shape, spec) for spec in inputs] for _ in range(4 if has_state else 2)]
    if operator_of(row) in ("SQRT", "RSQRT", "LOG") and dtype == "float32":
        sets = [[np.abs(array) + np.float32(0.01) for array in arrays] for arrays in sets]
    return layer.content(operator_of(row)), sets
