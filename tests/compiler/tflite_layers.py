# SPDX-License-Identifier: Apache-2.0
"""Models of one operator, drawn at random: every operator of TensorFlow Lite Micro, in every element type.

A layer's name, ``OPERATOR/type`` and a number, is all that its shapes, strides, scales and numbers depend on.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tflite
from tflite_computed import (
    a_arg,
    a_binary,
    a_compare,
    a_convolution,
    a_dense,
    a_depthwise,
    a_divide,
    a_fixed,
    a_hybrid,
    a_integer_divide,
    a_matmul,
    a_narrow,
    a_pool,
    a_positive,
    a_product,
    a_reduce,
    a_scaled_binary,
    a_softmax,
    a_transposed,
    a_unary,
)
from tflite_draw import Draw, Layer
from tflite_kept import a_lstm, a_svdf
from tflite_moved import (
    a_add_n,
    a_batch_to_space,
    a_blocks,
    a_broadcast_args,
    a_broadcast_to,
    a_cast,
    a_concatenation,
    a_cumsum,
    a_dequantize,
    a_expand,
    a_fill,
    a_gather,
    a_gather_nd,
    a_gather_of_batches,
    a_lookup,
    a_mirror,
    a_pack,
    a_pad,
    a_pad_with,
    a_prelu,
    a_quantize,
    a_reshape,
    a_resize,
    a_reverse,
    a_select,
    a_shape,
    a_slice,
    a_space_to_batch,
    a_split,
    a_split_at,
    a_squeeze,
    a_strided,
    a_tile,
    a_transpose,
    a_unpack,
    a_update,
)
from tflite_signal import SIGNALS


def _of(make: Callable[..., Layer], **how: Any) -> Callable[[Draw], Layer]:
    return lambda draw: make(draw, **how)


_ALL = ("float32", "int8", "int16", "uint8", "int32", "int64")
_NUMBERS = ("float32", "int8", "int16", "uint8", "int32")
_Q = ("float32", "int8", "int16", "uint8")
_MOVED = (*_ALL, "bool")

LAYERS: dict[str, tuple[Callable[[Draw], Layer], tuple[str, ...]]] = {
    **{name: (_of(a_unary), _NUMBERS) for name in ("ABS", "NEG", "SQUARE", "SIGN")},
    **{name: (_of(a_unary), _Q) for name in ("CEIL", "FLOOR", "ROUND", "COS", "SIN", "EXP", "ELU", "GELU")},
    **{name: (_of(a_unary), _Q) for name in ("HARD_SWISH", "RELU", "RELU_N1_TO_1", "RELU_0_TO_1")},
    "RELU6": (_of(a_unary), _Q),
    **dict.fromkeys(("SQRT", "RSQRT", "LOG"), (a_positive, _Q)),
    "LEAKY_RELU": (_of(a_unary, alpha=0.2), _Q),
    "LEAKY_RELU that rises": (_of(a_unary, alpha=-0.5), ("float32", "int8", "int16")),
    "L2_NORMALIZATION": (a_fixed(1 / 128, 0), _Q),
    "LOGISTIC": (a_fixed(1 / 256, -128), _Q),
    "TANH": (a_fixed(1 / 128, 0), _Q),
    "LOG_SOFTMAX": (a_fixed(16 / 256, 127), _Q),
    "SOFTMAX": (a_softmax, _Q),
    "SOFTMAX to int16": (_of(a_softmax, wide=True), ("int8",)),
    "ZEROS_LIKE": (_of(a_unary, same=True), _ALL),
    "ADD": (a_scaled_binary, _ALL),
    "SUB": (a_scaled_binary, _ALL),
    "MUL": (a_product, _ALL),
    "DIV": (a_divide, _NUMBERS),
    "FLOOR_DIV": (a_integer_divide, ("float32", "int8", "int16", "int32")),
    "FLOOR_MOD": (a_integer_divide, ("float32", "int8", "int16", "int32")),
    "POW": (_of(a_binary, activation=False), ("float32",)),
    "SQUARED_DIFFERENCE": (_of(a_binary, activation=False), _NUMBERS),
    "MAXIMUM": (_of(a_binary, activation=False, same=True), _ALL),
    "MINIMUM": (_of(a_binary, activation=False, same=True), _ALL),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL"), (a_compare, _MOVED)),
    # Of int16 there is GREATER alone, whose kernel reads factors that nothing has set.
    **{
        name: (a_compare, tuple(each for each in _ALL if each != "int16"))
        for name in ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
    },
    "LOGICAL_AND": (_of(a_binary, activation=False), ("bool",)),
    "LOGICAL_OR": (_of(a_binary, activation=False), ("bool",)),
    "LOGICAL_NOT": (_of(a_unary), ("bool",)),
    "ADD_N": (a_add_n, _NUMBERS),
    "CONV_2D": (a_convolution, _Q),
    "DEPTHWISE_CONV_2D": (a_depthwise, _Q),
    "TRANSPOSE_CONV": (a_transposed, _Q),
    "FULLY_CONNECTED": (a_dense, _Q),
    "BATCH_MATMUL": (a_matmul, _Q),
    "AVERAGE_POOL_2D": (a_pool, _Q),
    "MAX_POOL_2D": (a_pool, _Q),
    "L2_POOL_2D": (a_pool, ("float32",)),
    "MEAN": (a_reduce, _NUMBERS),
    "SUM": (a_reduce, _NUMBERS),
    "REDUCE_MAX": (_of(a_reduce, same=True), _NUMBERS),
    "REDUCE_MIN": (_of(a_reduce, same=True), _NUMBERS),
    "REDUCE_PROD": (_of(a_reduce, same=True), ("float32", "int32")),
    "REDUCE_ANY": (_of(a_reduce, same=True), ("bool",)),
    "REDUCE_ALL": (_of(a_reduce, same=True), ("bool",)),
    "ARG_MAX": (a_arg, _ALL),
    "ARG_MIN": (a_arg, _ALL),
    "CONCATENATION": (a_concatenation, _MOVED),
    "RESHAPE": (a_reshape, _MOVED),
    "SQUEEZE": (a_squeeze, _MOVED),
    "EXPAND_DIMS": (a_expand, _MOVED),
    "TRANSPOSE": (a_transpose, _MOVED),
    "PAD": (a_pad, _MOVED),
    "PADV2": (a_pad_with, _ALL),
    "MIRROR_PAD": (a_mirror, _ALL),
    "SPLIT": (a_split, _MOVED),
    "SPLIT_V": (a_split_at, _MOVED),
    "SLICE": (a_slice, _MOVED),
    "STRIDED_SLICE": (a_strided, _MOVED),
    "PACK": (a_pack, _MOVED),
    "UNPACK": (a_unpack, _MOVED),
    "GATHER": (a_gather, _MOVED),
    "GATHER of batches": (a_gather_of_batches, _MOVED),
    "GATHER_ND": (a_gather_nd, _MOVED),
    "DEPTH_TO_SPACE": (a_blocks(deeper=False), _ALL),
    "SPACE_TO_DEPTH": (a_blocks(deeper=True), _ALL),
    "SPACE_TO_BATCH_ND": (a_space_to_batch, _ALL),
    "BATCH_TO_SPACE_ND": (a_batch_to_space, _ALL),
    "RESIZE_BILINEAR": (a_resize, _Q),
    "RESIZE_NEAREST_NEIGHBOR": (a_resize, _NUMBERS),
    **{f"CAST to {target}": (a_cast(target), _MOVED) for target in ("float32", "int8", "int32", "bool", "int16")},
    **{
        f"QUANTIZE to {target}": (a_quantize(target), ("float32", "int8", "int16", "uint8"))
        for target in ("int8", "int16", "int32", "uint8")
    },
    "DEQUANTIZE": (a_dequantize, ("int8", "int16", "uint8")),
    "PRELU": (a_prelu, _Q),
    "SELECT_V2": (a_select, _MOVED),
    "SELECT": (a_select, _MOVED),
    "REVERSE_V2": (a_reverse, _MOVED),
    "BROADCAST_TO": (a_broadcast_to, _MOVED),
    "BROADCAST_ARGS": (a_broadcast_args, ("int32",)),
    "CUMSUM": (a_cumsum, _NUMBERS),
    "FILL": (a_fill, _MOVED),
    "SHAPE": (a_shape, ("float32", "int8")),
    "TILE": (a_tile, _MOVED),
    "DYNAMIC_UPDATE_SLICE": (a_update, _ALL),
    "EMBEDDING_LOOKUP": (a_lookup, _Q),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (a_lstm, ("float32", "int8", "int16")),
    "SVDF": (a_svdf, ("float32", "int8")),
    "hybrid CONV_2D": (a_hybrid(a_convolution), ("float32",)),
    "hybrid DEPTHWISE_CONV_2D": (a_hybrid(a_depthwise), ("float32",)),
    "hybrid FULLY_CONNECTED": (a_hybrid(a_dense), ("float32",)),
    "hybrid BATCH_MATMUL": (a_hybrid(a_matmul), ("float32",)),
    "hybrid UNIDIRECTIONAL_SEQUENCE_LSTM": (a_hybrid(a_lstm), ("float32",)),
    "CONV_2D of 4 bits": (a_narrow(a_convolution), ("int8",)),
    "DEPTHWISE_CONV_2D of 4 bits": (a_narrow(a_depthwise), ("int8",)),
    "FULLY_CONNECTED of 4 bits": (a_narrow(a_dense), ("int8",)),
    "hybrid SVDF": (a_hybrid(a_svdf), ("float32",)),
}
_LONG = {
    **dict.fromkeys(("ARG_MAX", "CUMSUM", "L2_NORMALIZATION", "LOG_SOFTMAX"), ("int8",)),
    **dict.fromkeys(("BATCH_MATMUL", "FULLY_CONNECTED", "MEAN", "SOFTMAX", "SUM"), ("int8", "int16")),
}
LAYERS |= {f"{name} of a long axis": (LAYERS[name][0], kinds) for name, kinds in _LONG.items()}
LAYERS |= SIGNALS
"""Operator to the function that draws a layer of it, and its element types."""


def operator_of(name: str) -> str:
    """Return the schema's operator of a row, whose name may say more."""
    return name.removeprefix("hybrid ").partition(" ")[0]


def outputs_of(content: bytes) -> int:
    """Return how many outputs a model has."""
    return int(tflite.Model.GetRootAsModel(content, 0).Subgraphs(0).OutputsLength())


def draw_layer(row: str, dtype: str, number: int) -> tuple[bytes, list[list[np.ndarray]]]:
    """Return the file of a model of one layer, and sets of inputs: two, or four where it keeps something."""
    draw = Draw(f"{row}/{dtype}/{number}", dtype)
    layer = LAYERS[row][0](draw)
    given = [each for each in layer.inputs if each is not None and each.is_given]
    kept = row in SIGNALS or any(each is not None and each.variable for each in layer.inputs)
    sets = [[draw.values(each.shape, each) for each in given] for _ in range(4 if kept else 2)]
    if operator_of(row) in ("SQRT", "RSQRT", "LOG") and dtype == "float32":
        sets = [[np.abs(each) + np.float32(0.01) for each in arrays] for arrays in sets]
    return layer.content(operator_of(row)), sets
