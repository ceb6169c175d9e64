# SPDX-License-Identifier: Apache-2.0
"""A virtual STM32F746 with a debugger's hands on it, for programs of a few lines of assembly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as made:
        yield made
