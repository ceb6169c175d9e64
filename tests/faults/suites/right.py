# SPDX-License-Identifier: Apache-2.0
"""A suite that a board passes, with several tests, so that faults hit before, between and after them."""

from collections.abc import Callable

import numpy as np
import pytest

from utvm.firmware import Firmware
from utvm.session import Session


@pytest.mark.parametrize("number", [1, -2, 3, -4])
def test_doubles(doubler: Firmware, session: Callable[[Firmware], Session], number: int) -> None:
    for step in range(5):
        (output,) = session(doubler).run("doubler", [np.full(4, number + step, np.int32)]).outputs
        assert output.tolist() == [2 * (number + step)] * 4
