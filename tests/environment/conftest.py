# SPDX-License-Identifier: Apache-2.0
"""A container engine, and the checkout's own image in it, once for all tests that need them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import inv
from tests.environment.own_engine import missing, own_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of an empty engine."""
    reason = missing()
    if reason:
        pytest.skip(f"this machine lacks {reason}")
    with own_engine() as address:
        yield address


@pytest.fixture(scope="session")
def build_output(engine: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of ``docker.build --json`` for the image in the engine. Its layers are cached by lock."""
    figures = Path(tmp_path_factory.mktemp("figures")) / "image.json"
    completed = inv("docker.build", "--json", figures, timeout=2400, DOCKER_HOST=engine)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return dict(json.loads(figures.read_text()))
