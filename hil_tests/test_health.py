# SPDX-License-Identifier: Apache-2.0
"""The shortest proof that a board works: a known-good image is put on it, runs, and answers.

It is what a nightly run asks of a board before its suites: a board that does not get through this is bad, whatever
the suites would say of it. So the image is written by hand, and no compiler of models has a part in it.
"""

from collections.abc import Callable

import numpy as np

from utvm.firmware import Firmware
from utvm.session import Session


def test_a_known_good_image_runs_and_answers(doubler: Firmware, session: Callable[[Firmware], Session]) -> None:
    (output,) = session(doubler).run("doubler", [np.array([1, -2, 3, 2**30 - 1], np.int32)]).outputs
    assert output.tolist() == [2, -4, 6, 2**31 - 2]
