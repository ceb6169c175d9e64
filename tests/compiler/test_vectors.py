# SPDX-License-Identifier: Apache-2.0
"""Vector kernels for bytes against an exact numpy model, on emulated cores with MVE, without it, and with NEON."""

import functools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from convolutions import (
    MVE,
    NEON,
    Functions,
    HostFunctions,
    Shape,
    overlap_distances,
    random_inputs,
    random_record,
    reference,
)
from emulated_core import CORTEX_A9, CORTEX_M55, Core, Run, run_emulated

from utvm.compiler import Target
from utvm.compiler.kernels.records import Convolution
from utvm.compiler.target import Goal

_POINT = (0, 0, 0, 0)
_SHAPES = [
    Shape(channels=16, outputs=16, relu=True),
    Shape(channels=16, outputs=12, residual=True, clamped=True),
    Shape(channels=33, outputs=33, width=5, height=4),
    Shape(channels=3, outputs=8, strides=(2, 2), padding=(0, 0, 1, 1), relu=True),
    # Read in several passes, from a strip or in place; the first shape has a row behind the last window.
    Shape(channels=100, outputs=5, height=3, width=4, relu=True),
    Shape(channels=300, outputs=6, height=2, width=3, filter=(1, 1), padding=_POINT),
    Shape(channels=300, outputs=9, height=2, width=2, strides=(2, 1), filter=(1, 1), padding=_POINT, residual=True),
    # Pixels shorter than a vector: the last ones must not be read beyond the image.
    Shape(channels=1, outputs=3, height=5, width=7, filter=(1, 1), padding=_POINT),
    Shape(channels=24, outputs=12, height=3, width=3, filter=(1, 1), padding=_POINT, relu=True),
    Shape(channels=8, outputs=10, height=5, width=5, strides=(2, 2), filter=(1, 1), padding=_POINT),
    # Copied windows: dilated, with one channel, and too long for a strip.
    Shape(channels=5, outputs=7, dilation=(2, 2), padding=(2, 1, 2, 3)),
    Shape(channels=1, outputs=17, height=9, width=6, filter=(5, 4), strides=(2, 2), padding=(2, 1, 2, 1)),
    Shape(channels=200, outputs=2, height=3, width=3),
    # One pixel: eight channels at once.
    Shape(channels=40, outputs=19, height=1, width=1, filter=(1, 1), padding=_POINT),
    Shape(channels=16, outputs=8, height=5, width=4, filter=(5, 4), padding=_POINT, relu=True),
    Shape(channels=7, outputs=4, height=3, width=3, filter=(3, 3), padding=_POINT, residual=True),
    # Depthwise.
    Shape(channels=16, multiplier=1, width=9, relu=True),
    Shape(channels=33, multiplier=1, width=10, strides=(2, 2), padding=(0, 0, 1, 1), clamped=True),
    Shape(channels=20, multiplier=2, width=13, height=4, relu=True),
    Shape(channels=5, multiplier=3, width=3, filter=(2, 4), dilation=(2, 1), padding=(3, 2, 0, 4)),
    Shape(channels=6, multiplier=1, filter=(4, 1), dilation=(1, 2), strides=(1, 3), padding=(4, 0, 4, 0)),
    Shape(channels=4, multiplier=1, filter=(5, 5), padding=(2, 2, 2, 2)),
    Shape(channels=1, multiplier=2, width=1, height=1),
    # Eight channels in a vector: filters of any size, with and without padding, a column and a few pixels.
    Shape(channels=8, multiplier=1, height=25, width=1, filter=(13, 1), padding=_POINT, relu=True),
    Shape(channels=24, multiplier=1, height=9, width=14, filter=(5, 7), strides=(2, 1), padding=(2, 3, 2, 3)),
    Shape(
        channels=8, multiplier=1, height=6, width=19, filter=(1, 9), dilation=(1, 2), padding=(0, 8, 0, 8), clamped=True
    ),
    Shape(channels=8, multiplier=1, height=3, width=3, filter=(6, 5), padding=(2, 2, 3, 2), relu=True),
]
_PLAIN_M55 = replace(CORTEX_M55, flags=("-mcpu=cortex-m55+nomve", "-mthumb", "-mfloat-abi=hard"))


def _assert_equal(core: Core, functions: Functions, records: list[Convolution], edges_too: bool, folder: Path) -> None:
    """Run each function separately, and with its output as close to each input as declared; compare all outputs.

    Args:
        edges_too: also run with inputs that are all the lowest, and all the highest numbers.
    """
    runs = []
    for number, record in enumerate(records):
        drawn = random_inputs(record, number)
        edges = [[np.full_like(values, edge) for values in drawn] for edge in (-128, 127)]
        runs += [Run(number, inputs) for inputs in (drawn, *(edges if edges_too else []))]
        nearest = functions.overlaps[number]
        runs += [
            Run(number, drawn, (input_index, distance))
            for input_index, minimum in enumerate(nearest)
            for distance in overlap_distances(minimum)[:1]
        ]
    for run, output in zip(runs, run_emulated(core, functions, records, runs, folder), strict=True):
        expected = reference(records[run.number], run.inputs)
        np.testing.assert_array_equal(output, expected, f"{run.number}, {run.shared}")


_RECORDS = [random_record(shape, number) for number, shape in enumerate(_SHAPES)]


@functools.cache
def _functions(target: Target) -> Functions:
    return Functions(_RECORDS, target)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "target"),
    [(CORTEX_M55, MVE), pytest.param(_PLAIN_M55, MVE, marks=pytest.mark.nightly), (CORTEX_A9, NEON)],
    ids=["mve", "without", "neon"],
)
def test_convolutions_equal_the_model(core: Core, target: Target, tmp_path: Path) -> None:
    _assert_equal(core, _functions(target), _RECORDS, False, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("core", "target"), [(CORTEX_M55, MVE), (CORTEX_A9, NEON)], ids=["mve", "neon"])
def test_extreme_numbers_equal_the_model(core: Core, target: Target, tmp_path: Path) -> None:
    """Largest sums, channels with one value, unusual limits, halves below zero."""
    shapes = [
        Shape(channels=16, outputs=6, height=2, width=3),
        Shape(channels=64, outputs=9, height=1, width=1, filter=(1, 1), padding=_POINT),
        Shape(channels=6, multiplier=1, width=5),
    ]
    records = []
    for drawn in (random_record(shape, 7) for shape in shapes):
        # A shift by two bits: half of the negative sums are exact halves.
        half_shift = replace(
            drawn.rescale, multipliers=drawn.rescale.multipliers * 0 + 2**30, shifts=drawn.rescale.shifts * 0 - 2
        )
        constant_channels = drawn.weights.copy()
        constant_channels[1::2] = 0
        changes: list[dict[str, object]] = [
            {"weights": np.full_like(drawn.weights, -128), "input_zero": -128, "output_zero": 127},
            {"weights": np.full_like(drawn.weights, 127), "input_zero": 127, "output_zero": -128},
            {"bias": drawn.bias * 0 + 2**30 - 2**22, "input_zero": 0, "output_zero": -90},
            {"bias": drawn.bias * 0 - 2**30 + 2**22, "input_zero": 0, "output_zero": 90, "high": -1},
            {"weights": constant_channels, "low": -7, "high": 5},
            {"low": 3, "high": 3},
            {
                "rescale": half_shift,
                "weights": np.sign(drawn.weights),
                "bias": drawn.bias % 8 - 4,
                "low": -128,
                "high": 127,
            },
        ]
        for change in changes:
            records.append(replace(drawn, **change))  # type: ignore[arg-type]
    _assert_equal(core, Functions(records, target), records, True, tmp_path)


_FAST = replace(MVE, goal="speed")
_WINOGRAD = [
    # Full tiles; tiles at the border; an image without padding; sums in two rounds; more padding than the filter sees.
    Shape(height=8, width=8, channels=16, outputs=8, relu=True),
    Shape(height=11, width=15, channels=32, outputs=12, residual=True, clamped=True),
    Shape(height=10, width=18, channels=8, outputs=8, padding=_POINT),
    Shape(height=8, width=8, channels=256, outputs=8, largest=90),
    Shape(height=15, width=8, channels=128, outputs=8, padding=(2, 1, 0, 1), clamped=True),
]


def _filled(channels: int, weight: int, bias: int) -> Convolution:
    """Return a layer of equal weights; pixels of 127 add up to 9 * 127 * channels * weight and the bias."""
    record = random_record(Shape(height=8, width=8, channels=channels, outputs=8), 0)
    record = replace(record, weights=np.full_like(record.weights, weight), bias=record.bias * 0 + bias, input_zero=0)
    return replace(record, rescale=replace(record.rescale, shifts=np.full(8, -18, np.int32)))


@functools.cache
def _winograd() -> tuple[list[Convolution], Functions]:
    """576 times a sum must fit 32 bits, or is divided modulo 2^32, where a sum must be below 2^25."""
    edges = [(24, 127, 244_406), (24, 127, 244_407), (24, -127, -244_407)]
    edges += [(128, 127, 14_973_823), (128, 127, 14_973_824)]
    records = [random_record(shape, number) for number, shape in enumerate(_WINOGRAD, 1)]
    records += [_filled(*edge) for edge in edges]
    functions = Functions(records, _FAST)
    forms = [re.findall(r"vector_winograd_\d+_\d_\d_(\d)\(", item.definition) for item in functions.printed]
    assert all(forms[:5])
    assert forms[5:] == [["0"], ["1"], ["1"], ["1"], []]
    return records, functions


@pytest.mark.slow
@pytest.mark.parametrize(
    "core", [CORTEX_M55, pytest.param(_PLAIN_M55, marks=pytest.mark.nightly)], ids=["mve", "plain"]
)
def test_winograd_equals_the_model(core: Core, tmp_path: Path) -> None:
    records, functions = _winograd()
    _assert_equal(core, functions, records, True, tmp_path)


@pytest.mark.slow
def test_plain_form_of_winograd_has_no_undefined_behaviour(tmp_path: Path) -> None:
    records, functions = _winograd()
    run = HostFunctions(functions, tmp_path, ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"])
    for number, record in enumerate(records):
        inputs = random_inputs(record, number)
        np.testing.assert_array_equal(run(number, record, inputs), reference(record, inputs))


@pytest.mark.parametrize(
    ("goal", "size", "channels", "outputs", "chosen"),
    [
        ("speed", 8, 32, 8, True),
        ("balance", 8, 32, 8, False),  # more scratch memory and flash
        ("speed", 5, 32, 8, False),  # most of the tiles lies beyond the image
        ("speed", 8, 28, 8, False),
        ("speed", 8, 32, 10, False),
    ],
)
def test_winograd_is_chosen_where_it_saves_time(
    goal: Goal, size: int, channels: int, outputs: int, chosen: bool
) -> None:
    record = random_record(Shape(height=size, width=size, channels=channels, outputs=outputs), 0)
    assert ("vector_winograd" in Functions([record], replace(MVE, goal=goal)).text) == chosen


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("core", "target"), [(CORTEX_M55, MVE), (CORTEX_A9, NEON)], ids=["mve", "neon"])
def test_any_convolution_equals_the_model(core: Core, target: Target, seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    filters = [(1, 1), (3, 3), (3, 3), (5, 5), (1, 4), (4, 2)]
    paddings = [_POINT, (1, 1, 1, 1), (0, 0, 1, 1), (2, 3, 1, 4)]
    records: list[Convolution] = []
    while len(records) < 40:
        pairs = [(int(pair[0]), int(pair[1])) for pair in draw.integers(1, 4, (2, 2))]
        shape = Shape(
            *(int(draw.integers(1, limit)) for limit in (9, 12, 34, 34)),
            filters[draw.integers(len(filters))],
            pairs[0],
            pairs[1] if draw.random() < 0.3 else (1, 1),
            paddings[draw.integers(len(paddings))],
            int(draw.integers(1, 4)) if draw.random() < 0.4 else 0,
            *(bool(draw.random() < 0.3) for _ in range(2)),
            int(draw.choice([9, 40, 127, 128])),
            bool(draw.random() < 0.4),
        )
        if shape.is_legal:
            records.append(random_record(shape, int(draw.integers(2**30))))
    _assert_equal(core, Functions(records, target), records, False, tmp_path)
