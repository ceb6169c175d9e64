# SPDX-License-Identifier: Apache-2.0
"""Random layers of TensorFlow Lite Micro's custom operators for sound and streaming.

Undefined outputs of the kernels (energies outside the range, frames before the first complete one) are not drawn.
"""

import tflite
from tflite_draw import Draw, Layer, Spec


def constant(draw: Draw, shape: tuple[int, ...], dtype: str) -> Spec:
    return Spec(shape, dtype, data=draw.values(shape, Spec(shape, dtype)))


def draw_window(draw: Draw) -> Layer:
    size = draw.integer(1, 40)
    shape = (draw.integer(1, 3), size)
    weights = constant(draw, (size,), "int16")
    return Layer([Spec(shape, "int16"), weights], [Spec(shape, "int16")], {"shift": draw.integer(0, 20)})


def draw_auto_scale(draw: Draw) -> Layer:
    shape = (draw.integer(1, 40),)
    return Layer([Spec(shape, "int16")], [Spec(shape, "int16"), Spec((), "int32")])


def draw_transform(draw: Draw, inverse: bool = False) -> Layer:
    half = draw.pick(2 ** draw.integer(1, 8), 2 ** draw.integer(0, 3) * draw.pick(3, 5, 9, 15, 25, 45))
    length, rows = 2 * half, draw.integer(1, 2)
    input_length = length + 2 if inverse else draw.integer(1, length)
    result = length if inverse else length + 2
    kind = getattr(tflite.TensorType, draw.dtype.upper())
    options = {"T": kind, "fft_length": length}
    return Layer([Spec((rows, input_length), draw.dtype)], [Spec((rows, result), draw.dtype)], options)


def draw_energy(draw: Draw) -> Layer:
    size = draw.integer(1, 40)
    return Layer([Spec((2 * size,), "int16")], [Spec((size,), "uint32")], {"end_index": size, "start_index": 0})


def draw_filter_bank(draw: Draw) -> Layer:
    channels, weights, size = draw.integer(1, 9), draw.integer(8, 40), draw.integer(8, 40)
    widths = [draw.integer(0, 7) for _ in range(channels + 1)]
    offsets = [draw.integer(0, weights - width) for width in widths]
    starts = [draw.integer(0, size - width) for width in widths]
    tables = [Spec((channels + 1,), "int16", data=values) for values in (starts, offsets, widths)]
    operands = [constant(draw, (weights,), "int16") for _ in range(2)]
    result = Spec((channels,), "uint64")
    return Layer([Spec((size,), "uint32"), *operands, *tables], [result], {"num_channels": channels})


def draw_root(draw: Draw) -> Layer:
    shape = (draw.integer(1, 40),)
    bits = Spec((), "int32", data=draw.integer(0, 15))
    return Layer([Spec(shape, "uint64"), bits], [Spec(shape, "uint32")])


def draw_subtraction(draw: Draw) -> Layer:
    shape = (draw.integer(1, 20),)
    names = ("alternate_one_minus_smoothing", "alternate_smoothing", "min_signal_remaining", "one_minus_smoothing")
    options = {name: draw.integer(0, 1 << 14) for name in (*names, "smoothing")}
    options |= {"clamping": draw.pick(False, True), "num_channels": shape[0], "smoothing_bits": draw.integer(0, 12)}
    options["spectral_subtraction_bits"] = 14
    return Layer([Spec(shape, "uint32")], [Spec(shape, "uint32")] * 2, options)


def draw_pcan(draw: Draw) -> Layer:
    shape = (draw.integer(1, 20),)
    operands = [Spec(shape, "uint32"), Spec(shape, "uint32"), constant(draw, (125,), "int16")]
    return Layer(operands, [Spec(shape, "uint32")], {"snr_shift": draw.integer(0, 20)})


def draw_log(draw: Draw) -> Layer:
    shape = (draw.integer(1, 40),)
    options = {"input_correction_bits": draw.integer(0, 6), "output_scale": draw.integer(1, 4000)}
    return Layer([Spec(shape, "uint32")], [Spec(shape, "int16")], options)


def draw_delay(draw: Draw) -> Layer:
    shape = (draw.integer(1, 3), draw.integer(1, 12))
    return Layer([Spec(shape, "int16")], [Spec(shape, "int16")], {"delay_length": draw.integer(0, 20)})


def draw_framer(draw: Draw) -> Layer:
    rows, frames, step = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 7)
    size = step + draw.integer(0, 12)
    options = {"frame_size": size, "frame_step": step, "prefill": True}
    return Layer(
        [Spec((rows, frames * step), "int16")], [Spec((rows, frames, size), "int16"), Spec((), "bool")], options
    )


def draw_stacker(draw: Draw) -> Layer:
    channels, left = draw.integer(1, 6), draw.integer(0, 3)
    options = {"num_channels": channels, "stacker_left_context": left, "stacker_right_context": 0, "stacker_step": 1}
    return Layer([Spec((channels,), "int16")], [Spec((channels * (left + 1),), "int16"), Spec((), "bool")], options)


def draw_overlap(draw: Draw) -> Layer:
    rows, frames, step = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 7)
    size = step + draw.integer(0, 9)
    kind = getattr(tflite.TensorType, draw.dtype.upper())
    result = Spec((rows, frames * step), draw.dtype)
    return Layer([Spec((rows, frames, size), draw.dtype)], [result], {"T": kind, "frame_step": step})


def draw_circular_buffer(draw: Draw) -> Layer:
    slots, width, depth = draw.integer(2, 6), draw.integer(1, 3), draw.integer(1, 5)
    data = Spec((1, 1, width, depth), "int8", 0.05, draw.integer(-128, 127))
    result = Spec((1, slots, width, depth), "int8", data.scale, data.zero, variable=True)
    return Layer([data], [result], {"cycles_max": 1})


SIGNALS = {
    "SignalWindow": (draw_window, ("int16",)),
    "SignalFftAutoScale": (draw_auto_scale, ("int16",)),
    "SignalRfft": (draw_transform, ("int16", "int32", "float32")),
    "SignalIrfft": (lambda draw: draw_transform(draw, inverse=True), ("int16", "int32", "float32")),
    "SignalEnergy": (draw_energy, ("int16",)),
    "SignalFilterBank": (draw_filter_bank, ("uint32",)),
    "SignalFilterBankSquareRoot": (draw_root, ("uint64",)),
    "SignalFilterBankSpectralSubtraction": (draw_subtraction, ("uint32",)),
    "SignalPCAN": (draw_pcan, ("uint32",)),
    "SignalFilterBankLog": (draw_log, ("uint32",)),
    "SignalDelay": (draw_delay, ("int16",)),
    "SignalFramer": (draw_framer, ("int16",)),
    "SignalStacker": (draw_stacker, ("int16",)),
    "SignalOverlapAdd": (draw_overlap, ("int16", "float32")),
    "CIRCULAR_BUFFER": (draw_circular_buffer, ("int8",)),
}
"""Operator to the function that draws a layer of it, and its element types."""
