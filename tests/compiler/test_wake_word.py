# SPDX-License-Identifier: Apache-2.0
"""The wake-word example: from raw sound to scores by two chained models, equal to TensorFlow Lite Micro."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from tflite_micro.python.tflite_micro import runtime

import utvm
from models.tflite_writer import Builder

EXAMPLE = Path(__file__).parents[2] / "examples/wake_word.py"
FRAME, BINS, CHANNELS, FRAMES = 48, 33, 8, 5


def preprocessor() -> bytes:
    """A preprocessor with the operators of TFLM's audio_preprocessor_int8.tflite, in other sizes."""
    random, builder = np.random.default_rng(3), Builder()
    window = (4096 * np.sin(np.pi * np.arange(FRAME) / FRAME) ** 2).astype(np.int16)
    places = np.arange(CHANNELS + 1, dtype=np.int16) * 3
    shapes = {"x": (FRAME,), "window": (FRAME,), "windowed": (FRAME,), "scaled": (FRAME,), "spectrum": (2 * BINS,)}
    for name, shape in shapes.items():
        builder.tensor(name, shape, "int16", window if name == "window" else None)
    builder.tensor("bits", (), "int32")
    builder.tensor("energy", (BINS,), "uint32")
    for name in ("weights", "rest"):
        builder.tensor(name, (BINS,), "int16", random.integers(0, 4096, BINS))
    for name in ("starts", "places", "widths"):
        builder.tensor(name, (CHANNELS + 1,), "int16", places if name != "widths" else 4)
    builder.tensor("sums", (CHANNELS,), "uint64")
    for name in ("roots", "signal", "noise", "gained"):
        builder.tensor(name, (CHANNELS,), "uint32")
    builder.tensor("gains", (125,), "int16", random.integers(0, 3000, 125))
    builder.tensor("y", (CHANNELS,), "int16")
    builder.operator("SignalWindow", ["x", "window"], ["windowed"], shift=12)
    builder.operator("SignalFftAutoScale", ["windowed"], ["scaled", "bits"])
    builder.operator("SignalRfft", ["scaled"], ["spectrum"], T=7, fft_length=64)
    builder.operator("SignalEnergy", ["spectrum"], ["energy"], start_index=0, end_index=BINS)
    tables = ["weights", "rest", "starts", "places", "widths"]
    builder.operator("SignalFilterBank", ["energy", *tables], ["sums"], num_channels=CHANNELS)
    builder.operator("SignalFilterBankSquareRoot", ["sums", "bits"], ["roots"])
    smoothing = {"smoothing": 409, "one_minus_smoothing": 15975, "min_signal_remaining": 819, "smoothing_bits": 10}
    odd = {"alternate_smoothing": 983, "alternate_one_minus_smoothing": 15401, "spectral_subtraction_bits": 14}
    options = {**smoothing, **odd, "clamping": False, "num_channels": CHANNELS}
    builder.operator("SignalFilterBankSpectralSubtraction", ["roots"], ["signal", "noise"], **options)
    builder.operator("SignalPCAN", ["signal", "noise", "gains"], ["gained"], snr_shift=6)
    builder.operator("SignalFilterBankLog", ["gained"], ["y"], input_correction_bits=3, output_scale=64)
    return builder.finish(["x"], ["y"])


def classifier() -> bytes:
    random, builder = np.random.default_rng(4), Builder()
    builder.tensor("x", (1, FRAMES * CHANNELS), "int16", scale=0.01)
    weights = random.integers(-127, 128, (3, FRAMES * CHANNELS))
    builder.tensor("weights", weights.shape, "int8", weights, scale=0.01)
    builder.tensor("y", (1, 3), "int16", scale=0.01)
    builder.operator("FULLY_CONNECTED", ["x", "weights"], ["y"])
    return builder.finish(["x"], ["y"])


@pytest.mark.slow
def test_wake_word_on_a_virtual_board_equals_the_kernels(tmp_path: Path) -> None:
    for name, content in (("ear.tflite", preprocessor()), ("answer.tflite", classifier())):
        (tmp_path / name).write_bytes(content)
    sound = np.random.default_rng(5).normal(0, 4000, FRAME * FRAMES).astype(np.int16)
    models = (preprocessor(), classifier())
    frontend, network = (runtime.Interpreter.from_bytes(content, arena_size=1 << 16) for content in models)
    features = []
    for frame in sound.reshape(FRAMES, FRAME):
        frontend.set_input(frame, 0)
        frontend.invoke()
        features.append(np.array(frontend.get_output(0)))
    network.set_input(np.stack(features).reshape(1, -1), 0)
    network.invoke()
    assert len({feature.tobytes() for feature in features}) == FRAMES
    listen = runpy.run_path(str(EXAMPLE))["listen"]
    with utvm.open("stm32f746", kind="virtual") as board:
        result = listen(board, tmp_path / "ear.tflite", tmp_path / "answer.tflite", sound, FRAME)
    np.testing.assert_array_equal(result, network.get_output(0))
