# SPDX-License-Identifier: Apache-2.0
"""What stays in float of a quantised model is named, with the reason."""

from hil_tests.int8_cases import Quantised, convolution
from utvm.compiler import compile_model, from_tflite


def test_operator_that_stays_in_float_says_why() -> None:
    images = Quantised((2, 5, 5, 2))
    case = convolution("two images", images, Quantised((2, 5, 5, 3), 0.3, -5), (3, 3), padding="SAME")
    library = compile_model(from_tflite(case.content(), "two_images"))
    reasons = {leftover.operator: leftover.reason for leftover in library.leftovers}
    reason = "batches of more than one image are not supported in integers"
    assert reasons == {"nn.conv2d": reason, "add": reason}
