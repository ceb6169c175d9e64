# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the HIL package."""

import pytest

from hil_tests.programs import handwritten
from tests.hil.running import run_suite
from utvm import boards
from utvm.firmware import Firmware, build

__all__ = ["run_suite"]


@pytest.fixture(scope="session")
def small_firmware() -> Firmware:
    """An image for a real board, with one handwritten program."""
    return build(boards.load("stm32f746"), [handwritten("twice", "  y[0] = 2 * x[0];\n  return 0;")])
