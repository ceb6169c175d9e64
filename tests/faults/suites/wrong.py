# SPDX-License-Identifier: Apache-2.0
"""A suite that a board fails: two of its tests expect a wrong result."""

from collections.abc import Callable

import numpy as np
import pytest

from utvm.firmware import Firmware
from utvm.session import Session


@pytest.mark.parametrize("factor", [3, 2, 4])
def test_multiplies(doubler: Firmware, session: Callable[[Firmware], Session], factor: int) -> None:
    for step in range(5):
        (output,) = session(doubler).run("doubler", [np.full(4, 1 + step, np.int32)]).outputs
    assert output.tolist() == [factor * 5] * 4
