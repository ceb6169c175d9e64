# SPDX-License-Identifier: Apache-2.0
"""The one program of these suites."""

from collections.abc import Callable, Sequence

import pytest

from hil_tests.programs import handwritten
from utvm.compiler import Library
from utvm.firmware import Firmware


@pytest.fixture(scope="session")
def doubler(firmware: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    """An image whose one program doubles four numbers."""
    return firmware([handwritten("doubler", "  for (int i = 0; i < 4; i++) { y[i] = 2 * x[i]; }\n  return 0;")])
