# SPDX-License-Identifier: Apache-2.0
"""A virtual STM32F746 with an attached debugger, for short assembly programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import Target


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path) as target:
        yield target
