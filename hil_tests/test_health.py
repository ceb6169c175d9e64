# SPDX-License-Identifier: Apache-2.0
"""Health check: a known-good image is flashed, runs, and gives the correct output.

A nightly run starts with it; a board that fails is bad, and its suites do not run. The image is handwritten,
without the model compiler.
"""

from collections.abc import Callable

import numpy as np

from utvm.firmware import Firmware
from utvm.session import Session


def test_known_good_image_runs(doubler: Firmware, session: Callable[[Firmware], Session]) -> None:
    (output,) = session(doubler).run("doubler", [np.array([1, -2, 3, 2**30 - 1], np.int32)]).outputs
    assert output.tolist() == [2, -4, 6, 2**31 - 2]
