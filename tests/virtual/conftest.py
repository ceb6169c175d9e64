# SPDX-License-Identifier: Apache-2.0
"""A virtual STM32F746 with a debugger's hands on it, for programs of a few lines of assembly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import Target


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path) as target:
        yield target
