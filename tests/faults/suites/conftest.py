# SPDX-License-Identifier: Apache-2.0
"""Fixtures of these suites."""

import os
from collections.abc import Callable, Iterator, Sequence

import pytest

from hil_tests.programs import handwritten
from tests.faults.rival import sole_user_if_checked
from utvm.compiler import Library
from utvm.firmware import Firmware


@pytest.fixture(scope="session", autouse=True)
def _sole_user() -> Iterator[None]:
    with sole_user_if_checked(os.environ):
        yield


@pytest.fixture(scope="session")
def doubler(firmware: Callable[[Sequence[Library]], Firmware]) -> Firmware:
    """An image with one program, which doubles four numbers."""
    return firmware([handwritten("doubler", "  for (int i = 0; i < 4; i++) { y[i] = 2 * x[i]; }\n  return 0;")])
