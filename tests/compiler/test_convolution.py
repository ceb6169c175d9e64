# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions against an exact numpy model: on this computer, and on an emulated Cortex-M7."""

import functools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from convolutions import (
    DSP,
    DUAL,
    MVE,
    PACKED,
    Functions,
    HostFunctions,
    Shape,
    overlap_distances,
    random_inputs,
    random_record,
    reference,
)
from cortex_m7 import run_on_cortex_m7
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from models.tflite_writer import Builder
from tests.portions import by_day
from utvm.compiler import Target, compile_model, from_tflite
from utvm.compiler.kernels.convolution import make
from utvm.compiler.target import Goal

_SHAPES = [
    Shape(),
    Shape(channels=3, outputs=5, filter=(5, 5), padding=(2, 2, 2, 2)),
    Shape(channels=3, outputs=8, strides=(2, 2), padding=(0, 0, 1, 1)),
    Shape(channels=8, outputs=7, filter=(1, 1), padding=(0, 0, 0, 0), clamped=True),
    Shape(channels=16, outputs=4, filter=(1, 1), strides=(2, 2), padding=(0, 0, 0, 0)),
    Shape(channels=4, outputs=8, filter=(3, 2), strides=(2, 1), dilation=(1, 2), padding=(0, 1, 2, 1)),
    Shape(height=1, width=1, channels=64, outputs=10, filter=(1, 1), padding=(0, 0, 0, 0)),
    Shape(height=1, width=1, channels=7, outputs=3, filter=(1, 1), padding=(0, 0, 0, 0)),
    Shape(height=3, width=4, channels=4, outputs=5, filter=(3, 4), padding=(0, 0, 0, 0), residual=True),
    Shape(channels=8, outputs=8, residual=True),
    Shape(channels=5, outputs=5, residual=True, clamped=True),
    Shape(channels=8, multiplier=1),
    Shape(channels=8, multiplier=1, strides=(2, 2), clamped=True),
    Shape(channels=4, multiplier=1, filter=(2, 5), padding=(1, 2, 0, 2)),
    Shape(channels=4, multiplier=1, dilation=(2, 1), padding=(2, 1, 2, 1)),
    Shape(channels=6, multiplier=1),
    Shape(channels=3, multiplier=2),
    Shape(channels=4, multiplier=1, residual=True),
    Shape(channels=8, outputs=9, relu=True),
    Shape(channels=16, outputs=6, filter=(1, 1), padding=(0, 0, 0, 0), largest=60, relu=True),
    Shape(channels=16, outputs=6, largest=12, relu=True),
    Shape(channels=5, outputs=6, largest=128),
    Shape(width=1, outputs=3, relu=True),
    Shape(channels=5, multiplier=2, strides=(2, 1), relu=True),
    Shape(width=2, channels=4, multiplier=1, filter=(3, 3), padding=(3, 4, 3, 4), relu=True),
    Shape(width=26, channels=3, multiplier=1, strides=(2, 2), padding=(0, 0, 1, 1), relu=True),
    Shape(width=30, channels=2, multiplier=2, strides=(2, 2), padding=(1, 9, 1, 9)),
    Shape(height=5, width=3, channels=24, outputs=5, filter=(1, 1), padding=(0, 0, 0, 0), relu=True, largest=25),
    Shape(height=1, width=2, channels=11, outputs=3, filter=(1, 1), padding=(0, 0, 0, 0)),
    Shape(height=3, width=3, channels=17, outputs=4, padding=(0, 0, 0, 0)),
    Shape(height=3, width=3, channels=2, outputs=4, strides=(3, 3), relu=True),
    Shape(height=9, width=9, channels=16, multiplier=1, relu=True),
    Shape(height=5, width=260, channels=2, multiplier=1),
    Shape(channels=300, height=4, width=4, multiplier=1, clamped=True),
    Shape(channels=3, height=7, width=9, multiplier=2, filter=(2, 3), strides=(1, 2), padding=(0, 1, 1, 1)),
    Shape(channels=8, height=14, width=12, outputs=6, relu=True),
    Shape(channels=1, height=15, width=14, outputs=5, filter=(10, 4), strides=(1, 2), padding=(4, 1, 5, 1)),
    Shape(height=1, width=1, channels=30, outputs=11, filter=(1, 1), padding=(0, 0, 0, 0), relu=True),
    Shape(channels=3, outputs=3, height=12, width=12, residual=True),
    # Parts of the filter read only padding; a column of pixels.
    Shape(height=1, width=1, channels=5, outputs=3, relu=True),
    Shape(height=2, width=2, channels=6, multiplier=1, strides=(2, 2), padding=(0, 0, 1, 1)),
    Shape(height=2, width=3, channels=4, multiplier=1, filter=(5, 3), dilation=(2, 3), padding=(4, 3, 4, 3)),
    Shape(height=3, width=2, channels=3, outputs=4, filter=(2, 3), dilation=(5, 1), padding=(1, 3, 5, 1)),
    Shape(
        height=12, width=1, channels=8, multiplier=1, filter=(5, 1), strides=(2, 1), padding=(1, 0, 2, 0), clamped=True
    ),
    Shape(
        height=9, width=1, channels=5, outputs=4, filter=(3, 1), dilation=(2, 1), padding=(2, 0, 2, 0), residual=True
    ),
    Shape(height=5, width=2, channels=8, multiplier=1, strides=(2, 1), relu=True),
    Shape(height=3, width=3, channels=4, multiplier=1, filter=(2, 5), padding=(0, 2, 1, 2), clamped=True),
    Shape(height=1, width=21, channels=8, multiplier=1, filter=(1, 21), padding=(0, 0, 0, 0)),
    # Dense layers by two channels; groups of channels.
    Shape(height=1, width=1, channels=29, outputs=13, filter=(1, 1), padding=(0, 0, 0, 0)),
    Shape(height=1, width=1, channels=9, outputs=2, filter=(1, 1), padding=(0, 0, 0, 0), clamped=True),
    Shape(height=1, width=1, channels=7, outputs=1, filter=(1, 1), padding=(0, 0, 0, 0), relu=True),
    Shape(channels=60, outputs=9, filter=(1, 1), padding=(0, 0, 0, 0), groups=3, relu=True),
    # With the DSP extension: large filters; weights of two channels that share no halfword.
    Shape(height=9, width=11, channels=4, multiplier=1, filter=(5, 5), padding=(2, 2, 2, 2), largest=128),
    Shape(
        height=12, width=13, channels=3, multiplier=2, filter=(7, 6), strides=(2, 2), padding=(2, 2, 3, 3), relu=True
    ),
    Shape(height=1, width=1, channels=300, outputs=10, filter=(1, 1), padding=(0, 0, 0, 0), largest=128),
    # Winograd's algorithm with the DSP extension: full tiles, tiles at the border, sums in several passes.
    Shape(height=12, width=12, channels=8, outputs=4, relu=True),
    Shape(height=24, width=24, channels=4, outputs=8, clamped=True),
    Shape(height=21, width=22, channels=8, outputs=4, residual=True),
    Shape(height=20, width=23, channels=4, outputs=4, padding=(0, 0, 0, 0)),
    Shape(height=24, width=23, channels=64, outputs=4, padding=(2, 1, 0, 2), largest=128),
]
_RECORDS = [random_record(shape, number) for number, shape in enumerate(_SHAPES)]
_SANITIZERS = ["-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all"]


_FORMS = pytest.mark.parametrize("form", ["fastest", "smallest"])


@functools.cache
def _functions(target: Target, form: str = "fastest") -> Functions:
    return Functions(_RECORDS, target, form)


@pytest.mark.slow
@pytest.mark.parametrize("target", [Target(), DSP, PACKED, MVE], ids=["plain", "dsp", "packed", "mve"])
@pytest.mark.parametrize(
    ("flags", "form"),
    [
        pytest.param(["-O2"], "fastest", marks=pytest.mark.nightly),
        (_SANITIZERS, "fastest"),
        pytest.param(["-O1"], "smallest", marks=pytest.mark.nightly),
    ],
    ids=["optimised", "sanitized", "smallest"],
)
def test_convolution_equals_the_model(target: Target, flags: list[str], form: str, tmp_path: Path) -> None:
    run = HostFunctions(_functions(target, form), tmp_path, flags)
    for number, record in enumerate(_RECORDS):
        inputs = random_inputs(record, number)
        np.testing.assert_array_equal(run(number, record, inputs), reference(record, inputs), str(_SHAPES[number]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "target", "form"),
    [
        ("cortex-m7", DUAL, "fastest"),
        ("cortex-m7", replace(DUAL, goal="flash"), "smallest"),
        ("cortex-m4", DSP, "fastest"),
        ("cortex-m4", PACKED, "fastest"),
        ("cortex-m33", DSP, "smallest"),
        ("cortex-m3", Target(), "fastest"),
        ("cortex-m3", Target(), "smallest"),
        ("cortex-m0", Target(), "smallest"),
    ],
)
def test_convolution_equals_the_model_on_cortex_m(code: str, target: Target, form: str, tmp_path: Path) -> None:
    """The emulated Cortex-M7 also runs the code of smaller cores."""
    inputs = [random_inputs(record, number) for number, record in enumerate(_RECORDS)]
    outputs = run_on_cortex_m7(_functions(target, form), _RECORDS, inputs, tmp_path, code)
    for number, output in enumerate(outputs):
        expected = reference(_RECORDS[number], inputs[number])
        np.testing.assert_array_equal(output, expected, str(_SHAPES[number]))


@pytest.mark.slow
@pytest.mark.parametrize("target", [Target(), DSP, MVE], ids=["plain", "dsp", "mve"])
@pytest.mark.parametrize("form", by_day(["fastest", "smallest"], "fastest"))
def test_output_may_overlap_an_input_as_declared(target: Target, form: str, tmp_path: Path) -> None:
    functions = _functions(target, form)
    run = HostFunctions(functions, tmp_path)
    for number, record in enumerate(_RECORDS):
        inputs = random_inputs(record, number)
        for input_index, minimum in enumerate(functions.overlaps[number]):
            for distance in overlap_distances(minimum):
                output = run.run_overlapping(number, record, inputs, input_index, distance)
                np.testing.assert_array_equal(output, reference(record, inputs), str(_SHAPES[number]))


def test_output_of_a_padded_convolution_overlaps_its_input() -> None:
    record = random_record(Shape(height=32, width=32, channels=16, outputs=16), 0)
    (distance,) = Functions([record], DSP).overlaps[0]
    assert distance is not None
    assert 32 * 16 <= distance <= 3 * 32 * 16


@pytest.mark.parametrize(
    ("extensions", "limit"), [((), 0), (("dsp",), 160), (("dsp", "mve"), 900)], ids=["plain", "dsp", "mve"]
)
def test_scratch_memory_costs_little_arena(extensions: tuple[str, ...], limit: int) -> None:
    """A tensor of 48 x 48 x 16 shrinks; a channel's plane and a row of all channels have about 5,000 bytes."""
    builder = Builder()
    builder.tensor("x", (1, 48, 48, 16), "int8", scale=0.05)
    builder.tensor("y", (1, 24, 24, 16), "int8", scale=0.05)
    builder.tensor("w", (1, 3, 3, 16), "int8", np.arange(144) - 70, scale=0.01)
    options = {"stride_h": 2, "stride_w": 2, "padding": "SAME"}
    builder.operator("DEPTHWISE_CONV_2D", ["x", "w", None], ["y"], **options)
    model = from_tflite(builder.finish(["x"], ["y"]), "shrinking")
    library = compile_model(model, target=Target(extensions=extensions))
    assert 48 * 48 * 16 <= library.arena_bytes <= 48 * 48 * 16 + limit


@pytest.mark.parametrize(
    "shape",
    [
        Shape(channels=8, outputs=12, filter=(1, 1), padding=(0, 0, 0, 0)),
        Shape(height=1, width=1, channels=8, outputs=12, filter=(1, 1), padding=(0, 0, 0, 0)),
        Shape(channels=8, multiplier=1),
        Shape(channels=8, multiplier=1, filter=(5, 7), padding=(2, 3, 2, 3)),
    ],
    ids=["pointwise", "dense", "3x3", "5x7"],
)
def test_constants_for_little_flash_are_weights_and_eight_bytes_a_channel(shape: Shape) -> None:
    record = random_record(shape, 0)
    geometry = 4 * 13
    for extensions in (("dsp",), ("dsp", "dual")):
        operator = make(record, Target(extensions=extensions, goal="flash"))
        size = sum(constant.nbytes for constant in operator.constants)
        assert size <= record.weights.nbytes + 8 * len(record.bias) + geometry


@pytest.mark.slow
def test_filters_of_any_length_are_correct(tmp_path: Path) -> None:
    shapes = [
        Shape(height=1, width=5, channels=length, outputs=3, filter=(1, 1), padding=(0, 0, 0, 0), largest=largest)
        for length in range(1, 18)
        for largest in (30, 60, 127)
    ]
    records = [random_record(shape, number) for number, shape in enumerate(shapes)]
    run = HostFunctions(Functions(records, Target()), tmp_path, ["-O1"])
    for number, record in enumerate(records):
        inputs = random_inputs(record, number)
        np.testing.assert_array_equal(run(number, record, inputs), reference(record, inputs), str(shapes[number]))


_AT_THE_EDGE = [(128, 127), (128, 128), (64, 64, 64, 63), (64, 64, 64, 64), (*(32,) * 7, 31), (32,) * 8]


@pytest.mark.slow
def test_largest_sums_are_correct(tmp_path: Path) -> None:
    """Products whose sum is the limit of 16 bits, and one more."""
    plain = random_record(Shape(channels=16, outputs=2, filter=(1, 1), padding=(0, 0, 0, 0)), 0)
    magnitudes = [np.resize(magnitude, (2, 1, 1, 16)) for magnitude in _AT_THE_EDGE]
    records = [replace(plain, weights=(-magnitude).astype(np.int8), bias=plain.bias * 0) for magnitude in magnitudes]
    run = HostFunctions(Functions(records, Target()), tmp_path)
    for number, record in enumerate(records):
        for value in (-128, 127):
            inputs = [np.full(record.input_shape, value, np.int8)]
            np.testing.assert_array_equal(run(number, record, inputs), reference(record, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("target", [Target(), DSP, PACKED, MVE], ids=["plain", "dsp", "packed", "mve"])
def test_single_output_limits_are_applied(target: Target, tmp_path: Path) -> None:
    shapes = [Shape(channels=8, outputs=9, relu=True), Shape(channels=6, multiplier=1, relu=True)]
    drawn = [random_record(shape, 1) for shape in shapes]
    records = [replace(record, **limit) for record in drawn for limit in ({"low": -60}, {"high": 40})]
    run = HostFunctions(Functions(records, target), tmp_path)
    for number, record in enumerate(records):
        inputs = random_inputs(record, number)
        np.testing.assert_array_equal(run(number, record, inputs), reference(record, inputs))


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "tile"), [(64, 4), (128, 2)])
def test_tile_size_is_limited_by_its_sums(channels: int, tile: int, tmp_path: Path) -> None:
    """9 * 2^6 times a sum is divided modulo 2^32, which is exact below 2^25: 255 * 127 * 9 * channels."""
    record = random_record(Shape(height=20, width=24, channels=channels, outputs=4), 0)
    record = replace(record, weights=np.full(record.weights.shape, 127, np.int8), input_zero=0)
    record = replace(record, rescale=replace(record.rescale, shifts=np.full(4, -15, np.int32)))
    functions = Functions([record], replace(DSP, goal="speed"))
    assert f"winograd_data_{tile}(" in functions.text
    run = HostFunctions(functions, tmp_path, _SANITIZERS)
    for inputs in (random_inputs(record, 0), [np.full(record.input_shape, 127, np.int8)]):
        np.testing.assert_array_equal(run(0, record, inputs), reference(record, inputs))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "function"), [(1, "dense"), (5, "tile")])
@pytest.mark.parametrize(("channels", "form"), [(515, 1), (517, 0)])
def test_channels_share_halfwords_if_their_sums_allow(
    width: int, function: str, channels: int, form: int, tmp_path: Path
) -> None:
    """256 times a sum of products, 128 * 127 * channels at most, must fit 32 bits."""
    shape = Shape(height=1, width=width, channels=channels, outputs=4, filter=(1, 1), padding=(0, 0, 0, 0))
    record = random_record(shape, 0)
    weights = np.full(record.weights.shape, 127, np.int8)
    record = replace(record, weights=weights, bias=record.bias * 0, input_zero=0)
    record = replace(record, rescale=replace(record.rescale, shifts=np.full(4, -16, np.int32)))
    functions = Functions([record], DSP)
    assert f"dsp_{function}_{form}_" in functions.text
    run = HostFunctions(functions, tmp_path, _SANITIZERS)
    for inputs in [random_inputs(record, 0), *([np.full(record.input_shape, value, np.int8)] for value in (-128, 127))]:
        np.testing.assert_array_equal(run(0, record, inputs), reference(record, inputs))


@pytest.mark.parametrize(
    ("goal", "height", "channels", "tile"),
    [
        ("balance", 24, 4, 4),
        ("balance", 12, 4, 2),
        ("balance", 8, 4, 0),  # too few outputs for the additional flash
        ("balance", 24, 64, 2),  # too much scratch memory for the large tile
        ("balance", 12, 512, 0),  # both
        ("speed", 12, 512, 2),
        ("speed", 8, 4, 4),
        ("balance", 24, 5, 0),  # not in fours
        ("speed", 8, 1, 0),
        ("flash", 24, 4, 0),
        ("ram", 24, 4, 0),
    ],
)
def test_goal_selects_the_tile_size(goal: Goal, height: int, channels: int, tile: int) -> None:
    record = random_record(Shape(height=height, width=height, channels=channels, outputs=4), 0)
    code = Functions([record], replace(DSP, goal=goal)).text
    assert re.findall(r"static void winograd_data_(\d)", code) == [str(tile)] * bool(tile)


_SIZE = st.integers(1, 7)
_shapes = st.builds(
    Shape,
    height=_SIZE,
    width=_SIZE,
    channels=st.integers(1, 9),
    outputs=st.integers(1, 9),
    filter=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    multiplier=st.integers(0, 2),
    residual=st.booleans(),
    clamped=st.booleans(),
    largest=st.sampled_from([9, 40, 127, 128]),
    relu=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_shapes.filter(lambda shape: shape.is_legal), min_size=4, max_size=8), st.integers(0, 2**16))
def test_any_convolution_equals_the_model(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[Shape], seed: int
) -> None:
    records = [random_record(shape, seed + number) for number, shape in enumerate(shapes)]
    assume(all(min(record.output_shape) > 0 for record in records))
    for target in (Target(), DSP):
        functions = Functions(records, target)
        run = HostFunctions(functions, tmp_path_factory.mktemp("any"), ["-O1"])
        for number, record in enumerate(records):
            inputs = random_inputs(record, seed)
            expected = reference(record, inputs)
            np.testing.assert_array_equal(run(number, record, inputs), expected)
            for input_index, minimum in enumerate(functions.overlaps[number]):
                for distance in overlap_distances(minimum)[:1]:
                    output = run.run_overlapping(number, record, inputs, input_index, distance)
                    np.testing.assert_array_equal(output, expected)
