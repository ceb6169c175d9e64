# SPDX-License-Identifier: Apache-2.0
"""Random layers with state between runs, to be run more than once."""

from typing import Any

import numpy as np
from tflite_draw import Draw, Layer, Spec


def _weights(draw: Draw, shape: tuple[int, ...], dtype: str, scale: Any = None) -> Spec:
    values = draw.random.normal(0, 1, shape) if dtype == "float32" else draw.random.integers(-127, 128, shape)
    return Spec(shape, dtype, scale, data=values)


def draw_lstm(draw: Draw) -> Layer:
    """A UNIDIRECTIONAL_SEQUENCE_LSTM without the extensions that the kernels lack, such as peepholes."""
    real, wide = draw.dtype == "float32", draw.dtype == "int16"
    batches, steps, depth, units = draw.integer(1, 2), draw.integer(1, 4), draw.integer(1, 9), draw.integer(1, 7)
    time_major = draw.pick(True, False)

    def scale() -> float | None:
        return None if real else float(np.exp(draw.random.uniform(np.log(0.002), np.log(0.03))))

    weights = [
        _weights(draw, (units, width), "float32" if real else "int8", scale()) for width in [depth] * 4 + [units] * 4
    ]
    bias_type = "float32" if real else "int64" if wide else "int32"
    biases = [Spec((units,), bias_type, data=draw.random.normal(0, 1, units) * (1 if real else 3000)) for _ in range(4)]
    data = draw.tensor(
        (steps, batches, depth) if time_major else (batches, steps, depth), zero=0 if wide else draw.pick(0, 5)
    )
    hidden = Spec((batches, units), draw.dtype, variable=True)
    cell = Spec((batches, units), "float32" if real else "int16", variable=True)
    if not real:
        quantisation = {"scale": 1 / 32768 if wide else 1 / 128, "zero": 0 if wide else draw.integer(-9, 9)}
        hidden = Spec(hidden.shape, draw.dtype, **quantisation, variable=True)
        cell = Spec(cell.shape, "int16", 2.0 ** -draw.integer(9, 15), variable=True)
    shape = (steps, batches, units) if time_major else (batches, steps, units)
    result = Spec(shape, draw.dtype, hidden.scale, hidden.zero)
    options = {"fused_activation_function": "TANH", "time_major": time_major, "cell_clip": draw.pick(0.0, 0.4)}
    return Layer([data, *weights, *[None] * 3, *biases, *[None] * 2, hidden, cell, *[None] * 4], [result], options)


def draw_svdf(draw: Draw) -> Layer:
    """An SVDF; the state of an 8-bit layer has 16 or 8 bits."""
    real = draw.dtype == "float32"
    batches, depth, memory, rank = draw.integer(1, 2), draw.integer(1, 9), draw.integer(1, 6), draw.integer(1, 3)
    units = draw.integer(1, 5)
    filters = units * rank
    state_dtype = "float32" if real else draw.pick("int16", "int8")
    narrow = state_dtype == "int8"
    scale = None if real else 1 / 16 if narrow else 1 / 256
    state = Spec((batches, filters * memory), state_dtype, scale, draw.integer(-9, 9) if narrow else 0, variable=True)
    times = _weights(draw, (filters, memory), state_dtype, None if real else 0.01)
    bias = _weights(draw, (units,), "float32" if real else "int32", None if scale is None else scale * 0.01)
    result = draw.tensor((batches, units))
    options = {"rank": rank, "fused_activation_function": draw.pick("NONE", "RELU") if real else "RELU"}
    features = _weights(draw, (filters, depth), "float32" if real else "int8", None if real else 0.01)
    return Layer([draw.tensor((batches, depth)), features, times, bias, state], [result], options)
