# SPDX-License-Identifier: Apache-2.0
"""Convolutions and dense layers for VTA: all int8 cases, and some with other blocks and tiles."""

from hil_tests.int8_cases import INT8_CASES, Int8Case, Quantised, convolution

_ON_VTA = (
    "conv 3x3 same",
    "conv 3x2 strides 2 relu",
    "conv 1x1 one scale",
    "dense",
    "dense of several rows without bias",
    "inverted residual",
    "padded convolution",
)

VTA_CASES: tuple[Int8Case, ...] = (
    *(case for case in INT8_CASES if case.name in _ON_VTA),
    convolution("conv of whole blocks", Quantised((1, 6, 8, 16), 0.05, 0), Quantised((1, 6, 8, 32), 0.4, 3), (1, 1)),
    convolution(
        "conv of many channels strides 2",
        Quantised((1, 11, 12, 40), 0.05, -128),
        Quantised((1, 6, 6, 33), 0.9, 11),
        (3, 3),
        stride_h=2,
        stride_w=2,
        padding="SAME",
        fused_activation_function="RELU",
    ),
    convolution(
        "conv 1x1 strides 2 and 3",
        Quantised((1, 7, 10, 20), 0.05, 127),
        Quantised((1, 4, 4, 5), 0.3, -7),
        (1, 1),
        stride_h=2,
        stride_w=3,
        padding="SAME",
    ),
    convolution(
        "conv 5x1", Quantised((1, 9, 3, 70), 0.05, 9), Quantised((1, 5, 3, 17), 0.8, 0), (5, 1), padding="VALID"
    ),
)
